"""What other programs import of callstack-proxy."""
