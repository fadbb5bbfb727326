"""Notes: texts that the proxy adds behind the newest message of a request, and the events they record."""
