"""`callstack mcp`: `command` has its options, `reach` asks the proxy or the store."""
