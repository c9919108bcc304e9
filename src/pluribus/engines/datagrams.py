"""One non-blocking datagram socket on the running loop: the part that the UDP and the multicast engine share.

Sending tries the kernel at once; datagrams that the kernel does not take wait in a bounded queue and go out when the
socket is writable again. Runs of equally long datagrams go out in one call where the kernel segments (UDP_SEGMENT,
Linux 4.18+), and come in joined where it coalesces (UDP_GRO); both matter only on paths much shorter than 64 KiB, so
``segment`` turns them on.

Datagrams that are longer than a packet of the network go as trains of segments (``trains``), which the same two calls
cut and join.

Loops without ``add_reader`` (Windows' proactor) get ``PlainDriver``: the same promises through asyncio's transport.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from time import monotonic
from typing import Any

from .._speed.wires import wire
from ..core.errors import TooLarge
from ..core.limits import (
    DATAGRAM_BYTES_MAX,
    DATAGRAMS_PER_WAKE_MAX,
    ENGINE_QUEUE_BYTES_MAX,
    KEPT_HEAP_BYTES,
    LONG_BYTES_LOOPBACK,
    PATH_BYTES_LOOPBACK,
    SEGMENTS_MAX,
    SOCKET_BUFFER_BYTES,
)
from ..core.ports import Address, Datagram, EngineStats
from .courtesy import FLOW_BYTES_MIN, Courtesy
from .trains import MARKED, Cutter, Joiner

log = logging.getLogger(__name__)

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
BUSY_S = 50e-6
SMALL_BYTES = 2_048
SO_RCVBUFFORCE, SO_SNDBUFFORCE = 33, 32
_SEGMENT_SIZE = struct.Struct("=H")
_COALESCED_SIZE = struct.Struct("=i")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_COALESCED_SIZE.size) if hasattr(socket, "CMSG_SPACE") else 0


class DatagramSocket:
    """Feeds lists of datagrams to ``receive``, counts in ``stats``, and calls ``has_room`` when the kernel is full, and
    when it has room again."""

    def __init__(
        self,
        sock: socket.socket,
        stats: EngineStats,
        receive: Callable[[list[Datagram]], None],
        has_room: Callable[[bool], None],
        *,
        segment: bool = False,
        packet_bytes: int = PATH_BYTES_LOOPBACK,
    ) -> None:
        """``segment``: let the kernel cut and join. ``packet_bytes``: longer datagrams go as trains."""
        self.sock = sock
        self._writable = True
        self._stats = stats
        self._receive = receive
        self._has_room = has_room
        self._queue: deque[tuple[bytes, Address]] = deque()
        self._queued_bytes = 0
        self._woken_at = 0.0
        self._courtesy = Courtesy()
        self._loop = asyncio.get_running_loop()
        teach_allocator()
        self._segment = segment and _turn_on_segmentation(sock)
        self._cutter = Cutter(packet_bytes, first_train())
        self._whole_bytes = packet_bytes
        self._joiner = Joiner()
        self._wire = wire(sock, LONG_BYTES_LOOPBACK)
        self._loop.add_reader(sock.fileno(), self._read_joined if self._segment else self._read)

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        if self._queue:
            self._enqueue(datagrams, to)
        elif len(datagrams) != 1 or len(datagrams[0]) > self._whole_bytes or datagrams[0][:1] == MARKED:
            self._send_cut(datagrams, to)
        else:
            try:
                size = self._wire.send(datagrams[0], to)
            except BlockingIOError:
                self._enqueue(datagrams, to)
            except OSError as error:
                self._failed(error, datagrams, to)
            else:
                stats = self._stats
                stats.bytes_out += size
                stats.calls_out += 1
                stats.datagrams_out += 1

    def _send_cut(self, datagrams: Sequence[bytes], to: Address) -> None:
        """Send datagrams that fit a packet in runs, as usual; each longer one as a train."""
        start = 0
        for at, datagram in enumerate(datagrams):
            if self._cutter.whole(datagram):
                continue
            if start < at:
                self._send_whole(datagrams[start:at], to)
            start = at + 1
            if self._queue:
                self._enqueue(datagrams[at:], to)
                return
            try:
                self._send_train(datagram, to)
            except BlockingIOError:
                self._enqueue(datagrams[at:], to)
                return
            except OSError as error:
                self._failed(error, [datagram], to)
        if start < len(datagrams):
            self._send_whole(datagrams[start:] if start else datagrams, to)

    def _send_train(self, datagram: bytes, to: Address) -> None:
        cutter = self._cutter
        buffers = cutter.cut(datagram)
        step = 2 * SEGMENTS_MAX if self._segment else 2
        cutting = [(SOL_UDP, UDP_SEGMENT, _SEGMENT_SIZE.pack(cutter.packet_bytes))] if self._segment else []
        for at in range(0, len(buffers), step):
            some = buffers[at : at + step]
            self.sock.sendmsg(some, cutting if len(some) > 2 else [], 0, to)
            self._stats.calls_out += 1
        self._stats.datagrams_out += 1
        self._stats.bytes_out += len(datagram)

    def _send_whole(self, datagrams: Sequence[bytes], to: Address) -> None:
        sent = 0
        stats = self._stats
        try:
            while sent < len(datagrams):
                run = self._equal_run(datagrams, sent) if self._segment else 1
                if run > 1:
                    size = len(datagrams[sent])
                    self.sock.sendmsg(
                        datagrams[sent : sent + run], [(SOL_UDP, UDP_SEGMENT, _SEGMENT_SIZE.pack(size))], 0, to
                    )
                else:
                    self._wire.send(datagrams[sent], to)
                sent += run
                stats.calls_out += 1
        except BlockingIOError:
            self._enqueue(datagrams[sent:], to)
        except OSError as error:
            self._failed(error, datagrams[sent:], to)
        stats.datagrams_out += sent
        stats.bytes_out += sum(map(len, datagrams)) if sent == len(datagrams) else sum(map(len, datagrams[:sent]))

    async def close(self) -> None:
        """Close. Waiting datagrams are sent if the kernel takes them now; the rest is counted as dropped."""
        if self.sock.fileno() < 0:
            return
        self._loop.remove_reader(self.sock.fileno())
        self._loop.remove_writer(self.sock.fileno())
        with suppress(OSError):
            self._drain()
        self._stats.dropped += len(self._queue)
        self._queue.clear()
        self._wire.close()
        self.sock.close()

    def _equal_run(self, datagrams: Sequence[bytes], start: int) -> int:
        """How many datagrams from ``start`` on one segmented call takes: equally long ones, and a shorter one at the
        end."""
        size = len(datagrams[start])
        most = min(len(datagrams) - start, SEGMENTS_MAX, DATAGRAM_BYTES_MAX // max(size, 1))
        run = 1
        while run < most and len(datagrams[start + run]) == size:
            run += 1
        if run < most and len(datagrams[start + run]) < size:
            run += 1
        return run

    def _failed(self, error: OSError, datagrams: Sequence[bytes], to: Address) -> None:
        self._stats.errors += 1
        if self._segment and error.errno in (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.EMSGSIZE):
            log.info("the kernel refuses to segment (%s): sending one by one from now on", error)
            self._segment = False
            self.send(datagrams, to)
            return
        if error.errno == errno.EMSGSIZE:
            raise TooLarge(f"a datagram of {len(datagrams[0])} bytes does not fit the path: lower path= in the URL")
        # Anything else is the network's: a peer's closed port, a route that went away. Best effort counts and goes on.
        self._stats.dropped += len(datagrams)

    def _enqueue(self, datagrams: Sequence[bytes], to: Address) -> None:
        for datagram in datagrams:
            if self._queued_bytes + len(datagram) > ENGINE_QUEUE_BYTES_MAX:
                self._stats.dropped += 1
                continue
            self._queue.append((datagram, to))
            self._queued_bytes += len(datagram)
        if self._writable:
            self._writable = False
            self._has_room(False)
            self._loop.add_writer(self.sock.fileno(), self._write)

    def _write(self) -> None:
        try:
            self._drain()
        except BlockingIOError:
            return
        self._loop.remove_writer(self.sock.fileno())
        self._writable = True
        self._has_room(True)

    def _drain(self) -> None:
        while self._queue:
            datagram, to = self._queue[0]
            try:
                if not self._cutter.whole(datagram):
                    self._send_train(datagram, to)
                else:
                    self._wire.send(datagram, to)
                    self._stats.calls_out += 1
                    self._stats.datagrams_out += 1
                    self._stats.bytes_out += len(datagram)
            except BlockingIOError:
                raise
            except OSError:
                self._stats.errors += 1
                self._stats.dropped += 1
            self._queue.popleft()
            self._queued_bytes -= len(datagram)

    def _read(self) -> None:
        # One small datagram after a pause is mostly alone: asking for another would be a call for nothing.
        woken_at, self._woken_at = self._woken_at, monotonic()
        busy = self._woken_at - woken_at < BUSY_S
        try:
            got = self._wire.receive(DATAGRAMS_PER_WAKE_MAX, 0 if busy else SMALL_BYTES)
        except OSError:  # an ICMP error of an earlier send; nothing was received by it
            self._stats.errors += 1
            return
        if len(got) > 1 or (got and got[0][0][:1] == MARKED):
            got = self._joiner.whole(got)
        if got:
            stats = self._stats
            stats.datagrams_in += len(got)
            size = len(got[0][0]) if len(got) == 1 else sum([len(data) for data, _ in got])
            stats.bytes_in += size
            self._receive(got)
            if size >= FLOW_BYTES_MIN:
                self._courtesy.give_way()

    def _read_joined(self) -> None:
        got: list[Datagram] = []
        recvmsg = self.sock.recvmsg
        woken_at, self._woken_at = self._woken_at, monotonic()
        busy = self._woken_at - woken_at < BUSY_S
        try:
            for _ in range(DATAGRAMS_PER_WAKE_MAX):
                data, ancillary, _flags, source = recvmsg(DATAGRAM_BYTES_MAX, _ANCILLARY_BYTES)
                source = source[:2]
                size = _coalesced_size(ancillary) or len(data)
                self._joiner.take(data, size, source, got)
                if not busy and len(data) < SMALL_BYTES:
                    break
        except BlockingIOError:
            pass
        except OSError:
            self._stats.errors += 1
        if got:
            self._stats.datagrams_in += len(got)
            size = sum([len(data) for data, _ in got])
            self._stats.bytes_in += size
            self._receive(got)
            if size >= FLOW_BYTES_MIN:
                self._courtesy.give_way()


class PlainDriver(asyncio.DatagramProtocol):
    """The same socket through asyncio's own transport, for loops that cannot watch a file descriptor."""

    def __init__(
        self,
        stats: EngineStats,
        receive: Callable[[list[Datagram]], None],
        has_room: Callable[[bool], None],
        packet_bytes: int = PATH_BYTES_LOOPBACK,
    ) -> None:
        self._stats = stats
        self._receive = receive
        self._has_room = has_room
        self._cutter = Cutter(packet_bytes, first_train())
        self._joiner = Joiner()
        self._transport: asyncio.DatagramTransport | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        stats: EngineStats,
        receive: Callable[[list[Datagram]], None],
        has_room: Callable[[bool], None],
        packet_bytes: int = PATH_BYTES_LOOPBACK,
    ) -> PlainDriver:
        loop = asyncio.get_running_loop()
        made = partial(cls, stats, receive, has_room, packet_bytes)
        _transport, driver = await loop.create_datagram_endpoint(made, sock=sock)
        return driver

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            self._stats.dropped += len(datagrams)
            return
        for datagram in datagrams:
            if transport.get_write_buffer_size() > ENGINE_QUEUE_BYTES_MAX:  # type: ignore[attr-defined]
                self._stats.dropped += 1
                continue
            self._send_one(datagram, to, transport)
            self._stats.datagrams_out += 1
            self._stats.bytes_out += len(datagram)

    def _send_one(self, datagram: bytes, to: Address, transport: asyncio.DatagramTransport) -> None:
        if self._cutter.whole(datagram):
            transport.sendto(datagram, to)
            self._stats.calls_out += 1
            return
        buffers = self._cutter.cut(datagram)
        for at in range(0, len(buffers), 2):
            transport.sendto(b"".join(buffers[at : at + 2]), to)
            self._stats.calls_out += 1

    async def close(self) -> None:
        """The transport closes its socket in a later turn of the loop; only then is the port free again."""
        if self._transport is not None:
            self._transport.close()
            await self._lost

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        got = self._joiner.whole([(data, addr[:2])])
        for whole, _ in got:
            self._stats.datagrams_in += 1
            self._stats.bytes_in += len(whole)
        if got:
            self._receive(got)

    def error_received(self, exc: Exception) -> None:
        self._stats.errors += 1

    def pause_writing(self) -> None:
        self._has_room(False)

    def resume_writing(self) -> None:
        self._has_room(True)


def ask_for_buffers(sock: socket.socket) -> int:
    """Ask for large buffers, with privilege if the process has it; returns the size that the receiving side can really
    hold."""
    for forced, plain in ((SO_RCVBUFFORCE, socket.SO_RCVBUF), (SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BUFFER_BYTES)
        except OSError:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER_BYTES)
    # Linux doubles the request for its own book-keeping, and charges a datagram up to twice its length.
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 4


@cache
def kernel_segments() -> bool:
    """True if this machine's kernel cuts and joins datagrams; tested on a socket of its own."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return _turn_on_segmentation(probe)
    return False


@cache
def teach_allocator() -> None:
    """The C library hands the top of its heap back to the kernel whenever 128 KiB are free there, and every long
    datagram would have the kernel clear its pages again. One large block that is freed at once makes it keep twice as
    much. Other libraries ignore it."""
    bytearray(KEPT_HEAP_BYTES // 2)


def first_train() -> int:
    """A random first number, so that a process that takes the port of another is not mistaken for it."""
    return int.from_bytes(os.urandom(4), "big")


def _turn_on_segmentation(sock: socket.socket) -> bool:
    """Coalesced receiving goes with segmented sending; a kernel without either is served one by one."""
    if not hasattr(sock, "sendmsg"):
        return False
    try:
        sock.getsockopt(SOL_UDP, UDP_SEGMENT)
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


def _coalesced_size(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == SOL_UDP and kind == UDP_GRO and len(data) >= _COALESCED_SIZE.size:
            return int(_COALESCED_SIZE.unpack_from(data)[0])
    return 0
