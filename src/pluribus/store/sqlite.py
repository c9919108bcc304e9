"""The embedded store: one SQLite file, write-ahead log, full synchronisation: committed is on disk.

Rows carry a checksum of their own, because a disk can flip a bit without SQLite noticing; a row that does not match is
read as None, reported by the caller and repaired from elsewhere. Nothing is deleted because it looks wrong.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from ..core.errors import Unavailable

VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    log TEXT NOT NULL, position INTEGER NOT NULL, sum INTEGER NOT NULL, row BLOB NOT NULL,
    PRIMARY KEY (log, position)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, sum INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;
"""


class SqliteBackend:
    """``path`` is a file, made if it is not there; ``:memory:`` keeps nothing."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                self._db.close()
                raise Unavailable(
                    f"{path} is a store of version {version}, this release writes {VERSION}: update Pluribus"
                )
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error as error:
            raise Unavailable(f"{path} cannot be opened as a store ({error}): name a writable file of ours") from None
        self._ends: dict[str, int] = {}
        self._open = False

    def append(self, log: str, rows: Sequence[bytes]) -> None:
        self._begin()
        start = self.end(log)
        self._ends[log] = start + len(rows)
        self._db.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?)",
            [(log, position, crc32(row), row) for position, row in enumerate(rows, start)],
        )

    def put(self, key: str, value: bytes) -> None:
        self._begin()
        self._db.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)", (key, crc32(value), value))

    def commit(self) -> None:
        if self._open:
            self._db.execute("COMMIT")
            self._open = False

    def rollback(self) -> None:
        self._ends.clear()
        if self._open:
            self._open = False
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        found = self._db.execute(
            "SELECT sum, row FROM rows WHERE log = ? AND position >= ? AND position < ? ORDER BY position",
            (log, start, stop),
        )
        return [row if crc32(row) == checksum else None for checksum, row in found]

    def get(self, key: str) -> bytes | None:
        found = self._db.execute("SELECT sum, value FROM keys WHERE key = ?", (key,)).fetchone()
        return None if found is None or crc32(found[1]) != found[0] else bytes(found[1])

    def end(self, log: str) -> int:
        end = self._ends.get(log)
        if end is None:
            last = self._db.execute("SELECT MAX(position) FROM rows WHERE log = ?", (log,)).fetchone()[0]
            end = self._ends[log] = 0 if last is None else last + 1
        return end

    def close(self) -> None:
        self._db.close()

    def _begin(self) -> None:
        if not self._open:
            self._db.execute("BEGIN IMMEDIATE")
            self._open = True
