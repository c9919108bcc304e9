"""TCP connections to peers: at most one connection in use for each peer.

A peer is identified by its *listening* address. A dialler sends its own in its first record (``stream.Hello``), so both
directions of one connection have the same two names, and an answer goes back the way the question came.

Dialling is lazy: the first datagram dials, and datagrams wait, bounded, until the other side has sent its hello. Only
then are datagrams sent, so a connection that loses against another has carried nothing and loses nothing.

Two peers that dial each other at once must keep one connection. Rule: the dial of the *smaller* address wins. The
greater accepts it and gives up its own; the smaller holds the other's unanswered until its own dial ends. It also holds
a connection of a peer that it is connected with, because that may be the remains of such a race, still on its way when
the race was decided. If the other side closes a held connection, it was such remains. A held connection that is still
there after ``HOLD_S``, or when the dial or the connection before it fails, is accepted. So both sides agree without a
further message, and a network that connects in one direction only still gets its connection.

A peer that cannot be reached costs an attempt now and then: waiting datagrams are counted as dropped, and so are those
that come before the next attempt is due. There are no timers for that: the first datagram after that time dials.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..core.limits import ENGINE_QUEUE_BYTES_MAX, TCP_CONNECTIONS_MAX
from ..core.ports import Address, Datagram, EngineStats
from .binding import is_number
from .stream import Connection, Hello, joined, record_bytes

log = logging.getLogger(__name__)

CONNECT_S = 1.0
"""Seconds for a dial. A host that is down does not answer; if it comes up meanwhile, the kernel would try again only
after seconds."""
DIAL_S = 5.0
"""The same with TLS and hello."""
HANDSHAKE_S = 5.0
HOLD_S = 1.0
RETRY_S_MIN, RETRY_S_MAX = 0.05, 0.4
"""The longest back-off. A member that takes over an address must be received by members that dial it before it may take
itself for alone, so the back-off is short: a dial that is refused at once costs little."""
TCP_HEARD_S = 2.5
"""The sum of a dial just missed, the pause after it, the beat that dials again, and a second in case all of that is
slow."""
SETTLED_S = 1.0
"""A connection that lived this long was good: after it the first attempt is made at once."""
CLOSE_S = 2.0


class _Link:
    """The state of one peer."""

    __slots__ = ("address", "connection", "dial", "failures", "held", "retry_at", "waiting", "waiting_bytes")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.dial: asyncio.Task[None] | None = None
        self.held: Connection | None = None
        self.waiting: list[bytes] = []
        self.waiting_bytes = 0
        self.failures = 0
        self.retry_at = 0.0

    @property
    def idle(self) -> bool:
        return self.connection is None and self.dial is None and self.held is None


class Links:
    """All links of one engine; the ``Owner`` of their connections. ``hello`` is this side's first record."""

    def __init__(
        self,
        hello: Hello,
        stats: EngineStats,
        receive: Callable[[list[Datagram]], None],
        room: Callable[[], None],
        tls: ssl.SSLContext | None,
    ) -> None:
        self.writable = True
        self._hello = hello
        self.stats = stats
        self._receive = receive
        self._room = room
        self._secure: dict[str, Any] = {"ssl": tls, "server_hostname": ""} if tls is not None else {}
        self._links: dict[Address, _Link] = {}
        self._connections: set[Connection] = set()
        self._paused: set[Connection] = set()
        self._closing = False
        self._gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # For the engine

    def put(self, to: Address, datagrams: Sequence[bytes], records: bytes) -> None:
        """Hand the datagrams over, already joined to ``records``: in one write if connected, after the dial if not."""
        link = self._links.get(to) or self._link_to(to)
        if link is None or self._closing:
            self._to_oneself_or_nobody(to, datagrams)
            return
        connection = link.connection
        if connection is None:
            self._wait(link, datagrams)
            return
        room_bytes = ENGINE_QUEUE_BYTES_MAX - connection.backlog_bytes
        if len(records) > room_bytes:
            datagrams = self._that_fit(datagrams, room_bytes)
            records = joined(datagrams)
        if datagrams:
            connection.write(records)
            self._count_out(datagrams)

    def give_up(self, address: Address) -> None:
        """Nobody cares for this peer any more: if it does not read it is cut off, so as not to hold up the others."""
        link = self._links.get(address)
        if link is not None and link.connection in self._paused:
            link.connection.abort()

    def admit(self) -> Connection | None:
        """Room for a peer that has dialled us, with ``HANDSHAKE_S`` for TLS and hello; None if there is none."""
        if len(self._connections) >= TCP_CONNECTIONS_MAX:
            self.stats.errors += 1
            log.info("a connection was refused: there are %d", TCP_CONNECTIONS_MAX)
            return None
        connection = Connection(self, None)
        connection.deadline = self._loop.call_later(HANDSHAKE_S, self._too_late, connection)
        self._connections.add(connection)
        return connection

    async def close(self) -> None:
        """Flush; at most ``CLOSE_S`` for dials under way, and as long again for peers that do not read."""
        dials = [link.dial for link in self._links.values() if link.dial is not None]
        self._closing = True
        for connection in tuple(self._connections):
            if connection.hello is None and connection.dialled is None:
                connection.abort()
        if dials:
            await asyncio.wait(dials, timeout=CLOSE_S)
        for link in self._links.values():
            self.stats.dropped += len(link.waiting)
            if link.dial is not None:
                link.dial.cancel()
        in_use = {link.connection for link in self._links.values()}
        for connection in tuple(self._connections):
            if connection in in_use:
                connection.finish()
            else:
                connection.abort()
        if not await self._all_gone():
            for connection in tuple(self._connections):
                connection.abort()
            await self._all_gone()

    # Reports of connections (stream.Owner)

    def made(self, connection: Connection) -> None:
        self._connections.add(connection)
        connection.made_at = self._loop.time()
        if connection.dialled is not None:
            connection.write(self._hello.encode())

    def greeted(self, connection: Connection, hello: Hello) -> None:
        if connection.deadline is not None:
            connection.deadline.cancel()
        address, dialled = hello.address, connection.dialled
        if hello.bus != self._hello.bus:
            self.refused(connection, f"{_text(address)} is of another bus: give each bus a port of its own")
        elif hello.incarnation == self._hello.incarnation or address == self._hello.address:
            self.refused(connection, f"{_text(address)} is this engine itself")
        elif dialled is not None and dialled != address:
            self.refused(connection, f"{_text(dialled)} calls itself {_text(address)}: dial it so")
        elif (link := self._link_to(address)) is None:
            self.refused(connection, f"more than {TCP_CONNECTIONS_MAX} peers")
        elif dialled is not None or not self._must_wait(link, hello):
            self._adopt(link, connection)
        else:
            if link.held is not None:
                link.held.abort()
            link.held = connection
            connection.deadline = self._loop.call_later(HOLD_S, self._hold_over, link, connection)

    def received(self, datagrams: list[Datagram], size_bytes: int) -> None:
        if not self._closing:
            self.stats.datagrams_in += len(datagrams)
            self.stats.bytes_in += size_bytes
            self._receive(datagrams)

    def refused(self, connection: Connection, reason: str) -> None:
        if not connection.cut:
            self.stats.errors += 1
            log.info("a connection was cut off: %s", reason)
            connection.abort()

    def paused(self, connection: Connection) -> None:
        self._paused.add(connection)
        self.writable = False

    def resumed(self, connection: Connection) -> None:
        self._paused.discard(connection)
        if not self.writable and not self._paused:
            self.writable = True
            if not self._closing:
                self._room()

    def lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._gone.set()
        self.resumed(connection)
        connection.over.set()
        link = self._links.get(connection.hello.address) if connection.hello is not None else None
        if link is None:
            return
        if link.held is connection:
            link.held = None
        elif link.connection is connection:
            link.connection = None
            if link.held is not None:
                self._adopt(link, link.held)
            elif self._loop.time() - connection.made_at >= SETTLED_S:
                link.failures = 0
            else:
                self._back_off(link)

    # One link

    def _link_to(self, address: Address) -> _Link | None:
        """The link to an address, a new one if need be; None if there are too many links, or if the address (from a
        peer) is invalid."""
        link = self._links.get(address)
        host, port = address
        if link is None and is_number(host) and 0 < port <= 65_535 and address != self._hello.address:
            if len(self._links) >= TCP_CONNECTIONS_MAX:
                self._links = {peer: kept for peer, kept in self._links.items() if not kept.idle}
            if len(self._links) < TCP_CONNECTIONS_MAX:
                link = self._links[address] = _Link(address)
        return link

    def _to_oneself_or_nobody(self, to: Address, datagrams: Sequence[bytes]) -> None:
        if to == self._hello.address and not self._closing:
            self._count_out(datagrams)
            arrived = [(bytes(datagram), to) for datagram in datagrams]
            self._loop.call_soon(self.received, arrived, sum(map(len, datagrams)))
        else:
            self.stats.dropped += len(datagrams)

    def _wait(self, link: _Link, datagrams: Sequence[bytes]) -> None:
        """Keep datagrams for the dial under way, or dial if the next attempt is due."""
        if link.dial is None:
            if self._loop.time() < link.retry_at or len(self._connections) >= TCP_CONNECTIONS_MAX:
                self.stats.dropped += len(datagrams)
                return
            link.dial = self._loop.create_task(self._dial(link))
        fitting = self._that_fit(datagrams, ENGINE_QUEUE_BYTES_MAX - link.waiting_bytes)
        link.waiting += fitting
        link.waiting_bytes += sum(map(record_bytes, fitting))

    def _that_fit(self, datagrams: Sequence[bytes], room_bytes: int) -> Sequence[bytes]:
        """The first datagrams that fit; the others are counted as dropped."""
        for count, datagram in enumerate(datagrams):
            room_bytes -= record_bytes(datagram)
            if room_bytes < 0:
                self.stats.dropped += len(datagrams) - count
                return datagrams[:count]
        return datagrams

    async def _dial(self, link: _Link) -> None:
        connection = Connection(self, link.address)
        try:
            async with asyncio.timeout(DIAL_S):
                sock = await self._connected(link.address)
                await self._loop.create_connection(lambda: connection, sock=sock, **self._secure)
                await connection.over.wait()
        except OSError as error:  # TimeoutError and ssl.SSLError are among them
            if isinstance(error, ssl.SSLError) and not link.failures:
                log.warning("%s does not agree on TLS (%s): check cert=, key= and ca=", _text(link.address), error)
        finally:
            if link.connection is not connection:
                connection.abort()
                self.lost(connection)  # uvloop does not say so when a dial is cancelled; twice does no harm
        if link.dial is asyncio.current_task():
            link.dial = None
            if link.connection is None:
                self._dial_failed(link)

    async def _connected(self, address: Address) -> socket.socket:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(CONNECT_S):
                await self._loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    def _dial_failed(self, link: _Link) -> None:
        self.stats.errors += 1
        if link.held is not None:
            self._adopt(link, link.held)
            return
        self.stats.dropped += len(link.waiting)
        link.waiting, link.waiting_bytes = [], 0
        self._back_off(link)

    def _back_off(self, link: _Link) -> None:
        pause_s = min(RETRY_S_MAX, RETRY_S_MIN * 2 ** min(link.failures, 16))
        link.failures += 1
        link.retry_at = self._loop.time() + pause_s

    def _must_wait(self, link: _Link, hello: Hello) -> bool:
        """True if a connection that a peer dialled must wait for the outcome of another one."""
        if link.connection is not None and link.connection.hello is not None:
            return link.connection.hello.incarnation == hello.incarnation
        return link.dial is not None and self._hello.address < hello.address

    def _hold_over(self, link: _Link, connection: Connection) -> None:
        if link.held is connection:
            self._adopt(link, connection)

    def _adopt(self, link: _Link, connection: Connection) -> None:
        """From now on this is the connection to that peer; waiting datagrams go out in one write."""
        before, held, dial = link.connection, link.held, link.dial
        link.connection, link.held, link.retry_at = connection, None, 0.0
        connection.over.set()
        if connection.dialled is None:
            connection.write(self._hello.encode())
            if dial is not None:
                link.dial = None
                dial.cancel()
        if held is not None and held is not connection:
            held.abort()
        if before is not None:
            before.finish()
        waiting, link.waiting, link.waiting_bytes = link.waiting, [], 0
        if waiting:
            connection.write(joined(waiting))
            self._count_out(waiting)

    def _too_late(self, connection: Connection) -> None:
        self.refused(connection, f"no hello within {HANDSHAKE_S:g} s")

    async def _all_gone(self) -> bool:
        if self._connections:
            self._gone.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), CLOSE_S)
        return not self._connections

    def _count_out(self, datagrams: Sequence[bytes]) -> None:
        self.stats.calls_out += 1
        self.stats.datagrams_out += len(datagrams)
        self.stats.bytes_out += sum(map(len, datagrams))


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
