"""A store in memory: the reference for the others, and the platter of the simulated disk. It keeps nothing.

Every change leaves behind how to undo it; ``rollback`` undoes back to the last commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.errors import Damaged
from ..core.ports import Append, Bounds, Change, Cut, Delete, Put, Repair, Replace, Restart, Trim
from .backend import Reader, bounds_after, row_sum, value_sum

Undo = Callable[[], None]
Sealed = tuple[int, bytes]


class _Log:
    __slots__ = ("rows", "start", "sure")

    def __init__(self) -> None:
        self.start = 0
        self.rows: list[Sealed | None] = []
        self.sure = True


class MemoryBackend:
    """Rows and values are kept beside their checksums, so that a test can damage them as a disk would."""

    embedded = True

    def __init__(self) -> None:
        self.laden = False
        self.logs: dict[str, _Log] = {}
        self.keys: dict[str, Sealed] = {}
        self._undo: list[Undo] = []

    def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._undo.append(self.apply(change))

    def apply(self, change: Change) -> Undo:
        """Make one change at once; returns a function that takes it back, if later ones were taken back before."""
        if isinstance(change, (Put, Delete)):
            return self._set(change.key, change.value if isinstance(change, Put) else None)
        log = self.logs.setdefault(change.log, _Log())
        bounds_after(change, self.bounds(change.log))
        if isinstance(change, Append):
            first = log.start + len(log.rows)
            end = len(log.rows)
            log.rows += [(row_sum(change.log, at, row), row) for at, row in enumerate(change.rows, first)]
            return lambda: log.rows.__delitem__(slice(end, None))
        if isinstance(change, Cut):
            end = change.end - log.start
            gone = log.rows[end:]
            del log.rows[end:]
            return lambda: log.rows.extend(gone)
        if isinstance(change, Trim):
            return self._replace(log, change.start, log.rows[max(change.start - log.start, 0) :])
        if isinstance(change, Restart):
            return self._replace(log, change.at, [])
        return self._repair(log, change)

    def commit(self) -> None:
        self._undo.clear()

    def rollback(self) -> None:
        while self._undo:
            self._undo.pop()()

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        found = self.logs.get(log)
        if found is None:
            return []
        first = max(start, found.start)
        rows = found.rows[first - found.start : max(stop - found.start, 0)]
        return [_whole(sealed, log, at) for at, sealed in enumerate(rows, first)]

    def get(self, key: str) -> bytes | None:
        sealed = self.keys.get(key)
        if sealed is not None and value_sum(key, sealed[1]) != sealed[0]:
            raise Damaged(f"the value of {key!r} is not what was put: restore it from another copy")
        return None if sealed is None else sealed[1]

    def bounds(self, log: str) -> Bounds:
        found = self.logs.get(log)
        return Bounds() if found is None else Bounds(found.start, found.start + len(found.rows), found.sure)

    def renew(self, changes: Sequence[Change]) -> str:
        self._undo.clear()
        self.logs, self.keys = {}, {}
        self.write(changes)
        self.commit()
        return "memory"

    def reader(self) -> Reader | None:
        return None

    def close(self) -> None:
        self.rollback()

    def _set(self, key: str, value: bytes | None) -> Undo:
        before = self.keys.get(key)

        def undo() -> None:
            if before is None:
                self.keys.pop(key, None)
            else:
                self.keys[key] = before

        if value is None:
            self.keys.pop(key, None)
        else:
            self.keys[key] = (value_sum(key, value), value)
        return undo

    def _replace(self, log: _Log, start: int, rows: list[Sealed | None]) -> Undo:
        before = (log.start, log.rows)
        log.start, log.rows = start, rows

        def undo() -> None:
            log.start, log.rows = before

        return undo

    def _repair(self, log: _Log, change: Repair | Replace) -> Undo:
        at = change.at - log.start
        before = log.rows[at]
        if isinstance(change, Replace) or _whole(before, change.log, change.at) is None:
            log.rows[at] = (row_sum(change.log, change.at, change.row), change.row)
        return lambda: log.rows.__setitem__(at, before)


def _whole(sealed: Sealed | None, log: str, at: int) -> bytes | None:
    return None if sealed is None or row_sum(log, at, sealed[1]) != sealed[0] else sealed[1]
