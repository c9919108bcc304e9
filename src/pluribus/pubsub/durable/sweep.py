"""Reading ranges of many topics in one pass over the log.

``Reading`` finds one topic at a time: from its index to the rows, and through these rows, which hold the batches of all
other topics too. For thousands of topics that were written side by side, each row would be read thousands of times. A
*sweep* takes all ranges together. It visits rows in the order of the log, each once, and gives a batch to the range
that waits for it. Between rows where nothing is wanted it jumps.

A range is *waiting* (its next batch is in a row further on; ``_starts`` is a heap of these rows) or *active* (the rows
that are visited now may hold its batches). An entry of the index ends where the next one begins: there a range waits
again. Batches that were staged, moved or part of a transaction stand alone at a place that the index names; they are
taken when the sweep meets their row, or at once if that row is behind it.

A sweep works in steps, so that a keeper can do other things between them. When the machine is replaced (a snapshot is
taken over), the sweep is useless, and its owner begins another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from ...core.errors import Damaged
from .batch import HEAD_BYTES, is_batch
from .machine import PLACE_BITS, Topic
from .reading import LOOK_BYTES, READ_BYTES, Reading, holds

Found = tuple[int, int, bytes]
"""The number of a range, the offset of a batch's first event, the batch."""
_TOPIC_BYTES = 40
"""Where a batch's head tells how long the topic's name is."""


class _Range:
    __slots__ = ("at", "limit", "name", "number", "offset", "stop", "topic", "where")

    def __init__(self, number: int, name: str, topic: Topic, at: int, stop: int) -> None:
        self.number = number
        self.name = name
        self.topic = topic
        self.at = at
        """The first offset that is wanted and was not given yet."""
        self.stop = stop
        self.offset = at
        """Of the next batch that the sweep meets."""
        self.limit = stop
        """Where the entry of the index ends."""
        self.where = (0, 0)
        """Row and place from which on batches count."""


class Sweep:
    """One pass over the log for ``wanted``: topic, start, stop; each topic once."""

    def __init__(self, reading: Reading, wanted: Sequence[tuple[str, int, int]] = ()) -> None:
        self._reading = reading
        self._row = -1
        """The row that is visited next, while there are active ranges."""
        self._active: dict[bytes, _Range] = {}
        self._starts: list[tuple[int, int]] = []
        self._held: tuple[int, tuple[bool, Sequence[bytes]]] | None = None
        self._ranges: dict[int, _Range] = {}
        self.gone: list[tuple[int, int]] = []
        self.short: list[tuple[int, int]] = []
        """Ranges that reach beyond the end of their topic: number, and that end."""
        self._wanted = 0
        for name, start, stop in wanted:
            self.want(name, start, stop)

    def want(self, name: str, start: int, stop: int) -> None:
        """One range more, before the first step."""
        number, self._wanted = self._wanted, self._wanted + 1
        topic = self._reading.topics.topic(name)
        first, end = (0, 0) if topic is None else topic.bounds
        if start < first:
            self.gone.append((number, first))
            return
        if start < stop and end < stop:
            self.short.append((number, max(end, start)))
        if topic is not None and start < min(stop, end):
            one = self._ranges[number] = _Range(number, name, topic, start, min(stop, end))
            heappush(self._starts, (self._entry(one)[0], number))

    @property
    def done(self) -> bool:
        return not self._ranges

    @property
    def left(self) -> list[tuple[int, int]]:
        """The ranges that are not read to their end: number, and where to go on. The next sweep goes on at the same
        row."""
        for one in self._active.values():
            if one.offset == one.at:
                self._reading._remember(one.name, one.at, max(one.where, (self._row, 0)))
        return [(number, one.at) for number, one in self._ranges.items()]

    def step(self, bytes_max: int) -> list[Found]:
        """Batches, about ``bytes_max`` of them or of rows that were looked at; ``Damaged`` if rows are not here."""
        found: list[Found] = []
        looked, look = 0, LOOK_BYTES
        while looked < bytes_max and self._ranges:
            if not self._active:
                look = LOOK_BYTES
                self._row, number = heappop(self._starts)
                looked += self._begin(self._ranges[number], self._row, found)
                continue
            rows = self._reading._rows(self._row, look)
            if not rows:
                one = next(iter(self._active.values()))
                raise Damaged(f"offset {one.at} of {one.name!r} cannot be read here: ask another keeper")
            look = min(2 * look, READ_BYTES)
            for position, held in rows:
                self._row = position + 1
                while self._starts and self._starts[0][0] <= position:
                    looked += self._begin(self._ranges[heappop(self._starts)[1]], position, found)
                looked += self._visit(position, held, found)
                if not self._active:
                    break
        return found

    def _entry(self, one: _Range) -> tuple[int, int]:
        """The row and place that the index names for the next batch of a range; its cursor if that is further on."""
        index = one.topic.index
        number = index.find(one.at)
        row, place = index.rows[number], index.places[number]
        one.offset = index.offsets[number]
        one.limit = min(index.offsets[number + 1] if number + 1 < len(index) else one.topic.end, one.stop)
        if place < 0:
            one.where = (row, -1 - place)
            cursor = self._reading._cursors.get((one.name, one.at))
            if cursor is not None and cursor > one.where:
                one.where, one.offset = cursor, one.at
            row = one.where[0]
        return row, place

    def _begin(self, one: _Range, position: int, found: list[Found]) -> int:
        """A range goes on at the next entry of its index, while ``position`` is visited: it becomes active, or waits.
        Batches that stand alone are taken. Returns the bytes of these."""
        size = 0
        while True:
            row, place = self._entry(one)
            if place < 0:
                if row == position:
                    self._active[one.name.encode()] = one
                elif row > position:
                    heappush(self._starts, (row, one.number))
                else:
                    self._behind(one, found)
                return size
            packed = self._alone(row, place)
            size += len(packed)
            if holds(packed, one.offset, one.at, one.stop):
                found.append((one.number, one.offset, packed))
            one.at = one.limit
            if one.at >= one.stop:
                del self._ranges[one.number]
                return size

    def _behind(self, one: _Range, found: list[Found]) -> None:
        """A run that begins in a row that was passed already: it is read by itself."""
        pieces, one.at = self._reading.read(one.name, one.at, one.stop, READ_BYTES)
        found += [(one.number, offset, packed) for offset, packed in pieces]
        if one.at >= one.stop:
            del self._ranges[one.number]
        else:
            heappush(self._starts, (self._entry(one)[0], one.number))

    def _visit(self, position: int, held: Sequence[bytes], found: list[Found]) -> int:
        """Give the batches of one row to the ranges that wait for them."""
        active, passed, size = self._active, self._reading.topics.passed_over, 0
        for place, command in enumerate(held):
            size += len(command)
            if not is_batch(command):
                continue
            named = command[
                HEAD_BYTES : HEAD_BYTES + int.from_bytes(command[_TOPIC_BYTES : _TOPIC_BYTES + 2], "little")
            ]
            one = active.get(named)
            if one is None or (position, place) < one.where or position << PLACE_BITS | place in passed:
                continue
            events = int.from_bytes(command[4:8], "little")
            if one.offset + events > one.at:
                found.append((one.number, one.offset, command))
                one.at = one.offset + events
            one.offset += events
            one.where = (position, place + 1)
            if one.offset >= one.limit:
                del active[named]
                if one.offset >= one.stop:
                    del self._ranges[one.number]
                else:
                    size += self._begin(one, position, found)
        return size

    def _alone(self, row: int, place: int) -> bytes:
        """A batch that stands alone; rows are remembered, because many such batches stand in one."""
        if self._held is None or self._held[0] != row:
            self._held = (row, self._reading._row(row))
        return self._reading.standing_alone(*self._held[1], row, place)
