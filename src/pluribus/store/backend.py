"""The interface of a store's backend. Its calls block; one thread uses it at a time.

Every record carries a checksum that covers its place as well as its bytes, so that a row which turns up where another
belongs is as damaged as one with a flipped bit. The end of a log is a record, too: so missing rows at the end are
distinguished from rows that were never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from zlib import crc32

from ..core.errors import BadInput
from ..core.ports import Append, Bounds, Change, Cut, Repair, Replace, Restart, Trim

POSITIONS_MAX = 1 << 40
"""Rows that a log may ever have had."""


class Reader(Protocol):
    """A second connection to a store, for another thread, which blocks nobody: it sees committed data."""

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]: ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Writes gather until ``commit``, which returns when all of them would survive a loss of power."""

    embedded: bool
    """True if only the disk is between the backend and a commit: no network, no server."""
    laden: bool
    """True if the next commit has more to do than to write its changes."""

    def write(self, changes: Sequence[Change]) -> None:
        """Raises ``BadInput`` for a change that does not fit the log, ``Unavailable`` for an error of the disk, and
        ``Damaged`` if the store's structure is damaged, so that no write will help. After each of them, roll back."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Forget changes that were not committed."""

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]: ...

    def get(self, key: str) -> bytes | None: ...

    def bounds(self, log: str) -> Bounds: ...

    def renew(self, changes: Sequence[Change]) -> str:
        """Set everything aside and begin a new store with these changes, committed; returns the path of the old
        store."""

    def reader(self) -> Reader | None:
        """A reader for another thread; None if two threads cannot read the store."""

    def close(self) -> None: ...


def row_sum(log: str, position: int, row: bytes) -> int:
    return crc32(row, crc32(log.encode()) ^ (position & 0xFFFF_FFFF) ^ (position >> 32))


def value_sum(key: str, value: bytes) -> int:
    return crc32(value, crc32(key.encode()))


def bounds_sum(log: str, start: int, end: int) -> int:
    return crc32(f"{log} {start} {end}".encode())


def bounds_after(change: Append | Cut | Trim | Restart | Repair | Replace, now: Bounds) -> Bounds:
    """The bounds of a log after this change; ``BadInput`` if the change is impossible."""
    start, end, log = now.start, now.end, change.log
    if isinstance(change, Append):
        if change.at is not None and change.at != end:
            raise BadInput(f"rows for position {change.at} of log {log!r} do not fit, it ends at {end}: read it again")
        end += len(change.rows)
        if end > POSITIONS_MAX:
            raise BadInput(f"log {log!r} would have {end:,} rows, the limit is {POSITIONS_MAX:,}: begin another")
    elif isinstance(change, Cut):
        if not start <= change.end <= end:
            raise BadInput(f"log {log!r} cannot be cut at {change.end}: it has rows from {start} up to {end}")
        end = change.end
    elif isinstance(change, Trim):
        if not start <= change.start < POSITIONS_MAX:
            raise BadInput(f"log {log!r} cannot be trimmed to {change.start}: it starts at {start} already")
        start, end = change.start, max(end, change.start)
    elif isinstance(change, Restart):
        if not 0 <= change.at < POSITIONS_MAX:
            raise BadInput(f"log {log!r} cannot start at {change.at}: use 0 to {POSITIONS_MAX - 1:,}")
        start = end = change.at
    elif not start <= change.at < end:
        to_do = "repair" if isinstance(change, Repair) else "replace"
        raise BadInput(f"log {log!r} has no row {change.at} to {to_do}: it has rows from {start} up to {end}")
    return Bounds(start, end, now.sure)
