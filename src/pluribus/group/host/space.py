"""How much of the log is still needed: bytes that are there and bytes that are live, by stretches of rows.

Rows are counted in *extents* of about 256 KiB, so that the table stays small however short rows are. An extent in which
nothing is live becomes *hollow*: its rows keep their heads and lose their commands. An extent in which little is live
is
*forwarded*: the leader has the live rest written again at the end of the log, and then the extent is dead, too.

**The bound.** Extents are forwarded while there are more dead bytes than live ones, and more than ``DEAD_BYTES_MAX``;
the extent with the smallest live share is first. So the log never holds more than twice its live bytes plus a constant.
At least half of each forwarded extent is dead, so writing forward costs no more than it frees.

The table is part of the replicated state. Which extents are hollow already is not: each keeper frees its own rows, when
its own snapshot on disk covers them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import ClassVar

import msgspec

EXTENT_BYTES = 256 << 10
EXTENTS_MAX = 65_536
"""Beyond so many extents neighbours are joined, and new extents are twice as long."""
DEAD_BYTES_MAX = 32 << 20
"""With fewer dead bytes nothing is forwarded."""


class SavedExtents(msgspec.Struct, array_like=True):
    starts: bytes
    totals: bytes
    lives: bytes
    stretch: int
    end: int


class LogExtents:
    """Extents in the order of the log. ``end`` is the row behind the last one that was counted."""

    extent_bytes: ClassVar[int] = EXTENT_BYTES
    dead_bytes_max: ClassVar[int] = DEAD_BYTES_MAX

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._starts = array("q")
        self._totals = array("q")
        self._lives = array("q")
        self._stretch = 1
        self.end = 0
        self.total = self.live = self.dead = 0
        """``dead``: of extents that still have something live, what is not live itself: it cannot be freed as it is."""

    def add(self, row: int, total: int, live: int) -> None:
        """A row was applied."""
        if not self._starts or self._totals[-1] >= self.extent_bytes * self._stretch:
            self._forget_front()
            self._starts.append(row)
            self._totals.append(0)
            self._lives.append(0)
            if len(self._starts) > EXTENTS_MAX:
                self._join()
        if total == live and self._lives[-1]:  # nearly every row: as much is dead as before
            self._totals[-1] += total
            self._lives[-1] += live
        else:
            before = self._dead_of(-1)
            self._totals[-1] += total
            self._lives[-1] += live
            self.dead += self._dead_of(-1) - before
        self.end = row + 1
        self.total += total
        self.live += live

    def release(self, row: int, size: int) -> None:
        """``size`` bytes of a row are needed no more."""
        at = bisect_right(self._starts, row) - 1
        if at < 0:
            return
        freed = min(size, self._lives[at])
        assert freed == size, f"row {row} releases {size} bytes of {self._lives[at]}"
        before = self._dead_of(at)
        self._lives[at] -= freed
        self.live -= freed
        self.dead += self._dead_of(at) - before

    def _dead_of(self, at: int) -> int:
        live = self._lives[at]
        return self._totals[at] - live if live else 0

    def _forget_front(self) -> None:
        """Remove extents at the front of the log with nothing live: their rows are forgotten, not only made hollow."""
        gone = 0
        while gone < len(self._starts) and not self._lives[gone]:
            self.total -= self._totals[gone]
            gone += 1
        if gone:
            for column in (self._starts, self._totals, self._lives):
                del column[:gone]

    @property
    def last_extent(self) -> int:
        """The first row of the extent to which the row being applied belongs."""
        return self._starts[-1]

    def dead_rows(self, since: int, before: int) -> list[range]:
        """Ranges of rows in which nothing is live, from ``since`` on and below ``before``."""
        found: list[range] = []
        for at in range(max(bisect_right(self._starts, since) - 1, 0), len(self._starts) - 1):
            stop = self._starts[at + 1]
            if stop > before:
                break
            if not self._lives[at]:
                found.append(range(self._starts[at], stop))
        return found

    @property
    def first_row(self) -> int:
        """Rows below it hold nothing that is needed."""
        return self._starts[0] if self._starts else self.end

    @property
    def bounded(self) -> bool:
        """Whether the log is within its bound."""
        return self.dead <= max(self.live, self.dead_bytes_max)

    def poorest(self, before: int) -> list[range]:
        """Extents wholly below ``before`` of which less than half is live, those with the smallest share first."""
        found: list[tuple[float, int, int]] = []
        for at, (total, live) in enumerate(zip(self._totals[:-1], self._lives[:-1], strict=True)):
            if self._starts[at + 1] > before:
                break
            if 0 < 2 * live < total:
                found.append((live / total, self._starts[at], self._starts[at + 1]))
        return [range(start, stop) for _, start, stop in sorted(found)]

    def saved(self) -> bytes:
        starts, totals, lives = (_little(column) for column in (self._starts, self._totals, self._lives))
        return msgspec.msgpack.encode(SavedExtents(starts, totals, lives, self._stretch, self.end))

    def restore(self, data: bytes) -> None:
        self._clear()
        if not data:
            return
        saved = msgspec.msgpack.decode(data, type=SavedExtents)
        for column, kept in ((self._starts, saved.starts), (self._totals, saved.totals), (self._lives, saved.lives)):
            column.frombytes(kept)
            if sys.byteorder == "big":
                column.byteswap()
        self._stretch, self.end = saved.stretch, saved.end
        self.total, self.live, self.dead = sum(self._totals), sum(self._lives), self._all_dead()

    def _all_dead(self) -> int:
        return sum(map(self._dead_of, range(len(self._starts))))

    def validate(self) -> None:
        assert list(self._starts) == sorted(set(self._starts))
        assert all(0 <= live <= total for live, total in zip(self._lives, self._totals, strict=True))
        assert self.live == sum(self._lives) and self.total == sum(self._totals) and self.dead == self._all_dead()

    def _join(self) -> None:
        starts, totals, lives = self._starts, self._totals, self._lives
        self._starts = array("q", starts[::2])
        self._totals = array("q", [sum(totals[at : at + 2]) for at in range(0, len(totals), 2)])
        self._lives = array("q", [sum(lives[at : at + 2]) for at in range(0, len(lives), 2)])
        self._stretch *= 2
        self.dead = self._all_dead()


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()
