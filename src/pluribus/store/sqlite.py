"""The embedded store: one SQLite file, write-ahead log, full synchronisation: committed is on disk.

Rows carry a checksum of their own, because a disk can flip a bit without SQLite noticing; a row that does not match is
read as None, reported by the caller and repaired from elsewhere. Nothing is deleted because it looks wrong.

The file says whose it is (``application_id``) and in which version (``user_version``, major * 1,000 + minor): a minor
adds what older releases may ignore, another major is refused, and so is a database of another program.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from ..core.errors import Unavailable

MAJOR, MINOR = 1, 0
VERSION = MAJOR * 1_000 + MINOR
APPLICATION_ID = int.from_bytes(b"Plrb", "big")
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
        self._path = path
        self._ends: dict[str, int] = {}
        self._open = False
        with self._told("be opened"):
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with self._told("be opened"):
                self._prepare()
        except Unavailable:
            self._db.close()
            raise

    def append(self, log: str, rows: Sequence[bytes]) -> None:
        with self._told("be written"):
            self._begin()
            start = self.end(log)
            self._ends[log] = start + len(rows)
            self._db.executemany(
                "INSERT INTO rows VALUES (?, ?, ?, ?)",
                [(log, position, crc32(row), row) for position, row in enumerate(rows, start)],
            )

    def put(self, key: str, value: bytes) -> None:
        with self._told("be written"):
            self._begin()
            self._db.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)", (key, crc32(value), value))

    def commit(self) -> None:
        if self._open:
            with self._told("be written"):
                self._db.execute("COMMIT")
            self._open = False

    def rollback(self) -> None:
        self._ends.clear()
        if self._open:
            self._open = False
            if self._db.in_transaction:
                with self._told("take back what it did not write"):
                    self._db.execute("ROLLBACK")

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        start, stop = max(start, 0), min(stop, self.end(log))
        with self._told("be read"):
            found = self._db.execute(
                "SELECT position, sum, row FROM rows WHERE log = ? AND position >= ? AND position < ?",
                (log, start, stop),
            ).fetchall()
        rows: list[bytes | None] = [None] * max(stop - start, 0)  # a row that is missing in the middle is damage, too
        for position, checksum, row in found:
            rows[position - start] = _whole(row, checksum)
        return rows

    def get(self, key: str) -> bytes | None:
        with self._told("be read"):
            found = self._db.execute("SELECT sum, value FROM keys WHERE key = ?", (key,)).fetchone()
        return None if found is None else _whole(found[1], found[0])

    def end(self, log: str) -> int:
        end = self._ends.get(log)
        if end is None:
            with self._told("be read"):
                last = self._db.execute("SELECT MAX(position) FROM rows WHERE log = ?", (log,)).fetchone()[0]
            end = self._ends[log] = 0 if last is None else last + 1
        return end

    def close(self) -> None:
        self._db.close()

    def _prepare(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        owner = self._db.execute("PRAGMA application_id").fetchone()[0]
        empty = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
        if owner != APPLICATION_ID and not (empty and owner == version == 0):
            raise Unavailable(f"{self._path} is a database of another program: name a file that is not there yet")
        if not empty and version // 1_000 != MAJOR:
            raise Unavailable(
                f"{self._path} is a store of version {version // 1_000}.{version % 1_000}, this release writes "
                f"{MAJOR}.{MINOR}: use a release of the same major version"
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        if empty:
            self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _begin(self) -> None:
        if not self._open:
            self._db.execute("BEGIN IMMEDIATE")
            self._open = True

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """SQLite's complaint as one sentence of ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(
                f"the store {self._path} cannot {what} ({error}): look at its disk and who else uses it"
            ) from None


def _whole(row: object, checksum: int) -> bytes | None:
    return row if isinstance(row, bytes) and crc32(row) == checksum else None
