"""The management API, views of stored conversations, and their export and import."""
