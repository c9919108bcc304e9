"""The listening side of TCP: accepts, and hands each connection to ``links``, through TLS where there is a context.

asyncio's own server is not used, for two reasons. It forgets connections that it accepted in the turn in which it was
closed: the dialler waits for an answer that never comes. And it does not count connections that are still at the
handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from .links import HANDSHAKE_S, Links
from .stream import Connection

ACCEPTED_PER_WAKE_MAX = 64
PAUSE_S = 0.1
"""Seconds to wait after the kernel refused to accept, mostly for want of file descriptors."""


class Listener:
    """Serves from its creation until ``close``. ``sock`` listens and does not block."""

    def __init__(self, sock: socket.socket, links: Links, tls: ssl.SSLContext | None) -> None:
        self._sock = sock
        self._links = links
        self._secure: dict[str, Any] = {"ssl": tls, "ssl_handshake_timeout": HANDSHAKE_S} if tls is not None else {}
        self._welcoming: dict[asyncio.Task[None], tuple[socket.socket, Connection]] = {}
        self._waiting: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(sock.fileno(), self._accept)
        except NotImplementedError:  # Windows' proactor
            self._waiting = self._loop.create_task(self._wait_and_accept())

    async def close(self) -> None:
        """The port is free afterwards; connections that are not yet with ``links`` are closed."""
        if self._pause is not None:
            self._pause.cancel()
        tasks = set(self._welcoming)
        if self._waiting is not None:
            tasks.add(self._waiting)
        else:
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _accept(self) -> None:
        """Accept waiting connections, up to a bound, so that a crowd of diallers does not delay data."""
        for _ in range(ACCEPTED_PER_WAKE_MAX):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, ConnectionError):  # no connection waits, or it is already gone
                return
            except OSError:
                self._links.stats.errors += 1
                self._loop.remove_reader(self._sock.fileno())
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
                return
            self._admit(sock)

    def _resume(self) -> None:
        self._loop.add_reader(self._sock.fileno(), self._accept)

    async def _wait_and_accept(self) -> None:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(self._sock)
            except OSError:
                self._links.stats.errors += 1
                await asyncio.sleep(PAUSE_S)
            else:
                self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        connection = self._links.admit()
        if connection is None:
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._welcome(sock, connection))
        self._welcoming[task] = (sock, connection)
        task.add_done_callback(self._welcomed)

    async def _welcome(self, sock: socket.socket, connection: Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, sock, **self._secure)
        except OSError as error:  # ssl.SSLError and TimeoutError are among them
            self._links.refused(connection, f"no TLS handshake ({error})")

    def _welcomed(self, task: asyncio.Task[None]) -> None:
        """Here, not in ``_welcome``: a task that is cancelled before its first step cleans up nothing."""
        sock, connection = self._welcoming.pop(task)
        if task.cancelled() or connection.cut:
            connection.abort()
            sock.close()
            self._links.lost(connection)
