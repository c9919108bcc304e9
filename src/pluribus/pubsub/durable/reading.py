"""Reading a range of offsets: from the index to the rows, from the rows to packed batches.

Only committed events are read, and nothing is unpacked. Where a reader ended is remembered, so that a reader that
follows the end of a topic closely does not go through a whole span again for each event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from ...core.errors import BadInput, Damaged
from ...group.host.host import command_at
from . import commands
from .batch import HEAD_BYTES, PLACES, StoredBatch, head_of, is_batch, latest_of, topic_of
from .machine import INNER, PLACE_BITS, Topic, TopicsMachine

Rows = Callable[[int, int], Sequence[tuple[int, Sequence[bytes]]]]
"""``rows(start, bytes_max)``: rows of commands from there on, each with its position; ``Damaged`` if they cannot be had
here, none at the end of what is applied."""
Row = Callable[[int], tuple[bool, Sequence[bytes]]]
"""``row(at)``: whether one row is of transactions, and its commands, whosever they are; raises as ``Rows``."""
Piece = tuple[int, bytes]
"""The offset of a packed batch's first event, and the batch."""
CURSORS_MAX = 16_384
READ_BYTES = 256 << 10
LOOK_BYTES = 16 << 10
"""Bytes read at first of a span; then more at a time, up to ``READ_BYTES``."""
READ_BYTES_MAX = 16 << 20


class Reading:
    def __init__(self, topics: TopicsMachine, rows: Rows, row: Row) -> None:
        self.topics = topics
        self._rows = rows
        self._row = row
        self._cursors: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()
        self._held: tuple[int, tuple[bool, Sequence[bytes]]] | None = None
        """The row that was looked at last, and its commands, during one ``read``: staged batches stand one by one, and
        many of them in one row."""

    def clear(self) -> None:
        """The state was replaced."""
        self._cursors.clear()

    def read(self, name: str, start: int, stop: int, bytes_max: int) -> tuple[list[Piece], int]:
        """Batches that hold the offsets from ``start`` up to ``stop``, about ``bytes_max`` of them and at least one if
        there is any; the first and the last may reach beyond. And the offset at which to go on: where only the last
        event of each key is kept, that is not told by the batches, and there may be none up to there. ``BadInput`` if
        ``start`` was removed, or never was."""
        topic = self.topics.topic(name)
        if topic is None:
            if start:
                raise BadInput(f"there is no durable topic {name!r}: publish to it first, or look at its name")
            return [], start
        check(name, topic, start)
        stop = min(stop, topic.end)
        pieces: list[Piece] = []
        at, left = start, min(bytes_max, READ_BYTES_MAX)
        self._held = None
        while at < stop and left > 0:
            found, at = self._span(name, topic, at, stop, left)
            pieces += found
            left -= sum(len(packed) for _, packed in found)
        self._held = None
        return pieces, max(start, min(at, stop))

    def offset_at(self, name: str, time_us: int) -> int:
        """The first offset whose event is of this time or later; the end if there is none."""
        topic = self.topics.topic(name)
        if topic is None or time_us > topic.latest or not len(topic.index):
            return topic.end if topic is not None else 0
        at = max(topic.index.offsets[topic.index.before(time_us)], topic.first)
        while at < topic.end:
            start = at
            pieces, at = self.read(name, start, topic.end, READ_BYTES)
            for offset, packed in pieces:
                batch = StoredBatch(packed, offset)
                if latest_of(packed, batch.head) >= time_us:
                    late = batch.offsets[batch.times >= time_us]
                    found = [int(one) for one in late if one >= start]
                    if found:
                        return found[0]
        return topic.end

    def _span(self, name: str, topic: Topic, at: int, stop: int, bytes_max: int) -> tuple[list[Piece], int]:
        """From within one entry of the index, up to its end at most; and where to go on."""
        index = topic.index
        number = index.find(at)
        row, place = index.rows[number], index.places[number]
        offset = index.offsets[number]
        limit = index.behind(number, topic.end)
        if place >= 0:
            packed = self._staged(row, place)
            return [(offset, packed)] if holds(packed, offset, at, stop) else [], limit
        where = (row, -1 - place)
        cursor = self._cursors.get((name, at))
        if cursor is not None and cursor > where:
            where, offset = cursor, at
        found = self._scan(name, where, offset, at, min(stop, limit), bytes_max)
        if not found:
            raise Damaged(f"offset {at} of {name!r} cannot be read here: ask another keeper")
        offset, packed = found[-1]
        return found, offset + head_of(packed).events

    def _scan(self, name: str, where: tuple[int, int], offset: int, at: int, stop: int, bytes_max: int) -> list[Piece]:
        named, passed = name.encode(), self.topics.passed_over
        row = where[0]
        pieces: list[Piece] = []
        size, look = 0, LOOK_BYTES
        while offset < stop and size < bytes_max:
            rows = self._rows(row, look)
            if not rows:
                break
            look = min(2 * look, READ_BYTES)
            for position, held in rows:
                row = position + 1
                for place, command in enumerate(held):
                    if not command.startswith(named, HEAD_BYTES):
                        continue  # of another topic, as most are where many are written at once
                    if (position, place) < where or not is_batch(command) or offset >= stop or size >= bytes_max:
                        continue
                    if position << PLACE_BITS | place in passed:
                        continue
                    head = head_of(command)
                    if topic_of(command, head) != named:
                        continue
                    if offset + head.events > at:
                        pieces.append((offset, command))
                        size += len(command)
                    offset += head.events
                    where = (position, place + 1)
                if offset >= stop or size >= bytes_max:
                    break
        if pieces:
            self._remember(name, offset, where)
        return pieces

    def _staged(self, row: int, place: int) -> bytes:
        """A batch that was staged, moved, or part of a transaction."""
        if self._held is None or self._held[0] != row:
            self._held = (row, self._row(row))
        return self.standing_alone(*self._held[1], row, place)

    def standing_alone(self, together: bool, held: Sequence[bytes], row: int, place: int) -> bytes:
        """The batch at a place of a row that was read: ``together`` and ``held`` are what ``row(at)`` gave."""
        if together:
            return command_at(held, place)
        inner, place = divmod(place, INNER)
        if place >= len(held):
            raise Damaged(f"row {row} cannot be read here: ask another keeper")
        command = commands.command_of(held[place])
        if isinstance(command, commands.Move):
            return command.batches[inner - 1]
        if isinstance(command, commands.Compact):
            return command.batches[inner - 1][1]
        assert isinstance(command, (commands.Stage, commands.Restage)), f"command {place} of row {row} was not staged"
        return command.packed

    def _remember(self, name: str, offset: int, where: tuple[int, int]) -> None:
        self._cursors[(name, offset)] = where
        if len(self._cursors) > CURSORS_MAX:
            self._cursors.popitem(last=False)


def holds(packed: bytes, offset: int, start: int, stop: int) -> bool:
    """Whether a batch has an event from ``start`` up to ``stop``. It may be empty, or reach less far than its entry of
    the index, where only the last event of each key is kept."""
    if not packed:
        return False
    batch = StoredBatch(packed, offset)
    if not batch.head.flags & PLACES:
        return offset < stop and offset + batch.head.events > start
    offsets = batch.offsets
    return bool(((offsets >= start) & (offsets < stop)).any())


def check(name: str, topic: Topic, start: int) -> None:
    """``BadInput`` that names what is there."""
    if start < topic.first:
        raise BadInput(
            f"offset {start} of {name!r} was removed by retention: the first that is kept is {topic.first}; "
            'start there, or with "earliest"'
        )
    if start > topic.end:
        raise BadInput(f"offset {start} of {name!r} is beyond its end {topic.end}: start there, or with 'latest'")
