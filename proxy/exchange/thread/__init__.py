"""Finds out where a request stands in its conversation, where that came from, and whether its thread is awake."""
