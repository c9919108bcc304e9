"""Forwarding: messages that stay while their neighbours go are written once more, so that their old rows can be freed.
And the bodies inside a command, by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, overload

from ..core.errors import MalformedFrame
from . import words
from .batch import chosen, head_of, is_batch
from .segments import bits_of

if TYPE_CHECKING:
    from .machine import Queue

MOVE_BYTES_MAX = 2 << 20
"""Bytes of bodies in one command."""


SLICE = 1 << 20
"""Pieces from this number on mean several consecutive messages, as one batch."""


def slice_piece(start: int, count: int) -> int:
    """The piece that means this many messages of a batch."""
    return SLICE + (start << 16) + count - 1


class BatchPieces(Sequence[bytes]):
    """The messages of a batch, each as a batch of one; and runs of them, each as a batch (``slice_piece``)."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._count = head_of(packed).count

    def __len__(self) -> int:
        return 1 << 40

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        start, count = (at, 1) if at < SLICE else ((at - SLICE) >> 16, ((at - SLICE) & 0xFFFF) + 1)
        if not 0 <= start < start + count <= self._count:
            raise IndexError(at)
        return self._packed if count == self._count else chosen(self._packed, range(start, start + count))


def pieces_of(command: bytes) -> Sequence[bytes]:
    """The pieces of a command, which handles name."""
    try:
        if is_batch(command):
            return BatchPieces(command)
        word = words.command_of(command)
        if isinstance(word, words.Move | words.Remake):
            return BatchPieces(word.packed)
        if isinstance(word, words.Stage | words.Restage):
            return (word.data,)
    except MalformedFrame:
        pass
    return ()


def packed_at(command: bytes) -> bytes | None:
    """The batch in a command, if there is one."""
    if is_batch(command):
        return command
    word = words.command_of(command)
    return word.packed if isinstance(word, words.Move | words.Remake) else None


def moves(queue: Queue, rows: Mapping[int, Sequence[bytes]], loose: Mapping[tuple[int, int], bytes]) -> list[bytes]:
    """Commands that write once more every live message in these rows."""
    within = {*rows, *(row for row, _ in loose)}
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    """By row and place: messages, and which piece each is."""
    wanted: list[words.Command] = []

    def command_at(row: int, place: int) -> bytes | None:
        found = loose.get((row, place))
        if found is None and row in rows and place < len(rows[row]):
            found = rows[row][place]
        return found

    for segment in queue.messages.segments:
        if not segment.columns:
            if segment.row in within:
                group = groups.setdefault((segment.row, segment.place), [])
                group += [(segment.piece + at, segment.thing_at(at)) for at in bits_of(segment.live)]
            continue
        for at in bits_of(segment.live):
            if segment.row[at] in within:
                row, place, piece = segment.handle(at)
                groups.setdefault((row, place), []).append((piece, segment.thing_at(at)))
        if segment.extra is not None:
            for at, pieces in segment.extra.pieces.items():
                for number, (row, place, _) in enumerate(pieces):
                    data = command_at(row, place) if row in within else None
                    if data is not None:
                        wanted.append(words.Restage(0, segment.thing_at(at), number, row, pieces_of(data)[0]))
    for upload, held in queue.messages.uploads.items():
        for number, (row, place, _) in enumerate(held.pieces):
            data = command_at(row, place) if row in within else None
            if data is not None:
                wanted.append(words.Restage(upload, 0, number, row, pieces_of(data)[0]))
    for (row, place), group in sorted(groups.items()):
        data = command_at(row, place)
        packed = None if data is None else packed_at(data)
        if packed is not None:
            group.sort()
            which = [piece for piece, _ in group]
            wanted.append(words.Move(row, [thing for _, thing in group], chosen(packed, which)))
    return [words.encode(command) for command in wanted]
