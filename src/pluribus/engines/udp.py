"""UDP: best effort, the default between known addresses. One socket sends and receives; ``send_all`` goes one by
one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from ..core.errors import BadUrl, TooLarge
from ..core.limits import LONG_BYTES_LOOPBACK, PATH_BYTES_LOOPBACK
from ..core.ports import Address, Datagram, EngineStats
from ..core.url import BusUrl
from .binding import (
    DATAGRAM_HEARD_S,
    bind_by_url,
    bind_option,
    check_dialable,
    is_loopback,
    is_within_reach,
    packet_option,
    path_option,
)
from .datagrams import DatagramSocket, PlainDriver, ask_for_buffers, kernel_segments
from .resolve import numeric


class UdpEngine:
    name = "udp"
    broadcasts = False
    heard_s = DATAGRAM_HEARD_S

    def __init__(
        self, url: BusUrl, bind: Address | None, path_bytes: int | None, packet_bytes: int, *, plain: bool = False
    ) -> None:
        self._url = url
        self._bind = bind
        self._plain = plain
        self._packet_bytes = packet_bytes
        self._driver: DatagramSocket | PlainDriver | None = None
        self._seeds = url.hosts
        self._targets: tuple[Address, ...] = ()
        self.address: Address = ("", 0)
        self.path_bytes, self.long_bytes = longest(path_bytes, packet_bytes)
        self.buffer_bytes = 0
        self.writable = True
        self.stats = EngineStats()

    @classmethod
    def from_url(cls, url: BusUrl, options: dict[str, str]) -> UdpEngine:
        """Options: ``bind=HOST:PORT``, ``path=BYTES``, ``packet=BYTES``, ``driver=fast|plain``."""
        bind = bind_option(options, url)
        check_dialable((bind,) if bind else url.hosts)
        packet_bytes = packet_option(options, url, bind[0] if bind else url.hosts[0][0])
        return cls(url, bind, path_option(options, url), packet_bytes, plain=driver_option(options, url))

    @property
    def places(self) -> tuple[Address, ...]:
        return self._seeds or (self.address,)

    @property
    def local(self) -> bool:
        return is_loopback(self.address[0])

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        hosts = await numeric(self._url.hosts)  # first: binding to a name would hold the loop up for a name server
        self._seeds = tuple(host for host in hosts if host[1])  # port 0 is nobody
        sock = bind_by_url(socket.SOCK_DGRAM, msgspec.structs.replace(self._url, hosts=hosts), self._bind)
        self.buffer_bytes = ask_for_buffers(sock)
        self.address = sock.getsockname()[:2]
        self.set_peers(())
        sizes = (self.path_bytes, self._packet_bytes)
        told = notes_room(self, room)
        self._driver = await drive(sock, self.stats, receive, told, plain=self._plain, sizes=sizes)

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        check_sizes(datagrams, self.long_bytes)
        if not is_within_reach(to, self.address):
            self.stats.dropped += len(datagrams)
        elif self._driver is not None:
            self._driver.send(datagrams, to)

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        driver = self._driver
        if driver is not None:
            if max(map(len, datagrams), default=0) > self.long_bytes:
                check_sizes(datagrams, self.long_bytes)
            for target in self._targets:
                driver.send(datagrams, target)

    def set_peers(self, peers: Sequence[Address]) -> None:
        """Seeds stay targets for ever: a seed that restarts is found again."""
        named = dict.fromkeys(a for a in (*self._seeds, *peers) if a != self.address)
        self._targets = tuple(address for address in named if is_within_reach(address, self.address))
        self.stats.dropped += len(named) - len(self._targets)

    async def close(self) -> None:
        if self._driver is not None:
            driver, self._driver = self._driver, None
            self.writable = True
            await driver.close()


class Writable(Protocol):
    writable: bool


def notes_room(engine: Writable, room: Callable[[], None]) -> Callable[[bool], None]:
    """How an engine's driver reports whether the kernel takes more; ``room`` is called when it does again."""

    def note(writable: bool) -> None:
        engine.writable = writable
        if writable:
            room()

    return note


async def drive(
    sock: socket.socket,
    stats: EngineStats,
    receive: Callable[[list[Datagram]], None],
    has_room: Callable[[bool], None],
    *,
    plain: bool,
    sizes: tuple[int, int],
) -> DatagramSocket | PlainDriver:
    """The fast driver; the plain one if the URL asks for it or the loop cannot watch a socket. ``sizes`` are those of
    the longest datagram and of a packet."""
    path_bytes, packet_bytes = sizes
    if not plain:
        loop = asyncio.get_running_loop()
        try:
            loop.remove_reader(sock.fileno())
        except NotImplementedError:
            plain = True
    if plain:
        return await PlainDriver.open(sock, stats, receive, has_room, packet_bytes)
    segment = min(path_bytes, packet_bytes) < PATH_BYTES_LOOPBACK // 4
    return DatagramSocket(sock, stats, receive, has_room, segment=segment, packet_bytes=packet_bytes)


def longest(path_bytes: int | None, packet_bytes: int) -> tuple[int, int]:
    """The length that the URL asks for; else long datagrams where the kernel cuts them into packets, and packets
    elsewhere. The longest datagrams are used only on networks that hardly ever lose a packet, because one lost packet
    loses the whole datagram."""
    if path_bytes is not None:
        return path_bytes, path_bytes
    if packet_bytes == PATH_BYTES_LOOPBACK:
        return PATH_BYTES_LOOPBACK, LONG_BYTES_LOOPBACK
    path_bytes = PATH_BYTES_LOOPBACK if kernel_segments() else packet_bytes
    return path_bytes, path_bytes


def check_sizes(datagrams: Sequence[bytes], path_bytes: int) -> None:
    for datagram in datagrams:
        if len(datagram) > path_bytes:
            raise TooLarge(
                f"a datagram of {len(datagram)} bytes exceeds the path of {path_bytes}: cut it, or raise path="
            )


def driver_option(options: dict[str, str], url: BusUrl) -> bool:
    """True if the URL asks for the plain driver."""
    driver = options.pop("driver", "fast")
    if driver not in ("fast", "plain"):
        raise BadUrl(f"{url.text!r}: driver={driver} is unknown; use fast or plain")
    return driver == "plain"
