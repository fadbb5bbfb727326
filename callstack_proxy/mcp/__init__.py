"""The server of the model context protocol behind `callstack mcp`: what was done in a project, for any agent that
speaks the protocol. Needs the extra `mcp`."""
