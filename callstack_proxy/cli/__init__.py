"""The commands of `callstack`, one module for each group of them.

A command that looks reads the store of the data directory; a command that changes something goes through the management
API (`api_client`). Everything printed is escaped first (`output`). Results go to stdout and errors to stderr. Exit
codes: 0 done, 1 a finding or a failure, 2 a wrong argument or configuration. Nothing is imported here, because the
status line has 50 ms for everything.
"""
