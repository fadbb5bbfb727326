"""The pure core: what a conversation is, what its frames are, and what of it goes upstream.

Nothing here opens a socket or a file, reads a clock, or draws a random number: time, ids and token counts come in as
arguments.
"""
