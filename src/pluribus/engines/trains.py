"""Trains: a datagram of up to 60,000 bytes over packets of 1,500, cut and joined mostly by the kernel.

Theory of operation
-------------------
The layers above have costs for each datagram, so datagrams should be long; the
packets of a network are short. IP would cut a long datagram itself, but its fragments are dropped by many a firewall
and put together by kernels within narrow bounds. So the engine cuts, and the kernel does the work: a long datagram is
handed over in one call, with a head before every segment (UDP_SEGMENT), leaves as packets that each carry a head, and
mostly arrives in one call, joined again (UDP_GRO).

A head says which train its segment is of, its place and how many there are. Segments that come together, in order and
complete, are joined at once. Others wait for the rest: bounded in number and bytes, the oldest gives way. One lost
segment loses its datagram, as with fragments of IP; a reliable layer above repeats it.

A datagram that begins like a head is sent as a train of one, so nothing is mistaken.

The loopback interface carries datagrams of 60,000 bytes, and trains of them as well: a few long messages then share a
frame, and its cost in the layers above is paid once for all of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from struct import Struct

from ..core.limits import LONG_BYTES_LOOPBACK, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, TRAINS_MAX
from ..core.ports import Address, Datagram

MARK = 0xC1
"""Never used by msgpack, so no frame begins with it."""
MARKED = bytes([MARK])
_HEAD = Struct(">BBHHI")
HEAD_BYTES = _HEAD.size
VERSION = 1

Buffers = list[bytes | memoryview]
"""Heads and their segments, alternating: segments without a copy."""


class Cutter:
    """The sending side of one socket. ``packet_bytes`` is the size of a packet, heads included."""

    def __init__(self, packet_bytes: int, first: int) -> None:
        self.packet_bytes = packet_bytes
        self._numbers = count(first)

    def whole(self, datagram: bytes) -> bool:
        """True if a datagram is sent as it is."""
        return len(datagram) <= self.packet_bytes and datagram[:1] != MARKED

    def cut(self, datagram: bytes) -> Buffers:
        step = self.packet_bytes - HEAD_BYTES
        view, total = memoryview(datagram), max(-(-len(datagram) // step), 1)
        number, head = next(self._numbers) & 0xFFFF_FFFF, _HEAD.pack
        buffers: Buffers = []
        for index in range(total):
            buffers.append(head(MARK, VERSION, index, total, number))
            buffers.append(view[index * step : (index + 1) * step])
        return buffers


class _Partial:
    __slots__ = ("segments", "size", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.size = 0
        self.segments: dict[int, memoryview] = {}


class Joiner:
    """The receiving side of one socket."""

    def __init__(self) -> None:
        self._partial: dict[tuple[Address, int], _Partial] = {}
        self._bytes = 0
        self.lost = 0
        """Datagrams that were given up because not all of their segments came."""

    def whole(self, came: list[Datagram]) -> list[Datagram]:
        """The datagrams among those that came one by one: mostly all of them."""
        if not any(data[:1] == MARKED for data, _ in came):
            return came
        got: list[Datagram] = []
        for data, source in came:
            self.take(data, len(data), source, got)
        return got

    def take(self, data: bytes, size: int, source: Address, got: list[Datagram]) -> None:
        """Take the bytes of one call, in segments of ``size`` bytes, the last perhaps shorter; datagrams go to
        ``got``."""
        if not data:
            got.append((data, source))
            return
        if data[0] == MARK:
            whole = _joined(data, size)
            if whole is not None:
                got.append((whole, source))
                return
        for at in range(0, len(data), size):
            segment = data[at : at + size] if size < len(data) else data
            if segment[0] != MARK:
                got.append((segment, source))
            elif len(segment) >= HEAD_BYTES:
                self._add(segment, source, got)

    def _add(self, segment: bytes, source: Address, got: list[Datagram]) -> None:
        _, version, index, total, number = _HEAD.unpack_from(segment)
        if version != VERSION or not index < total <= TRAIN_SEGMENTS_MAX:
            return
        key = (source, number)
        partial = self._partial.get(key)
        if partial is None:
            partial = self._partial[key] = _Partial(total)
        if partial.total != total or index in partial.segments:
            return
        partial.segments[index] = memoryview(segment)[HEAD_BYTES:]
        partial.size += len(segment)
        self._bytes += len(segment)
        if len(partial.segments) == total:
            self._forget(key)
            whole = b"".join(partial.segments[index] for index in range(total))
            if len(whole) <= LONG_BYTES_LOOPBACK:
                got.append((whole, source))
        while len(self._partial) > TRAINS_MAX or self._bytes > TRAIN_BYTES_MAX:
            self.lost += 1
            self._forget(next(iter(self._partial)))

    def _forget(self, key: tuple[Address, int]) -> None:
        self._bytes -= self._partial.pop(key).size

    def validate(self) -> None:
        assert len(self._partial) <= TRAINS_MAX and self._bytes <= TRAIN_BYTES_MAX
        assert self._bytes == sum(partial.size for partial in self._partial.values())
        assert all(0 < len(partial.segments) < partial.total for partial in self._partial.values())


def _joined(data: bytes, size: int) -> bytes | None:
    """The datagram, if this is one whole train in order and nothing else."""
    segments = -(-len(data) // size)
    if len(data) - (segments - 1) * size < HEAD_BYTES or size < HEAD_BYTES:
        return None
    _, _, _, total, number = _HEAD.unpack_from(data)
    if total != segments:
        return None
    heads = _heads(size).iter_unpack(memoryview(data)[: (segments - 1) * size])
    for at, head in enumerate(heads):
        if head != (MARK, VERSION, at, total, number):
            return None
    if _HEAD.unpack_from(data, (segments - 1) * size) != (MARK, VERSION, segments - 1, total, number):
        return None
    view = memoryview(data)
    return b"".join([view[at + HEAD_BYTES : at + size] for at in range(0, len(data), size)])


@lru_cache(maxsize=16)
def _heads(size: int) -> Struct:
    """Heads of segments of a size, one behind the other."""
    return Struct(f"{_HEAD.format}{size - HEAD_BYTES}x")
