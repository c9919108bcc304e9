"""A datagram socket, by the two calls that every datagram costs.

``c/wire.h`` has the same in C, for IPv4. It is used where it was compiled. It needs no large buffer for a short
datagram, remembers the addresses that it has just seen, and receives each segment of a train in its place. A test
holds the two to the same answers.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ..core.limits import DATAGRAM_BYTES_MAX
from ..core.ports import Datagram
from .loading import compiled


class Wire:
    """``sock`` does not block. Trains of up to ``joins`` bytes may come joined, or in segments."""

    def __init__(self, sock: socket.socket, joins: int = 0) -> None:
        self._sock = sock
        self.send = sock.sendto
        """Sends a datagram to an address; raises the kernel's error."""

    def receive(self, most: int, enough: int) -> list[Datagram]:
        """The datagrams that have come, at most ``most`` of them; only one if the first is shorter than ``enough``. An
        error of the kernel is raised only if no datagram came before it."""
        got: list[Datagram] = []
        try:
            while len(got) < most:
                data, source = self._sock.recvfrom(DATAGRAM_BYTES_MAX)
                got.append((data, source[:2]))  # those of IPv6 have flow and scope besides
                if len(data) < enough and len(got) == 1:
                    break
        except BlockingIOError:
            pass
        except OSError:
            if not got:
                raise
        return got

    def close(self) -> None:
        """The socket is no longer ours."""


def wire(sock: socket.socket, joins: int) -> Wire:
    """The better of the two for a socket."""
    return QuickWire(sock, joins) if sock.family == socket.AF_INET else Wire(sock, joins)


QuickWire = Wire
if not TYPE_CHECKING:
    QuickWire = getattr(compiled, "Wire", Wire)  # Windows has none
