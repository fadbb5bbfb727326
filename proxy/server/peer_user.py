"""Finds which user of this machine holds the other end of a loopback connection, by the system's table of sockets.

Linux has the table in `/proc/net`; elsewhere, and where the table does not show our own end of the connection either,
nothing is known.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path

Address = tuple[str, int]
"""Host and port, as ASGI has them."""

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class Peer(Enum):
    """What is known where no user is found."""

    UNKNOWN = "no table tells"
    GONE = "the other end is not on this machine, or was closed"


def user_of_peer(client: Address, server: Address) -> int | Peer:
    """The user id of the process that holds the client's end of a connection."""
    lines: list[str] = []
    for table in _TABLES:
        try:
            lines += table.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
    return find_user(lines, client, server)


def find_user(table: Iterable[str], client: Address, server: Address) -> int | Peer:
    """The same, by the lines of the table."""
    own_end_is_listed = False
    ports = (f":{client[1]:04X} ", f":{server[1]:04X} ")
    there, here = _normalized(client), _normalized(server)
    for line in table:
        if not all(port in line for port in ports):
            continue
        for local, remote, user, inode in _socket_in(line):
            own_end_is_listed |= (local, remote) == (here, there)
            # A socket without an inode was closed by its process, and is told as one of root.
            if (local, remote) == (there, here) and inode:
                return user
    return Peer.GONE if own_end_is_listed else Peer.UNKNOWN


def _socket_in(line: str) -> Iterator[tuple[Address, Address, int, int]]:
    """Both ends, user and inode of a line; nothing of a line that is no socket."""
    columns = line.split()
    try:
        yield _decoded(columns[1]), _decoded(columns[2]), int(columns[7]), int(columns[9])
    except (IndexError, ValueError):
        return


def _decoded(written: str) -> Address:
    """An address of the table: words of 32 bits in hexadecimal, each with its lowest byte first."""
    host, _, port = written.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    return _normalized((str(ipaddress.ip_address(b"".join(words))), int(port, 16)))


def _normalized(address: Address) -> Address:
    host = ipaddress.ip_address(address[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(mapped or host), address[1]
