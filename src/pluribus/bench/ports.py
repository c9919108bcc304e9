"""Ports for the processes of a benchmark.

These ports are below those that the kernel gives to clients, and below those of multicast buses. A port of the kernel's
range could be free when we ask and belong to a client a moment later; and a client that connects to such a port before
its server is there may be given this very port, and be connected with itself.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress

FIRST, LAST = 10_000, 19_999
_chance = random.SystemRandom()


def free_port() -> int:
    """A port of the loopback interface that is free now, for datagrams and for streams."""
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
