"""Ports for whatever a benchmark starts.

They are below those that the kernel gives to clients by itself, and below those of multicast buses. One of the kernel's
would be free when we ask and a client's a moment later; and a client that calls its server's port before the server is
there may be given that very port, and so be connected with itself.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress

FIRST, LAST = 10_000, 19_999
_chance = random.SystemRandom()


def free_port() -> int:
    """A port of the loopback interface that nobody has now, neither for datagrams nor for streams."""
    while True:
        port = _chance.randint(FIRST, LAST)
        with (
            suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
            socket.socket() as streams,
        ):
            datagrams.bind(("127.0.0.1", port))
            streams.bind(("127.0.0.1", port))
            return port
