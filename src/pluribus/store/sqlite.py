"""The embedded store: one SQLite file, write-ahead log, full synchronisation: committed is on disk.

Rows carry a checksum of their own, because a disk can flip a bit without SQLite noticing; a row that does not match is
read as None, reported by the caller and repaired from another keeper. No data is deleted because it looks damaged.

SQLite itself drops the end of its write-ahead log in silence when a checksum in it is wrong. Beside the file there is
therefore a *mark*: how many commits were acknowledged. It is written after each of them and not synchronised, so it may
be old, but never ahead of the truth; a file with fewer commits than its mark has lost some, and says so in ``Bounds``.
The mark is also the lock that keeps a second process out. A file that is gone, or empty, although its mark counts
commits is refused: only ``fresh`` begins a new store, and the old files are set aside.

A bit that flips in SQLite's own structure, as in the key of a row, hides existing rows, and a repaired row is not found
either. A repair is therefore read again. It, and every write that SQLite refuses because the file is malformed, ends
with ``Damaged``; ``renew`` then sets the file aside and begins another.

A commit that only appends writes nothing but its rows, which carry the number of the commit above their checksum: the
last row tells where its log ends and how many commits there were. Both are written down with every other commit, and
before SQLite copies its log into the database, so that a page of the database that went bad is missed as well as one
of the log. If it is one row, which is the usual case, the statement that inserts it is the whole transaction.

The file says whose it is (``application_id``) and in which version (``user_version``, major * 1,000 + minor): a minor
version adds parts that older releases may ignore; an older major is brought up to date when it is opened; a later one
is refused, and so is a database of another program.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from zlib import crc32

from ..core.errors import BadInput, Damaged, Unavailable
from ..core.ports import Bounds, Change
from . import aside
from .ahead import AFTER_COMMITS, CHECKPOINT_BYTES, PAGE_BYTES, make_room
from .backend import Reader, bounds_sum, row_sum, value_sum
from .mark import Mark
from .tables import MAJOR, MINOR, VERSION, Stored, Tables, checked

APPLICATION_ID = int.from_bytes(b"Plrb", "big")
BACKUP_ID = int.from_bytes(b"PlrB", "big")
"""The mark of a copy, which must not be used as a store."""
POSITION_BITS = 40
"""A row's key is the number of its log above so many bits of position: appending goes to the end of a table."""
_MASK = (1 << POSITION_BITS) - 1
_SCHEMA = (
    "CREATE TABLE logs (id INTEGER PRIMARY KEY, log TEXT NOT NULL UNIQUE, start INTEGER NOT NULL,"
    " stop INTEGER NOT NULL, sum INTEGER NOT NULL)",
    "CREATE TABLE rows (at INTEGER PRIMARY KEY, sum INTEGER NOT NULL, row BLOB NOT NULL)",
    "CREATE TABLE keys (key TEXT PRIMARY KEY, sum INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE state (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO state VALUES ('commits', 0)",
)
_SUM_BITS = 32
_SUM_MASK = (1 << _SUM_BITS) - 1
_COMMIT_MASK = (1 << 31) - 1
_PAGES_MORE = 2
"""Pages that an append changes besides those that are full of its rows."""
READER_CACHE_KIB = 512
"""SQLite's page cache. Rows are mostly read only once: few pages, which stay in the processor's cache, are better than
many. A row of 112 kB costs 82 us, and 95 with the 2 MB that SQLite takes by itself."""
_INSERT = "INSERT INTO rows VALUES (?, ?, ?)"
_SELECT = "SELECT at, sum, row FROM rows WHERE at >= ? AND at < ?"

_Row = tuple[int, int, bytes]
_Run = Callable[[str, tuple[int, int]], sqlite3.Cursor]


class SqliteBackend(Tables):
    """``path`` is a file, made if it is not there; ``:memory:`` keeps nothing. ``fresh``: begin a new store in the
    place of one that is gone or cannot be read; the rest of the old one is set aside."""

    embedded = True

    def __init__(self, path: str | Path, *, fresh: bool = False) -> None:
        super().__init__()
        self._path = path
        self._mark: Mark | None = None
        if fresh:
            self._give_up()
        self._room_at = -1
        self._unbegun: list[_Row] | None = None
        """While a transaction is open of which SQLite does not know yet: the row with which it will begin, if any."""
        self._unsaved: set[str] = set()
        """Logs whose end is later than recorded."""
        self._recorded = 0
        """The recorded number of commits."""
        self._ahead_bytes = 0
        """Bytes of pages in SQLite's log, about."""
        self._full = False
        """True if the log was so large when the transaction began that it is copied into the database at its end."""
        self._open_file()

    def _open_file(self) -> None:
        path = str(self._path)
        if path != ":memory:" and self._mark is None:
            aside.put_in_place(path)
            marked = marked_commits(path)
            if marked and not os.path.exists(path):
                raise _gone(path, marked, "is gone")
        with self._told("be opened"):
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with self._told("be opened"):
                self._prepare()
        except Unavailable:
            self.close()
            raise

    def renew(self, changes: Sequence[Change]) -> str:
        """Set the file aside and begin another with these changes; returns the path of the old one."""
        path = str(self._path)
        if path == ":memory:":
            raise Unavailable("a store in memory cannot be set aside: name a file")
        self.rollback()
        with self._told("be built anew"):
            try:
                aside.remove_unfinished(path)
                with closing(SqliteBackend(aside.building(path))) as made:
                    made._commits = self._commits
                    made.write(changes)
                    made.commit()
                aside.finished(path)
                self._db.close()
                where = aside.set_aside(path)
                aside.put_in_place(path)
            except OSError as error:
                raise Unavailable(f"the store {path} cannot be built anew ({error}): look at its disk") from None
        self._unsaved, self._ahead_bytes = set(), 0
        self._full = self.laden = self.unsure = False
        self._open_file()
        self._note()
        return where

    def forget(self, log: str, at: int) -> None:
        """For a copy of a damaged store: mark a row as missing here, because it is missing there."""
        self._changed.add(log)
        self._remove(self._log(log).id, at, at + 1)

    def _give_up(self) -> None:
        """Set aside the files in the place of a store that begins anew, unless the store can be read."""
        path = str(self._path)
        if path == ":memory:":
            return
        if os.path.exists(path) or os.path.exists(f"{path}-wal"):
            try:
                SqliteBackend(path).close()
            except Damaged:
                pass  # broken, or gone
            else:
                raise BadInput(f"the store {path} can be read, so it is not given up: leave fresh out, or name another")
        lock = Mark(f"{path}-mark")
        try:
            aside.set_aside(path)
            lock.write(0)
        finally:
            lock.close()

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        with self._told("be read"):
            return super().read(log, start, stop)

    def get(self, key: str) -> bytes | None:
        with self._told("be read"):
            return super().get(key)

    def bounds(self, log: str) -> Bounds:
        with self._told("be read"):
            return super().bounds(log)

    def write(self, changes: Sequence[Change]) -> None:
        try:
            super().write(changes)
        except sqlite3.Error as error:
            raise _complaint(self._path, "be written", error) from None

    def commit(self) -> None:
        try:
            super().commit()
        except sqlite3.Error as error:
            raise _complaint(self._path, "be written", error) from None
        if self._full:
            with suppress(sqlite3.Error):  # it is committed all the same; a full disk is reported by the next write
                self._checkpoint()
        self._note()
        if self._commits == self._room_at:
            make_room(str(self._path), self._page_bytes)

    def reader(self) -> Reader | None:
        return None if str(self._path) == ":memory:" else SqliteReader(self._path)

    def close(self) -> None:
        if self._unsaved:
            with suppress(Unavailable), self._told("be closed"):
                self.rollback()
                self._begin()
                self._changed, self._open = self._unsaved.copy(), True
                super().commit()
                self._note()
        self._db.close()
        if self._mark is not None:
            self._mark.close()

    def __repr__(self) -> str:
        return f"the store {self._path}"

    def _prepare(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        owner = self._db.execute("PRAGMA application_id").fetchone()[0]
        empty = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0
        if owner == BACKUP_ID:
            raise Unavailable(
                f"{self._path} is a backup: `pluribus keepers restore` makes a store of it, for a new keeper"
            )
        if owner != APPLICATION_ID and not (empty and owner == version == 0):
            raise Unavailable(f"{self._path} is a database of another program: name a file that is not there yet")
        if not empty and version // 1_000 > MAJOR:
            raise Unavailable(
                f"{self._path} is a store of version {version // 1_000}.{version % 1_000}, this release writes "
                f"{MAJOR}.{MINOR}: use a release of the same major version"
            )
        if str(self._path) != ":memory:" and self._mark is None:
            self._mark = Mark(f"{self._path}-mark")
        marked = self._mark.read() if self._mark is not None else None
        if empty and marked:
            raise _gone(self._path, marked, "is empty")
        if empty:
            self._db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")  # see _checkpoint
        if empty or version // 1_000 < MAJOR:
            self._migrate(0 if empty else version // 1_000)
        self._page_bytes = int(self._db.execute("PRAGMA page_size").fetchone()[0])
        try:
            self._commits = self._counted()
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise
            self._commits, self.unsure = marked or 0, True  # readable data can be read; writing will report the rest
        if marked and not self._commits:
            raise _gone(self._path, marked, "is as new")
        if self._mark is not None and self._commits and (marked is None or marked > self._commits):
            self.unsure = True
            self._commits = max(self._commits, marked or 0)
        if self._mark is not None:
            self._room_at = self._commits + AFTER_COMMITS

    def _migrate(self, major: int) -> None:
        """From nothing or from an older major to this one, all of it or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        if major == 1:
            self._db.execute("ALTER TABLE rows RENAME TO rows_1")
            self._db.execute("ALTER TABLE keys RENAME TO keys_1")
        for statement in _SCHEMA:
            self._db.execute(statement)
        if major == 1:
            _copy_from_1(self._db)
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._db.execute("COMMIT")

    def _begin(self) -> None:
        self._unbegun = []
        self._full = self.laden

    def _begun(self) -> sqlite3.Connection:
        """Run for a statement of the transaction that is open, if there is one."""
        if self._unbegun is not None:
            rows, self._unbegun = self._unbegun, None
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(_INSERT, rows)
        return self._db

    def _run(self, statement: str, given: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._begun().execute(statement, given)

    def _due(self) -> set[str]:
        """The logs whose bounds must be saved. An append alone shows by its last row where the log ends; but not for
        longer than SQLite's log keeps it."""
        if self._appended and not self._changed and not self._full:
            return set()
        return self._changed | self._appended | self._unsaved

    def _commit(self) -> None:
        light = self._appended and not self._changed and not self._full
        if light and self._unbegun:
            self._db.execute(_INSERT, self._unbegun[0])
            self._unbegun = None
        else:
            if not light:
                self._run("UPDATE state SET number = ? WHERE name = 'commits'", (self._commits + 1,))
            self._run("COMMIT")
        self._commits += 1
        if light:
            self._unsaved |= self._appended
        else:
            self._unsaved.clear()
            self._recorded = self._commits

    def _checkpoint(self) -> None:
        """Copy SQLite's log into the database. Readers may keep it from copying all; the rest is copied next time."""
        self._full = False
        _, logged, copied = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._ahead_bytes = (logged - copied) * self._page_bytes
        self.laden = self._ahead_bytes >= CHECKPOINT_BYTES

    def _note(self) -> None:
        """Write the mark. It may lag: a full disk does not undo a commit."""
        if self._mark is not None:
            try:  # noqa: SIM105 - of every commit: a context manager costs half as much as the write
                self._mark.write(self._commits)
            except OSError:
                pass

    def _counted(self) -> int:
        """The number of commits in this file: as recorded, or by the last row of a log. Logs whose last row has a
        higher number are recorded with the next counted commit, because after it their rows prove nothing any more.
        """
        self._recorded = int(self._db.execute("SELECT number FROM state WHERE name = 'commits'").fetchone()[0])
        logs = self._db.execute("SELECT id, log FROM logs").fetchall()
        later = {log: self._last(number)[1] for number, log in logs}
        self._unsaved = {log for log, commits in later.items() if commits}
        return self._recorded + max(later.values(), default=0)

    def _last(self, number: int) -> tuple[int, int]:
        """The position of the last row of a log, and by how many commits it is later than the record; 0: it is not
        later, so the record is right."""
        base = number << POSITION_BITS
        statement = "SELECT at, sum FROM rows WHERE at >= ? AND at <= ? ORDER BY at DESC LIMIT 1"
        try:
            found = self._run(statement, (base, base | _MASK)).fetchone()
        except sqlite3.OperationalError:  # a disk that does not answer damages nothing
            raise
        except sqlite3.DatabaseError:  # its page is damaged
            return 0, 0
        if found is None or not isinstance(found[1], int):
            return 0, 0
        later = ((found[1] >> _SUM_BITS) - self._recorded) & _COMMIT_MASK
        return found[0] & _MASK, later if later <= _COMMIT_MASK // 2 else 0

    def _rollback(self) -> None:
        self._unbegun = None
        if self._db.in_transaction:
            with self._told("take back what it did not write"):
                self._db.execute("ROLLBACK")

    def _insert(self, number: int, rows: Sequence[_Row]) -> None:
        base = number << POSITION_BITS
        commit = ((self._commits + 1) & _COMMIT_MASK) << _SUM_BITS
        found = [(base | at, commit | sum_, row) for at, sum_, row in rows]
        if self._unbegun == [] and len(found) == 1:
            self._unbegun = found
        else:
            self._begun().executemany(_INSERT, found)
        self._ahead_bytes += sum([len(row) for _, _, row in rows]) + (len(rows) + _PAGES_MORE) * self._page_bytes
        self.laden = self._ahead_bytes >= CHECKPOINT_BYTES

    def _remove(self, number: int, start: int, stop: int) -> None:
        base = number << POSITION_BITS
        self._run("DELETE FROM rows WHERE at >= ? AND at < ?", (base | start, base | stop))

    def _select(self, number: int, start: int, stop: int) -> Iterable[Stored]:
        return selected(self._run, number, start, stop)

    def _put(self, key: str, checksum: int, value: bytes) -> None:
        self._run("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)", (key, checksum, value))

    def _delete(self, key: str) -> None:
        self._run("DELETE FROM keys WHERE key = ?", (key,))

    def _value(self, key: str) -> tuple[int, object] | None:
        found: tuple[int, object] | None
        found = self._run("SELECT sum, value FROM keys WHERE key = ?", (key,)).fetchone()
        return found

    def _load(self, log: str) -> tuple[int, int, int, int] | None:
        found: tuple[int, int, int, int] | None
        found = self._run("SELECT id, start, stop, sum FROM logs WHERE log = ?", (log,)).fetchone()
        if found is not None and found[3] == bounds_sum(log, found[1], found[2]):
            number, start, stop, _ = found
            last, later = self._last(number)
            if later and last >= stop:
                return number, start, last + 1, bounds_sum(log, start, last + 1)
            if last >= stop and self._rows(number, log, stop, stop + 1) != [None]:
                return number, start, stop, ~found[3]  # the row was appended, and the count of commits does not show it
        return found

    def _span(self, number: int) -> tuple[int | None, int | None]:
        base = number << POSITION_BITS
        statement = "SELECT MIN(at), MAX(at) FROM rows WHERE at >= ? AND at <= ?"
        first, last = self._run(statement, (base, base | _MASK)).fetchone()
        return (None, None) if first is None else (first & _MASK, last & _MASK)

    def _new(self, log: str, checksum: int) -> int:
        logs, rows = self._run("SELECT (SELECT MAX(id) FROM logs), (SELECT MAX(at) FROM rows)").fetchone()
        number = max(logs or 0, (rows or 0) >> POSITION_BITS) + 1
        self._run("INSERT INTO logs VALUES (?, ?, 0, 0, ?)", (number, log, checksum))
        return number

    def _save(self, number: int, log: str, start: int, stop: int, checksum: int) -> None:
        statement = "UPDATE logs SET start = ?, stop = ?, sum = ? WHERE id = ?"  # its index is not touched by this
        if not self._run(statement, (start, stop, checksum, number)).rowcount:
            self._run("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?)", (number, log, start, stop, checksum))

    def _told(self, what: str) -> _Told:
        return _Told(self._path, what)


class _Told:
    """SQLite's error as one sentence of ours."""

    __slots__ = ("_path", "_what")

    def __init__(self, path: str | Path, what: str) -> None:
        self._path = path
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise _complaint(self._path, self._what, error) from None


def marked_commits(path: str | Path) -> int:
    """The commits that the mark beside a store counts; 0 if there is none."""
    if not os.path.exists(f"{path}-mark"):
        return 0
    mark = Mark(f"{path}-mark")
    try:
        return mark.read() or 0
    finally:
        mark.close()


def _gone(path: str | Path, marked: int, what: str) -> Damaged:
    return Damaged(
        f"the store {path} {what}, but {marked:,} commits were acknowledged in it: put the file back, or begin anew as"
        f" a new keeper with fresh=True (`pluribus keep --fresh`)"
    )


def _is_broken(error: sqlite3.Error) -> bool:
    """True if SQLite reports that the file is not as it wrote it: malformed, no database, a key twice, a table gone."""
    if isinstance(error, sqlite3.OperationalError):  # errors of the disk, or of other users of the file
        return "no such table" in str(error)
    return isinstance(error, sqlite3.IntegrityError) or type(error) is sqlite3.DatabaseError


def _complaint(path: str | Path, what: str, error: sqlite3.Error) -> Unavailable:
    if _is_broken(error):
        return Damaged(
            f"the store {path} cannot {what}, its structure is damaged ({error}): other keepers put it back, or read"
            f" what is left of it with `pluribus keepers restore`"
        )
    return Unavailable(f"the store {path} cannot {what} ({error}): look at its disk and who else uses it")


class SqliteReader:
    """A connection that only reads, for another thread than the writer's."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA query_only = ON")
        self._db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        self._numbers: dict[str, int] = {}

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        """The caller knows that these rows were committed."""
        with _Told(self._path, "be read"):
            number = self._numbers.get(log)
            if number is None:
                found = self._db.execute("SELECT id FROM logs WHERE log = ?", (log,)).fetchone()
                number = self._numbers[log] = found[0]
            return checked(selected(self._db.execute, number, start, stop), log, start, stop)

    def close(self) -> None:
        self._db.close()


def selected(run: _Run, number: int, start: int, stop: int) -> Iterable[Stored]:
    """The rows that can be read: where a page of the file is damaged, each row that is not on it."""
    base = number << POSITION_BITS
    try:
        found = run(_SELECT, (base | start, base | max(stop, 0))).fetchall()
    except sqlite3.OperationalError:  # a disk that does not answer damages nothing
        raise
    except sqlite3.DatabaseError:
        if stop - start <= 1:
            return []
        middle = (start + stop) // 2
        return [*selected(run, number, start, middle), *selected(run, number, middle, stop)]
    return [(at & _MASK, _sum_of(checksum), row) for at, checksum, row in found]


def _sum_of(stored: object) -> int:
    return stored & _SUM_MASK if isinstance(stored, int) else -1


def _copy_from_1(db: sqlite3.Connection) -> None:
    """Migrate from version 1, which had no record of a log's bounds, and checksums of the bytes alone; damaged rows
    stay damaged."""

    def sealed(was: int, row: object, now: int) -> int:
        return now if isinstance(row, bytes) and crc32(row) == was else now ^ 1

    db.create_function("row_sum", 4, lambda log, at, was, row: sealed(was, row, row_sum(log, at, _bytes(row))))
    db.create_function("value_sum", 3, lambda key, was, value: sealed(was, value, value_sum(key, _bytes(value))))
    logs = db.execute("SELECT log, MAX(position) + 1 FROM rows_1 GROUP BY log ORDER BY log").fetchall()
    for number, (log, stop) in enumerate(logs, 1):
        db.execute("INSERT INTO logs VALUES (?, ?, 0, ?, ?)", (number, log, stop, bounds_sum(log, 0, stop)))
        db.execute(
            "INSERT INTO rows SELECT ? | position, row_sum(log, position, sum, row), row FROM rows_1 WHERE log = ?",
            (number << POSITION_BITS, log),
        )
    db.execute("INSERT INTO keys SELECT key, value_sum(key, sum, value), value FROM keys_1")
    db.execute("DROP TABLE rows_1")
    db.execute("DROP TABLE keys_1")


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
