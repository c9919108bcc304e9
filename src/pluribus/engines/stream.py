"""One TCP connection: records in, records out. ``links`` decides its peer and its use.

A record is a length of four bytes, big-endian, and that many bytes. The first record of each direction is a ``Hello``:
the sender, by listening address and incarnation, and its bus. Every later record is a datagram.

Reading fills one buffer that the connection owns; all records that a read completed go up in one list. A length is
checked before room is made for it, and until the hello came the buffer is tiny: a stranger costs half a KiB and a place
among ``TCP_CONNECTIONS_MAX``, for a few seconds. A peer that sends bytes which are no record is cut off and counted;
nothing that a peer does raises into the loop.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, cast

import msgspec

from ..core.errors import MalformedFrame
from ..core.limits import DATAGRAM_BYTES_MAX
from ..core.ports import Address, Datagram
from .binding import is_number

MAGIC = b"PLU1"
HELLO_BYTES_MAX = 128
HELLO_BUFFER_BYTES = 512
READ_BUFFER_BYTES = 256 << 10
HIGH_WATER_BYTES = 1 << 20
"""Above this, data should wait for ``room``; control may go on up to ``ENGINE_QUEUE_BYTES_MAX``."""
UNANSWERED_MS_MAX = 15_000
"""Seconds after which bytes that the peer does not read end the connection, so that a stalled peer does not delay the
others."""

_LENGTH = struct.Struct(">I")
_HELLO = struct.Struct(">4sQQH")
_RECORD_BYTES_MAX = _LENGTH.size + DATAGRAM_BYTES_MAX


class Hello(msgspec.Struct, frozen=True):
    """The sender of a connection. The incarnation is random: a restarted process at the same address is another
    peer."""

    bus: int
    incarnation: int
    address: Address

    def encode(self) -> bytes:
        body = _HELLO.pack(MAGIC, self.bus, self.incarnation, self.address[1]) + self.address[0].encode()
        return _LENGTH.pack(len(body)) + body

    @classmethod
    def decode(cls, body: bytes) -> Hello:
        """Decode a hello. The host must be numeric: a stranger must not make us ask a name server."""
        try:
            magic, bus, incarnation, port = _HELLO.unpack_from(body)
            host = body[_HELLO.size :].decode("ascii")
        except (struct.error, ValueError) as error:
            raise MalformedFrame(f"not a hello ({error})") from None
        if magic != MAGIC or not port or not is_number(host):
            raise MalformedFrame(f"not a hello of this version ({magic!r}, of {host!r}, port {port})")
        return cls(bus, incarnation, (host, port))


class Owner(Protocol):
    """The receiver of a connection's reports."""

    def made(self, connection: Connection) -> None: ...
    def greeted(self, connection: Connection, hello: Hello) -> None: ...
    def received(self, datagrams: list[Datagram], size_bytes: int) -> None: ...
    def refused(self, connection: Connection, reason: str) -> None: ...
    def paused(self, connection: Connection) -> None: ...
    def resumed(self, connection: Connection) -> None: ...
    def lost(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """``dialled`` is the address that we dialled, None if the peer dialled; ``hello`` is the peer's, once known."""

    def __init__(self, owner: Owner, dialled: Address | None) -> None:
        self.dialled = dialled
        self.hello: Hello | None = None
        self.made_at = 0.0
        self.deadline: asyncio.TimerHandle | None = None
        self.over = asyncio.Event()  # it was taken into use, or is lost
        self.cut = False  # nothing is written any more
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(HELLO_BUFFER_BYTES))
        self._at = 0  # where the first incomplete record begins
        self._end = 0  # where the bytes read end

    def write(self, records: bytes) -> None:
        if self._transport is not None and not self.cut:
            self._transport.write(records)

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def finish(self) -> None:
        """Flush, send the end of the stream, and close when the other side has read everything.

        Closing at once would not do: a kernel that still has unread bytes answers with a reset, which throws away bytes
        on their way to the peer.
        """
        transport = self._transport
        if transport is None or self.cut:
            return
        self.cut = True
        if transport.can_write_eof():
            with suppress(OSError):
                transport.write_eof()
        else:
            transport.close()  # TLS has an ending of its own

    def abort(self) -> None:
        self.cut = True
        if self.deadline is not None:
            self.deadline.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.cut:  # the dial was given up while the kernel was at it
            self._transport.abort()
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        sock = transport.get_extra_info("socket")
        with suppress(OSError, AttributeError):  # a refinement of Linux
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS_MAX)
        self._owner.made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self.hello is None and not self._greet():
            return
        datagrams, size_bytes = self._take_records()
        if datagrams:
            self._owner.received(datagrams, size_bytes)

    def eof_received(self) -> None:
        """The transport closes itself when it has written the rest."""

    def pause_writing(self) -> None:
        self._owner.paused(self)

    def resume_writing(self) -> None:
        self._owner.resumed(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.cut = True
        if self.deadline is not None:
            self.deadline.cancel()
        self._owner.lost(self)

    def _greet(self) -> bool:
        """Take the hello if it is complete; true when datagrams may follow."""
        view, end = self._view, self._end
        if end < _LENGTH.size:
            return False
        stop = _LENGTH.size + _LENGTH.unpack_from(view)[0]
        if stop > HELLO_BYTES_MAX:
            self._refuse(f"a first record of {stop} bytes is no hello")
            return False
        if end < stop:
            return False
        try:
            hello = Hello.decode(bytes(view[_LENGTH.size : stop]))
        except MalformedFrame as error:
            self._refuse(str(error))
            return False
        self.hello = hello
        self._view = memoryview(bytearray(READ_BUFFER_BYTES))
        self._end = end - stop
        self._view[: self._end] = view[stop:end]
        self._owner.greeted(self, hello)
        return not self.cut

    def _take_records(self) -> tuple[list[Datagram], int]:
        assert self.hello is not None
        view, at, end, peer = self._view, self._at, self._end, self.hello.address
        got: list[Datagram] = []
        size_bytes = 0
        while end - at >= _LENGTH.size:
            size = _LENGTH.unpack_from(view, at)[0]
            if size > DATAGRAM_BYTES_MAX:
                self._refuse(f"a record of {size} bytes exceeds {DATAGRAM_BYTES_MAX}")
                return got, size_bytes
            stop = at + _LENGTH.size + size
            if stop > end:
                break
            got.append((bytes(view[at + _LENGTH.size : stop]), peer))
            size_bytes += size
            at = stop
        if at == end:
            at = end = 0
        elif len(view) - at < _RECORD_BYTES_MAX:  # the record that has begun might not fit behind its own beginning
            view[: end - at] = view[at:end]
            at, end = 0, end - at
        self._at, self._end = at, end
        return got, size_bytes

    def _refuse(self, reason: str) -> None:
        self._at = self._end = 0
        self._owner.refused(self, reason)
        self.abort()


def joined(datagrams: Sequence[bytes]) -> bytes:
    """The records of these datagrams, for one write."""
    parts: list[bytes] = []
    for datagram in datagrams:
        parts.append(_LENGTH.pack(len(datagram)))
        parts.append(datagram)
    return b"".join(parts)


def record_bytes(datagram: bytes) -> int:
    return _LENGTH.size + len(datagram)
