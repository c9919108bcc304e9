"""A journal: rows in one log of a store, from which a small state is built again after a restart.

Rows are only appended. When most of them are outdated, the rows that still count are written once more at the end and
all rows before are removed, in one write; so after a crash there is either the old log or the new one, and the log
stays short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..core.errors import Damaged
from ..core.ports import Append, Store, Trim

ROWS_SPARE = 1_024
"""Outdated rows that may stay."""
GROWTH = 4

Done = Callable[[Exception | None], None]


class Journal:
    """``live`` returns the rows from which the present state can be built."""

    def __init__(self, store: Store, log: str, live: Callable[[], Iterable[bytes]]) -> None:
        self._store = store
        self._log = log
        self._live = live
        bounds = store.bounds(log)
        self._start, self._end = bounds.start, bounds.end

    def rows(self) -> list[bytes]:
        """The stored rows. ``Damaged`` if a row differs from the one that was written."""
        found: list[bytes] = []
        for at, row in enumerate(self._store.read(self._log, self._start, self._end), self._start):
            if row is None:
                raise Damaged(f"row {at} of {self._log!r} is damaged: queued calls cannot go on, begin a new file")
            found.append(row)
        return found

    def add(self, rows: Sequence[bytes], done: Done) -> None:
        """Append rows; ``done`` is called when they are on disk, or with the reason why not."""
        self._store.write((Append(self._log, tuple(rows)),), done)
        self._end += len(rows)
        if self._end - self._start > ROWS_SPARE:
            kept = list(self._live())
            if self._end - self._start > ROWS_SPARE + GROWTH * len(kept):
                end = self._store.end(self._log)  # not our own count: a write may have failed
                self._store.write((Append(self._log, tuple(kept), at=end), Trim(self._log, end)), _unheard)
                self._start, self._end = end, end + len(kept)


def _unheard(error: Exception | None) -> None:
    """Ignores a failure: the longer log is still complete."""
