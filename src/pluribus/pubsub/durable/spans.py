"""Where the events of one topic are in the log, so that space which they no longer need can be freed.

A *span* is a stretch of consecutive offsets whose batches are in one extent of the log (``group.host.space``), or one
batch that stands elsewhere: staged, moved, or part of a transaction. Spans are in the order of offsets. When the topic
forgets all offsets of a span, its bytes are released.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from typing import NamedTuple

ALONE = -1


class Span(NamedTuple):
    """Offsets from ``start`` up to ``end``; the first batch is at ``place`` of ``row``; ``size`` bytes of commands."""

    start: int
    end: int
    row: int
    place: int
    size: int


Saved = tuple[list[bytes], int, int]


class Spans:
    __slots__ = ("_ends", "_extent", "_places", "_rows", "_sizes", "_start")

    def __init__(self) -> None:
        self._ends = array("q")
        self._rows = array("q")
        self._places = array("q")
        self._sizes = array("q")
        self._start = 0
        """Where the first span begins."""
        self._extent = ALONE
        """The extent that the last span is in, if more may join it."""

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, at: int) -> Span:
        start = self._ends[at - 1] if at else self._start
        return Span(start, self._ends[at], self._rows[at], self._places[at], self._sizes[at])

    def add(self, end: int, row: int, place: int, size: int, extent: int) -> None:
        """Events up to ``end`` were appended, in a row of this extent; ``ALONE``: they stand elsewhere."""
        if extent != ALONE and extent == self._extent and self._ends:
            self._ends[-1] = end
            self._sizes[-1] += size
            return
        self._extent = extent
        self._ends.append(end)
        self._rows.append(row)
        self._places.append(place)
        self._sizes.append(size)

    def forget(self, first: int) -> list[Span]:
        """The spans that lie wholly below an offset, which are gone now."""
        count = bisect_right(self._ends, first)
        gone = [self[at] for at in range(count)]
        if gone:
            self._start = gone[-1].end
            for column in (self._ends, self._rows, self._places, self._sizes):
                del column[:count]
            if not self._ends:
                self._extent = ALONE
        return gone

    def find(self, end: int, row: int) -> int:
        """The number of the span that ends at this offset and stands in this row; -1 if it is not there any more."""
        at = bisect_left(self._ends, end)
        return at if at < len(self._ends) and self._ends[at] == end and self._rows[at] == row else -1

    def within(self, rows: Container[int]) -> list[Span]:
        """The spans that stand in these rows."""
        return [self[at] for at, row in enumerate(self._rows) if row in rows]

    def move(self, at: int, row: int, place: int, size: int) -> None:
        """The events of one span stand elsewhere now."""
        self._rows[at], self._places[at], self._sizes[at] = row, place, size
        if at == len(self._ends) - 1:
            self._extent = ALONE

    def first_of(self, start: int, end: int, rows: Sequence[int]) -> int:
        """The number of the first of the spans that reach from ``start`` to ``end`` and stand in these rows; -1 if they
        are not there any more."""
        at, last = bisect_right(self._ends, start), bisect_left(self._ends, end)
        if last >= len(self._ends) or self._ends[last] != end or self[at].start != start:
            return -1
        return at if list(self._rows[at : last + 1]) == list(rows) else -1

    def at(self, offset: int) -> int:
        """The number of the span that holds an offset, or of the first one behind it."""
        return bisect_right(self._ends, offset)

    def merge(self, at: int, count: int, row: int, place: int, size: int) -> None:
        """The events of some spans that follow each other stand together elsewhere now."""
        end, last = self._ends[at + count - 1], at + count == len(self._ends)
        columns = ((self._ends, end), (self._rows, row), (self._places, place), (self._sizes, size))
        for column, value in columns:
            column[at : at + count] = array("q", [value])
        if last:
            self._extent = ALONE

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(self._sizes)

    def first_row(self) -> int:
        return min(self._rows)

    def saved(self) -> Saved:
        columns = (self._ends, self._rows, self._places, self._sizes)
        return ([_little(column) for column in columns], self._start, self._extent)

    @classmethod
    def restored(cls, saved: Saved) -> Spans:
        spans = cls()
        columns, spans._start, spans._extent = saved
        for column, kept in zip((spans._ends, spans._rows, spans._places, spans._sizes), columns, strict=True):
            column.frombytes(kept)
            if sys.byteorder == "big":
                column.byteswap()
        return spans

    def validate(self) -> None:
        assert list(self._ends) == sorted(set(self._ends)) and (not self._ends or self._start < self._ends[0])
        assert all(size > 0 for size in self._sizes)


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()
