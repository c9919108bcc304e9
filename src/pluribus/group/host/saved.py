"""The state of machines in the memory of a group on its way to a joiner, in pieces that are encoded when they are
fetched.

The state is of the moment at which it was frozen, although commands go on to be applied while it travels: a part that
is about to change is encoded first (``parts.py``). Rows never change, so only the list of them is copied. So the
loop of the provider does little at a time, however large the state is; the joiner takes the whole state in one turn.

Each piece has its length in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from struct import Struct

import msgspec

from .host import Host

PIECE_BYTES = 256 << 10
"""Rows of about so many bytes are one piece; a longer row is a piece of its own."""


class SavedHead(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The first piece: the log's places and its time."""

    index: int
    row: int
    time_us: int


class SavedPart(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A part of the host's state."""

    name: str
    data: bytes


class SavedRows(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Rows of which a machine may read bodies: the row, the machine, and the commands."""

    rows: list[tuple[int, int, list[bytes]]]


Piece = SavedHead | SavedPart | SavedRows
_length = Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Piece).decode


class StatePieces:
    """An iterator of encoded pieces. While it has some left the host is frozen: begin no other one before this one is
    finished (``finish``) or dropped."""

    def __init__(self, host: Host, head: SavedHead, rows: Mapping[int, tuple[int, list[bytes]]]) -> None:
        names, _ = host.freeze(())
        pieces = _pieces(host, head, names, [(row, machine, commands) for row, (machine, commands) in rows.items()])
        self._pieces: Iterator[bytes] = chain([next(pieces)], pieces)  # begun, so that dropping it thaws the host

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def finish(self) -> None:
        """Encode what is left at once, because the state is to be replaced or frozen anew."""
        self._pieces = iter(list(self._pieces))


def _pieces(
    host: Host, head: SavedHead, names: Iterable[str], rows: list[tuple[int, int, list[bytes]]]
) -> Iterator[bytes]:
    """Parts are first, because those that wait are encoded before they change."""
    try:
        yield _framed(head)
        for name in names:
            yield _framed(SavedPart(name, host.part(name)))
    finally:
        host.thaw(False)
    at = 0
    while at < len(rows):
        first, size = at, 0
        while at < len(rows) and size < PIECE_BYTES:
            size += sum(map(len, rows[at][2]))
            at += 1
        yield _framed(SavedRows(rows[first:at]))


def _framed(piece: Piece) -> bytes:
    data = _encode(piece)
    return _length.pack(len(data)) + data


def pieces_of(state: bytes) -> Iterator[Piece]:
    """The pieces of a state that has come, one after another."""
    whole, at = memoryview(state), 0
    while at < len(whole):
        (size,) = _length.unpack_from(whole, at)
        at += _length.size
        yield _decode(whole[at : at + size])
        at += size
