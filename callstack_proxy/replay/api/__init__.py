"""What a replay knows of each API beside its dialect: how clients write requests, and how providers write answers."""
