"""Ports that stay a test's own."""

import socket


def held_port() -> socket.socket:
    """A socket at a free port of 127.0.0.1 that does not listen. Until it is closed no other process is given the port,
    and a server may listen there, leave and come back."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    return place


def port_of(place: socket.socket) -> int:
    return int(place.getsockname()[1])
