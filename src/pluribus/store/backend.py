"""What a place for bytes must do, blocking; one thread uses it at a time.

Every record carries a checksum that covers its place as well as its bytes, so that a row which turns up where another
belongs is as damaged as one with a flipped bit. Where a log ends is a record, too: rows that are missing at the end are
told from rows that were never written.
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
    """A second look at a store from another thread, which waits for nobody: it sees what is committed."""

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]: ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Writes gather until ``commit``, which returns when all of them would survive a loss of power."""

    embedded: bool
    """Whether nothing but the disk is between it and a commit: no network, no server."""
    laden: bool
    """Whether the next commit has more to do than to write what it is given."""

    def write(self, changes: Sequence[Change]) -> None:
        """Raises ``BadInput`` for a change that does not fit the log, ``Unavailable`` for what the disk says, and
        ``Damaged`` if the store's structure is, so that no write will help. After each, roll back."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Forget what was not committed; the store is as it was."""

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]: ...

    def get(self, key: str) -> bytes | None: ...

    def bounds(self, log: str) -> Bounds: ...

    def renew(self, changes: Sequence[Change]) -> str:
        """Set everything aside and begin anew with these changes, committed; where the old store is."""

    def reader(self) -> Reader | None:
        """For another thread; None if the store cannot be read from two."""

    def close(self) -> None: ...


def row_sum(log: str, position: int, row: bytes) -> int:
    return crc32(row, crc32(log.encode()) ^ (position & 0xFFFF_FFFF) ^ (position >> 32))


def value_sum(key: str, value: bytes) -> int:
    return crc32(value, crc32(key.encode()))


def bounds_sum(log: str, start: int, end: int) -> int:
    return crc32(f"{log} {start} {end}".encode())


def bounds_after(change: Append | Cut | Trim | Restart | Repair | Replace, now: Bounds) -> Bounds:
    """The bounds of a log when this is done, or ``BadInput`` if it cannot be done."""
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
