"""Both ends of a client's connection notice that the other one has vanished.

A machine that loses power, or whose cable is pulled, does not end its connections. Then a member would keep what such a
client holds, for instance an event of a shared subscription, and a client would wait for events that nobody sends. So
the kernel asks the other end when nothing has come from it for some time, and breaks the connection if there is no
answer. A program that merely stands still is not noticed: its kernel answers.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

QUIET_S = 5
"""Seconds without a byte after which the other end is asked."""
ASK_EVERY_S = 2
ASKED_MAX = 5
"""Questions without an answer after which the connection is broken."""
GONE_S = QUIET_S + ASK_EVERY_S * ASKED_MAX


def notice_absence(writer: asyncio.StreamWriter) -> None:
    """Break this connection if the other end's machine is silent for ``GONE_S``."""
    sock: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError, AttributeError):  # Linux has all of these; elsewhere the system's own times hold
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_EVERY_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ASKED_MAX)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_S * 1_000)
