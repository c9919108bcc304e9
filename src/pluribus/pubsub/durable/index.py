"""Where the events of one topic are in the keepers' log: a sparse index that is part of the replicated state.

An entry says: the events from this offset on begin in this row of the log. Between two entries the rows are read one
after another. There is an entry for about every five hundred events, and one after every stretch of the log that
belongs to other topics. So ten million events need ten or twenty thousand entries, and a reader reads little more than
it wants.

Events that a transaction made visible after they were written (``stages``) stay where they were written. Each such
batch has an entry of its own, with its place in the row, and the next ordinary batch begins a new entry.

With each entry stand the latest time and the bytes of all events before it: the index by time, and for retention.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

SPAN_EVENTS = 512
SPAN_BYTES = 256 << 10
"""Of the whole log."""
SPAN_US = 10_000_000
ENTRIES_MAX = 16_384
"""Beyond so many entries every second one is forgotten, and new spans are twice as long."""


class Moved(NamedTuple):
    """A batch that was moved to another place in the log."""

    offset: int
    row: int
    place: int
    latest: int
    size: int


class TopicIndex:
    """Columns of one topic's entries. All of them are functions of the commands that were applied."""

    __slots__ = ("_at_bytes", "_open", "offsets", "places", "rows", "sizes", "stretch", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.rows = array("q")
        self.places = array("q")
        """The place of a batch that stands alone in its row; for the first batch of a run, -1 minus its place."""
        self.times = array("q")
        """The latest time of all events before."""
        self.sizes = array("q")
        """The bytes of all events before."""
        self.stretch = 1
        self._at_bytes = 0
        self._open = False

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, row: int, place: int, latest: int, size: int, time: int, log_bytes: int) -> None:
        """A batch was appended at this offset; an entry is made if the last one is far behind."""
        if self._open:
            events = offset - self.offsets[-1]
            far = events >= SPAN_EVENTS * self.stretch or log_bytes - self._at_bytes >= SPAN_BYTES * self.stretch
            if not far and time - self.times[-1] < SPAN_US * self.stretch:
                return
        self._append(offset, row, -1 - place, latest, size)
        self._open = True
        self._at_bytes = log_bytes

    def graft(self, offset: int, row: int, place: int, latest: int, size: int) -> None:
        """A batch that stands elsewhere in the log became visible at this offset."""
        self._append(offset, row, place, latest, size)
        self._open = False

    def find(self, offset: int) -> int:
        """The number of the entry whose span holds an offset; -1 before the first."""
        return bisect_right(self.offsets, offset) - 1

    def behind(self, number: int, end: int) -> int:
        """Where an entry ends, in a topic that ends at ``end``."""
        return self.offsets[number + 1] if number + 1 < len(self.offsets) else end

    def before(self, time: int) -> int:
        """The first entry in whose span there can be an event of this time or later."""
        return max(bisect_left(self.times, time) - 1, 0)

    def forget(self, offset: int) -> None:
        """Events below this offset are gone; an entry whose span reaches beyond it stays."""
        keep = max(self.find(offset), 0)
        if keep:
            for column in (self.offsets, self.rows, self.places, self.times, self.sizes):
                del column[:keep]

    def anchor(self, offset: int, row: int, place: int) -> None:
        """The rows before this one are going to be freed: the first entry, if it is of a run, begins here."""
        if self.offsets and self.places[0] < 0 and self.offsets[0] < offset:
            self.offsets[0], self.rows[0], self.places[0] = offset, row, -1 - place

    def move(
        self, start: int, end: int, moved: Sequence[Moved], behind: tuple[int, int] | None, most: tuple[int, int]
    ) -> None:
        """The events from ``start`` up to ``end`` stand elsewhere, batch by batch. ``behind`` is where the next batch
        of the topic stands, or a place before it, if it is in a run that the moved ones were in the middle of. ``most``
        is the latest time and the bytes of all events of the topic."""
        first = bisect_left(self.offsets, start)
        last = bisect_left(self.offsets, end)
        before = max(first - 1, 0) if first == len(self.offsets) or self.offsets[first] != start else first
        latest, size = self.times[before], self.sizes[before]
        later = last < len(self.offsets)
        latest_max, size_max = (self.times[last], self.sizes[last]) if later else most
        entries: list[tuple[int, int, int, int, int]] = []
        for (
            batch
        ) in moved:  # if some of them are removed already, their sizes count twice: never more than what follows
            entries.append((batch.offset, batch.row, batch.place, latest, size))
            latest, size = min(max(latest, batch.latest), latest_max), min(size + batch.size, size_max)
        follows = last < len(self.offsets) and self.offsets[last] == end
        if behind is not None and not follows:
            entries.append((end, behind[0], -1 - behind[1], latest, size))
        columns = (self.offsets, self.rows, self.places, self.times, self.sizes)
        for column, values in zip(columns, zip(*entries, strict=True), strict=True):
            column[first:last] = array("q", values)
        if behind is None and not follows:
            self._open = False

    def _append(self, offset: int, row: int, place: int, latest: int, size: int) -> None:
        self.offsets.append(offset)
        self.rows.append(row)
        self.places.append(place)
        self.times.append(latest)
        self.sizes.append(size)
        if len(self.offsets) > ENTRIES_MAX:
            self._thin()

    def _thin(self) -> None:
        """Keep the first, every graft, what follows a graft, and every other one of the rest."""
        places = self.places
        keep = [0]
        for at in range(1, len(places)):
            if places[at] >= 0 or places[at - 1] >= 0 or keep[-1] != at - 1:
                keep.append(at)
        for column in (self.offsets, self.rows, self.places, self.times, self.sizes):
            column[:] = array("q", [column[at] for at in keep])
        self.stretch *= 2

    def saved(self) -> tuple[list[bytes], int, int, bool]:
        columns = (self.offsets, self.rows, self.places, self.times, self.sizes)
        return ([_little(column) for column in columns], self.stretch, self._at_bytes, self._open)

    @classmethod
    def restored(cls, saved: tuple[list[bytes], int, int, bool]) -> TopicIndex:
        index = cls()
        columns, index.stretch, index._at_bytes, index._open = saved
        for column, kept in zip(
            (index.offsets, index.rows, index.places, index.times, index.sizes), columns, strict=True
        ):
            column.frombytes(kept)
            if sys.byteorder == "big":
                column.byteswap()
        return index

    def validate(self) -> None:
        """For tests."""
        assert list(self.offsets) == sorted(set(self.offsets))
        assert list(self.times) == sorted(self.times)
        assert list(self.sizes) == sorted(self.sizes)


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()
