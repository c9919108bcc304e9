"""Copies of a SQLite store: copying while the store is written to, and reading the readable part of a copy.

A copy is taken with SQLite's own means, in one reading transaction, by any process, while writers go on. It is marked
as a copy, because a store that is restored to an older state must not go on under its old name.

Reading is patient. A row is looked for at its place, and if it is not found there, by going through the whole table: a
flipped bit in one key hides the rows around it from a search, but not from a scan of the whole table. Every row and
value that is returned is as it was written: each has its checksum.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from ..core.errors import Unavailable
from ..core.ports import Append, Put, Restart
from .backend import bounds_sum, row_sum, value_sum
from .sqlite import APPLICATION_ID, BACKUP_ID, POSITION_BITS, SqliteBackend, selected
from .tables import MAJOR, checked

CHUNK_ROWS = 64
_MASK = (1 << POSITION_BITS) - 1
_SUM_MASK = (1 << 32) - 1


def copy_store(store: str, to: str) -> int:
    """Copy a store to a file that is not there yet, marked as a copy; returns its bytes. ``Unavailable`` says why
    not."""
    if not os.path.exists(store):
        raise Unavailable(f"there is no store {store}: name the file that the keeper was started with")
    if os.path.lexists(to):
        raise Unavailable(f"{to} is there already: name a file that is not")
    made = f"{to}-building"
    with suppress(FileNotFoundError):
        os.unlink(made)
    try:
        with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(made)) as target:
            if source.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise Unavailable(f"{store} is no store of a keeper: name the file that it was started with")
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            target.execute(f"PRAGMA application_id = {BACKUP_ID}")
        _sync(made)
        os.rename(made, to)
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, Unavailable):
            raise
        raise Unavailable(f"{store} cannot be copied to {to} ({error}): look at both disks") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(made)
    return os.path.getsize(to)


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Salvage:
    """Reads the readable part of a backup, of a store that is not in use, or of one that was set aside. Close it."""

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            raise Unavailable(f"there is no file {path}: name a backup, or a store")
        self._path = path
        self._db = sqlite3.connect(path)
        try:
            self._db.execute("PRAGMA query_only = ON")
            owner = self._db.execute("PRAGMA application_id").fetchone()[0]
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            self.close()
            raise Unavailable(f"{path} cannot be read ({error}): try another copy") from None
        if owner not in (APPLICATION_ID, BACKUP_ID) or version // 1_000 != MAJOR:
            self.close()
            raise Unavailable(f"{path} is no store or backup of this release's version: try another copy")
        self._hidden: dict[int, bytes] | None = None

    def get(self, key: str) -> bytes | None:
        """The value; None if there is none, or if it cannot be read."""
        try:
            found = self._db.execute("SELECT sum, value FROM keys WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error:
            found = None
        if found is None:  # a damaged key may hide it from the search
            found = next(((s, v) for k, s, v in self._all("SELECT key, sum, value FROM keys") if k == key), None)
        if found is None or not isinstance(found[1], bytes) or value_sum(key, found[1]) != found[0]:
            return None
        return found[1]

    def bounds(self, log: str) -> tuple[int, int]:
        """The bounds as recorded, with later appends; else as the rows show them."""
        number, start, stop, known = self._log(log)
        if known:
            while list(self.rows(log, stop, stop + 1)) != [None]:
                stop += 1
            return start, stop
        every = self._all("SELECT at FROM rows")
        positions = {at & _MASK for (at,) in every if isinstance(at, int) and at >> POSITION_BITS == number}
        return (min(positions), max(positions) + 1) if positions else (0, 0)

    def rows(self, log: str, start: int, stop: int) -> Iterator[bytes | None]:
        """None where a row cannot be read."""
        number, *_ = self._log(log)
        for first in range(start, stop, CHUNK_ROWS):
            last = min(first + CHUNK_ROWS, stop)
            try:
                found = checked(selected(self._db.execute, number, first, last), log, first, last)
            except sqlite3.Error:
                found = [None] * (last - first)
            for place, row in enumerate(found):
                yield row if row is not None else self._found(number, log, first + place)

    def close(self) -> None:
        self._db.close()

    def _log(self, log: str) -> tuple[int, int, int, bool]:
        for number, name, start, stop, checksum in self._all("SELECT id, log, start, stop, sum FROM logs"):
            if name == log and isinstance(number, int) and isinstance(start, int) and isinstance(stop, int):
                return number, start, stop, bounds_sum(log, start, stop) == checksum
        return 1, 0, 0, False  # the first log that a store had, and mostly the only one

    def _found(self, number: int, log: str, at: int) -> bytes | None:
        """A row that a search does not find, found by a scan."""
        if self._hidden is None:
            self._hidden = {
                found & _MASK: row
                for found, checksum, row in self._all("SELECT at, sum, row FROM rows")
                if isinstance(found, int)
                and isinstance(checksum, int)
                and isinstance(row, bytes)
                and found >> POSITION_BITS == number
                and row_sum(log, found & _MASK, row) == checksum & _SUM_MASK
            }
        return self._hidden.get(at)

    def _all(self, statement: str) -> Iterator[Sequence[object]]:
        """Every row, up to the place where the file cannot be read."""
        with suppress(sqlite3.Error):
            yield from self._db.execute(statement)


def build_store(path: str, values: Mapping[str, bytes], log: str, start: int, rows: Iterable[bytes | None]) -> int:
    """A new store with these values and this log; where a row is None it stays missing. Returns how many are
    missing."""
    missing = 0
    with closing(SqliteBackend(path)) as backend:
        backend.write([Restart(log, start)])
        at, chunk = start, list[bytes | None]()

        def write() -> None:
            nonlocal at, missing
            backend.write([Append(log, [row or b"" for row in chunk])])
            for place, row in enumerate(chunk, at):
                if row is None:
                    backend.forget(log, place)
                    missing += 1
            backend.commit()
            at += len(chunk)
            chunk.clear()

        for row in rows:
            chunk.append(row)
            if len(chunk) >= CHUNK_ROWS:
                write()
        write()
        backend.write([Put(key, value) for key, value in values.items()])
        backend.commit()
    return missing
