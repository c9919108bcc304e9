"""IP multicast: one send reaches every member. On the loopback interface unless the URL says otherwise.

Two sockets: ``_direct`` has the engine's own address, sends everything and receives what is for this member alone;
``_shared`` receives the group's traffic. The kernel loops a member's own datagrams back to its ``_shared`` socket; a
socket filter there throws them away before they are copied to us, and ``_foreign`` catches them where filters are not
to be had.

Address and port of the group follow from the bus's name, so that a name is all that members must share. Ports lie below
the kernel's range of automatic ports, so that no unrelated socket is given one of them.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b

from ..core.errors import BadUrl, NoInterface, Unavailable
from ..core.ports import Address, Datagram, EngineStats
from ..core.url import BusUrl, whole_number
from .binding import (
    DATAGRAM_HEARD_S,
    bound_socket,
    check_dialable,
    is_loopback,
    is_within_reach,
    packet_option,
    path_option,
)
from .datagrams import DatagramSocket, PlainDriver, ask_for_buffers
from .udp import check_sizes, drive, driver_option, longest, notes_room

PORT_FIRST, PORT_COUNT = 20_000, 10_000
SO_ATTACH_FILTER = 26


class MulticastEngine:
    name = "multicast"
    broadcasts = True
    heard_s = DATAGRAM_HEARD_S

    def __init__(
        self, group: Address, interface: str, sizes: tuple[int | None, int], ttl: int, *, plain: bool = False
    ) -> None:
        self.group = group
        self.path_bytes, self.long_bytes = longest(*sizes)
        self._packet_bytes = sizes[1]
        self.buffer_bytes = 0
        self.writable = True
        self.address: Address = ("", 0)
        self.stats = EngineStats()
        self._interface = interface
        self._ttl = ttl
        self._plain = plain
        self._direct: DatagramSocket | PlainDriver | None = None
        self._shared: DatagramSocket | PlainDriver | None = None
        self._receive: Callable[[list[Datagram]], None] = lambda _: None

    @classmethod
    def from_url(cls, url: BusUrl, options: dict[str, str]) -> MulticastEngine:
        """Options: ``interface=ADDRESS``, ``group=ADDRESS``, ``port=PORT``, ``ttl=HOPS``, ``path=``, ``packet=``,
        ``driver=``."""
        interface = options.pop("interface", "127.0.0.1")
        check_dialable([(interface, 0)])
        default_group, default_port = group_of(url.bus)
        group = options.pop("group", default_group)
        try:
            if not ipaddress.IPv4Address(group).is_multicast:
                raise ValueError
        except ValueError:
            raise BadUrl(f"{url.text!r}: group={group} is no IPv4 multicast address; use one in 239.0.0.0/8") from None
        port = _number(options.pop("port", str(default_port)), "port", 1, 65_535, url)
        ttl = _number(options.pop("ttl", "0" if is_loopback(interface) else "1"), "ttl", 0, 255, url)
        sizes = (path_option(options, url), packet_option(options, url, interface))
        return cls((group, port), interface, sizes, ttl, plain=driver_option(options, url))

    @property
    def places(self) -> tuple[Address, ...]:
        """Includes the interface: the same group on another interface is another bus."""
        return ((f"{self.group[0]}%{self._interface}", self.group[1]),)

    @property
    def local(self) -> bool:
        return is_loopback(self._interface)

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        self._receive = receive
        direct = bound_socket(socket.SOCK_DGRAM, (self._interface, 0))
        self.address = direct.getsockname()[:2]
        try:
            interface = socket.inet_aton(self._interface)
            direct.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            direct.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self._ttl)
            direct.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            shared = self._join(interface)
        except OSError as error:
            direct.close()
            raise NoInterface(
                f"multicast does not work on interface {self._interface} ({error.strerror or error}): "
                "`pluribus doctor` tells more, udp:// works without it"
            ) from None
        self.buffer_bytes = min(ask_for_buffers(direct), ask_for_buffers(shared))
        own_filtered = _refuse_own(shared, self.address)
        heard = receive if own_filtered else self._foreign
        sizes, told = (self.path_bytes, self._packet_bytes), notes_room(self, room)
        self._direct = await drive(direct, self.stats, receive, told, plain=self._plain, sizes=sizes)
        self._shared = await drive(shared, self.stats, heard, told, plain=self._plain, sizes=sizes)

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        check_sizes(datagrams, self.long_bytes)
        if not is_within_reach(to, self.address):
            self.stats.dropped += len(datagrams)
        elif self._direct is not None:
            self._direct.send(datagrams, to)

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        if self._direct is not None:
            if max(map(len, datagrams), default=0) > self.long_bytes:
                check_sizes(datagrams, self.long_bytes)
            self._direct.send(datagrams, self.group)

    def set_peers(self, peers: Sequence[Address]) -> None:
        """Nothing to do: the medium reaches every member by itself."""

    async def close(self) -> None:
        drivers, self._direct, self._shared = (self._direct, self._shared), None, None
        self.writable = True
        for driver in drivers:
            if driver is not None:
                await driver.close()

    def _join(self, interface: bytes) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Bound to the group, not to every address: other buses' groups on this port stay theirs.
            sock.bind(self.group)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(self.group[0]) + interface)
        except OSError as error:
            sock.close()
            if isinstance(error, PermissionError):
                raise Unavailable(f"cannot listen on {self.group[0]}:{self.group[1]}: use port= above 1024") from None
            raise
        return sock

    def _foreign(self, datagrams: list[Datagram]) -> None:
        others = [datagram for datagram in datagrams if datagram[1] != self.address]
        if others:
            self._receive(others)


def group_of(bus: str) -> Address:
    """The group address (in 239.192.0.0/14, for use inside an organisation) and port of a bus's name."""
    digest = int.from_bytes(blake2b(bus.encode(), digest_size=8).digest(), "big")
    host = ipaddress.IPv4Address(int(ipaddress.IPv4Address("239.192.0.0")) + digest % (1 << 18))
    return (str(host), PORT_FIRST + (digest >> 18) % PORT_COUNT)


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


def _refuse_own(sock: socket.socket, own: Address) -> bool:
    """Have the kernel drop datagrams from ``own``; false where it cannot."""
    load_word, load_half, jump_equal, answer, network = 0x20, 0x28, 0x15, 0x06, 0xFFF0_0000  # SKF_NET_OFF
    source = int(ipaddress.IPv4Address(own[0]))
    program = (_Instruction * 6)(
        _Instruction(load_word, 0, 0, network + 12),  # the IP header's source address
        _Instruction(jump_equal, 0, 2, source),
        _Instruction(load_half, 0, 0, 0),  # the UDP header's source port
        _Instruction(jump_equal, 1, 0, own[1]),
        _Instruction(answer, 0, 0, 0xFFFF_FFFF),
        _Instruction(answer, 0, 0, 0),
    )
    with suppress(OSError, AttributeError):
        described = struct.pack("HL", len(program), ctypes.addressof(program))
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)
        return True
    return False


def _number(text: str, what: str, low: int, high: int, url: BusUrl) -> int:
    number = whole_number(text)
    if number is None or not low <= number <= high:
        raise BadUrl(f"{url.text!r}: {what}={text} is out of range; use {low} to {high}")
    return number
