"""TCP: reliable while a connection lives, one connection for each pair of peers, TLS where the URL names certificates.

Datagrams to one peer arrive whole, in order and once, as long as the connection lasts. Datagrams under way when it
breaks are lost: layers above add reliability. ``send_all`` goes one by one to the URL's hosts and to the peers.

``stream`` is one connection and its bytes, ``listener`` accepts, ``links`` decides which connection leads to which
peer, ``tls`` reads certificates; here are the URL, the address and the port of ``core``.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from collections.abc import Callable, Sequence

import msgspec

from ..core.errors import AddressTaken, TooLarge, Unavailable
from ..core.ids import number_of
from ..core.limits import ENGINE_QUEUE_BYTES_MAX, PATH_BYTES_LOOPBACK
from ..core.ports import Address, Datagram, EngineStats
from ..core.url import BusUrl
from .binding import bind_by_url, bind_option, check_dialable, is_loopback
from .links import TCP_HEARD_S, Links
from .listener import Listener
from .resolve import numeric
from .stream import Hello, joined
from .tls import Tls, tls_option

LISTEN_BACKLOG = 1_024


class TcpEngine:
    name = "tcp"
    broadcasts = False
    heard_s = TCP_HEARD_S

    def __init__(self, url: BusUrl, bind: Address | None, tls: Tls | None) -> None:
        self.address: Address = ("", 0)
        self.path_bytes = self.long_bytes = PATH_BYTES_LOOPBACK
        self.buffer_bytes = ENGINE_QUEUE_BYTES_MAX
        self.stats = EngineStats()
        self._url = url
        self._bind = bind
        self._tls = tls
        self._seeds: tuple[Address, ...] = ()
        self._targets: tuple[Address, ...] = ()
        self._links: Links | None = None
        self._listener: Listener | None = None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def from_url(cls, url: BusUrl, options: dict[str, str]) -> TcpEngine:
        """Options: ``bind=HOST:PORT``; ``cert=``, ``key=`` and ``ca=`` (PEM files) for TLS."""
        bind = bind_option(options, url)
        check_dialable((bind,) if bind else url.hosts)
        return cls(url, bind, tls_option(options, url))

    @property
    def places(self) -> tuple[Address, ...]:
        return self._seeds or (self.address,)

    @property
    def local(self) -> bool:
        return is_loopback(self.address[0])

    @property
    def writable(self) -> bool:
        return self._links is None or self._links.writable

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        hosts = await numeric(self._url.hosts)
        sock = self._listening(msgspec.structs.replace(self._url, hosts=hosts))
        self.address = sock.getsockname()[:2]
        hello = Hello(number_of(self._url.bus), secrets.randbits(64), self.address)
        self._links = Links(hello, self.stats, receive, room, self._tls.client if self._tls else None)
        self._seeds = tuple(address for address in hosts if address[1])
        self.set_peers(())
        self._listener = Listener(sock, self._links, self._tls.server if self._tls else None)

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        self._send(datagrams, (to,))

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        self._send(datagrams, self._targets)

    def set_peers(self, peers: Sequence[Address]) -> None:
        """Seeds stay targets for ever: a seed that restarts is found again."""
        targets = tuple(dict.fromkeys(a for a in (*self._seeds, *peers) if a != self.address))
        for address in set(self._targets).difference(targets):
            if self._links is not None:
                self._links.give_up(address)
        self._targets = targets

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    def _send(self, datagrams: Sequence[bytes], targets: Sequence[Address]) -> None:
        for datagram in datagrams:
            if len(datagram) > self.path_bytes:
                raise TooLarge(
                    f"a datagram of {len(datagram)} bytes exceeds the path of {self.path_bytes}: cut it to fit"
                )
        if not datagrams:
            return
        if self._links is None:
            self.stats.dropped += len(datagrams) * len(targets)
            return
        records = joined(datagrams)
        for target in targets:
            self._links.put(target, datagrams, records)

    def _listening(self, url: BusUrl) -> socket.socket:
        while True:
            sock = bind_by_url(socket.SOCK_STREAM, url, self._bind)
            host, port = sock.getsockname()[:2]
            try:
                sock.listen(LISTEN_BACKLOG)
            except OSError as error:
                sock.close()
                if error.errno != errno.EADDRINUSE:
                    raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from None
                # Linux lets two programs bind the same address as long as neither listens; the other one was faster,
                # and the next attempt will find the address taken.
                if self._bind is not None:
                    raise AddressTaken(
                        f"{host}:{port} is taken by another program: choose another port, or 0 for any free one"
                    ) from None
            else:
                return sock

    async def _close(self) -> None:
        if self._listener is not None and self._links is not None:
            await self._listener.close()
            await self._links.close()
