"""Tests of the scripted provider: over real sockets, and by value where no socket is needed."""
