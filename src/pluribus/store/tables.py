"""A store in the tables of a database: the common part of SQLite and PostgreSQL.

Three tables hold rows, keys and, for each log, its start and stop; a fourth counts commits. The bounds of a log are
loaded once, changed in memory, and saved by the commit that they belong to, in the same transaction as its rows; a
database that can tell them from the rows may save those of an append later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from ..core.errors import Damaged
from ..core.ports import Append, Bounds, Change, Cut, Delete, Put, Repair, Replace, Restart, Trim
from .backend import bounds_after, bounds_sum, row_sum, value_sum

MAJOR, MINOR = 2, 0
VERSION = MAJOR * 1_000 + MINOR
READ_AGAIN_ROWS = 16
REPAIRED_MAX = 65_536

Stored = tuple[int, int, object]
"""Position, checksum and row, as a table gives them: the row may be anything."""


class _Known:
    __slots__ = ("bounds", "id")

    def __init__(self, number: int, bounds: Bounds) -> None:
        self.id = number
        self.bounds = bounds


class Tables(ABC):
    """``Backend`` without its database. Subclasses run the statements, each inside the transaction that is open."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._changed: set[str] = set()
        self._appended: set[str] = set()
        """Logs that got rows, and no other change."""
        self._open = False
        self._repaired: dict[tuple[str, int], None] = {}
        """Rows that were repaired: if one is missing again, the search does not find it."""
        self.unsure = False
        """True if commits that this store once acknowledged are gone."""
        self.laden = False

    def write(self, changes: Sequence[Change]) -> None:
        if not self._open:
            self._begin()
            self._open = True
        for change in changes:
            if isinstance(change, Put):
                self._put(change.key, value_sum(change.key, change.value), change.value)
            elif isinstance(change, Delete):
                self._delete(change.key)
            else:
                self._write(change)

    def _write(self, change: Append | Cut | Trim | Restart | Repair | Replace) -> None:
        log = change.log
        known = self._log(log)
        now = known.bounds
        known.bounds = bounds_after(change, now)
        (self._appended if isinstance(change, Append) else self._changed).add(log)
        if isinstance(change, Append):
            rows = [(at, row_sum(log, at, row), row) for at, row in enumerate(change.rows, now.end)]
            self._insert(known.id, rows)
        elif isinstance(change, Cut):
            self._remove(known.id, change.end, now.end)
        elif isinstance(change, Trim):
            self._remove(known.id, now.start, min(change.start, now.end))
        elif isinstance(change, Restart):
            self._remove(known.id, now.start, now.end)
        elif isinstance(change, Replace):
            self._remove(known.id, change.at, change.at + 1)
            self._insert(known.id, [(change.at, row_sum(log, change.at, change.row), change.row)])
        else:
            self._repair(known, change)

    def _repair(self, known: _Known, change: Repair) -> None:
        """Repair a row, and read it again, alone and among those before it: where the structure of a table is damaged,
        a repaired row is not found, or only by some searches."""
        log, at = change.log, change.at
        again = (log, at) in self._repaired
        if self._rows(known.id, log, at, at + 1) == [None]:
            self._remove(known.id, at, at + 1)
            self._insert(known.id, [(at, row_sum(log, at, change.row), change.row)])
        first = max(known.bounds.start, at - READ_AGAIN_ROWS)
        found = [self._rows(known.id, log, start, at + 1)[-1:] for start in (at, first)]
        if again or [None] in found:
            raise Damaged(f"row {at} of {log!r} was put back and is not found: the structure of {self} is damaged")
        self._repaired[(log, at)] = None
        if len(self._repaired) > REPAIRED_MAX:
            del self._repaired[next(iter(self._repaired))]

    def commit(self) -> None:
        if self._open:
            for log in self._due():
                self._save_bounds(log)
            self._commit()
            self._changed.clear()
            self._appended.clear()
            self._open = False

    def _due(self) -> set[str]:
        """Logs whose bounds this commit saves."""
        return self._changed | self._appended

    def _save_bounds(self, log: str) -> None:
        known = self._log(log)
        start, end = known.bounds.start, known.bounds.end
        self._save(known.id, log, start, end, bounds_sum(log, start, end))

    def rollback(self) -> None:
        self._repaired.clear()  # perhaps the other changes were not
        self._known.clear()
        self._changed.clear()
        self._appended.clear()
        if self._open:
            self._open = False
            self._rollback()

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        known = self._find(log)
        if known is None:
            return []
        bounds = known.bounds
        return self._rows(known.id, log, max(start, bounds.start), min(stop, bounds.end))

    def get(self, key: str) -> bytes | None:
        found = self._value(key)
        if found is None:
            return None
        checksum, value = found
        if not isinstance(value, bytes) or value_sum(key, value) != checksum:
            raise Damaged(f"the value of {key!r} in {self} is not what was put: restore it from another copy")
        return value

    def bounds(self, log: str) -> Bounds:
        known = self._find(log)
        return Bounds(0, 0, not self.unsure) if known is None else known.bounds

    def _rows(self, number: int, log: str, start: int, stop: int) -> list[bytes | None]:
        return checked(self._select(number, start, stop), log, start, stop)

    def _find(self, log: str) -> _Known | None:
        known = self._known.get(log)
        if known is None:
            found = self._load(log)
            if found is None:
                return None
            number, start, stop, checksum = found
            bounds = Bounds(start, stop, not self.unsure)
            if bounds_sum(log, start, stop) != checksum:
                first, last = self._span(number)
                bounds = Bounds(0 if first is None else first, 0 if last is None else last + 1, sure=False)
            known = self._known[log] = _Known(number, bounds)
        return known

    def _log(self, log: str) -> _Known:
        known = self._find(log)
        if known is None:
            number = self._new(log, bounds_sum(log, 0, 0))
            known = self._known[log] = _Known(number, Bounds(0, 0, not self.unsure))
        return known

    # Implemented by each database.

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _rollback(self) -> None: ...

    @abstractmethod
    def _insert(self, number: int, rows: Sequence[tuple[int, int, bytes]]) -> None: ...

    @abstractmethod
    def _remove(self, number: int, start: int, stop: int) -> None: ...

    @abstractmethod
    def _select(self, number: int, start: int, stop: int) -> Iterable[Stored]: ...

    @abstractmethod
    def _put(self, key: str, checksum: int, value: bytes) -> None: ...

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    @abstractmethod
    def _value(self, key: str) -> tuple[int, object] | None: ...

    @abstractmethod
    def _load(self, log: str) -> tuple[int, int, int, int] | None:
        """Number, start, stop and checksum of a log."""

    @abstractmethod
    def _span(self, number: int) -> tuple[int | None, int | None]:
        """The first and the last position that have a row."""

    @abstractmethod
    def _new(self, log: str, checksum: int) -> int:
        """A number without rows, for a new log."""

    @abstractmethod
    def _save(self, number: int, log: str, start: int, stop: int, checksum: int) -> None: ...


def checked(found: Iterable[Stored], log: str, start: int, stop: int) -> list[bytes | None]:
    """Rows in their places; None where one is missing or is not what was written there."""
    rows: list[bytes | None] = [None] * max(stop - start, 0)
    for position, checksum, row in found:
        if start <= position < stop and isinstance(row, bytes) and row_sum(log, position, row) == checksum:
            rows[position - start] = row
    return rows
