"""A journal: rows in one log of a store, from which a small state is built again after a restart.

Rows are only added. When most of them tell of what is over, what still counts is written once more at the end and all
before it is forgotten, in one write; so after a crash there is the one or the other, and the log stays short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..core.errors import Damaged
from ..core.ports import Append, Store, Trim

ROWS_SPARE = 1_024
"""Rows of what is over that may stay."""
GROWTH = 4

Done = Callable[[Exception | None], None]


class Journal:
    """``live`` are the rows from which the present state could be built."""

    def __init__(self, store: Store, log: str, live: Callable[[], Iterable[bytes]]) -> None:
        self._store = store
        self._log = log
        self._live = live
        bounds = store.bounds(log)
        self._start, self._end = bounds.start, bounds.end

    def rows(self) -> list[bytes]:
        """What is there. ``Damaged`` if a row is not what was written."""
        found: list[bytes] = []
        for at, row in enumerate(self._store.read(self._log, self._start, self._end), self._start):
            if row is None:
                raise Damaged(f"row {at} of {self._log!r} is damaged: queued calls cannot go on, begin a new file")
            found.append(row)
        return found

    def add(self, rows: Sequence[bytes], done: Done) -> None:
        """``done`` is told when they are on disk, or why they are not."""
        self._store.write((Append(self._log, tuple(rows)),), done)
        self._end += len(rows)
        if self._end - self._start > ROWS_SPARE:
            kept = list(self._live())
            if self._end - self._start > ROWS_SPARE + GROWTH * len(kept):
                end = self._store.end(self._log)  # not our own count: a write may have failed
                self._store.write((Append(self._log, tuple(kept), at=end), Trim(self._log, end)), _unheard)
                self._start, self._end = end, end + len(kept)


def _unheard(error: Exception | None) -> None:
    """If it failed, the longer log is still whole."""
