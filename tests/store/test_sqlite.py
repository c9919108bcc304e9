"""The SQLite store meets damage, strangers and other releases: it says what it found and deletes nothing."""

import errno
import shutil
import sqlite3
from contextlib import closing
from zlib import crc32

import pytest

from pluribus.core.errors import Damaged, Unavailable
from pluribus.core.ports import Append, Bounds, Put, Repair
from pluribus.store import mark
from pluribus.store.ahead import AFTER_COMMITS, CHECKPOINT_BYTES, PAGE_BYTES, make_room, room_bytes
from pluribus.store.sqlite import APPLICATION_ID, POSITION_BITS, SqliteBackend
from pluribus.store.tables import MAJOR, MINOR, VERSION

ROWS = [b"row %d" % number for number in range(5)]


@pytest.fixture
def path(tmp_path):
    """A store with five rows and two keys."""
    path = tmp_path / "store.db"
    with closing(SqliteBackend(path)) as backend:
        backend.write([Append("log", ROWS), Put("key", b"value"), Put("other", b"x")])
        backend.commit()
    return path


def at(position):
    """The key of a row of the first log."""
    return (1 << POSITION_BITS) | position


def tamper(path, *statements):
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def refused(path):
    with pytest.raises(Unavailable) as caught:
        SqliteBackend(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_committed_means_synchronised(path):
    with closing(SqliteBackend(path)) as backend:
        settings = [backend._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert settings == ["wal", 2]


@pytest.mark.parametrize(
    "damage",
    [
        f"UPDATE rows SET row = x'726f772033' WHERE at = {at(2)}",  # the bytes of another row
        f"UPDATE rows SET row = 'row 2' WHERE at = {at(2)}",  # text, which is no row
        f"UPDATE rows SET sum = sum + 1 WHERE at = {at(2)}",
        f"UPDATE rows SET row = x'' WHERE at = {at(2)}",
        f"DELETE FROM rows WHERE at = {at(2)}",
        f"UPDATE rows SET at = {at(77)} WHERE at = {at(2)}",
    ],
)
def test_a_damaged_row_is_read_as_none_and_the_others_keep_their_places(path, damage):
    tamper(path, damage)
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == [ROWS[0], ROWS[1], None, ROWS[3], ROWS[4]]
        assert list(backend.read("log", 2, 3)) == [None]
        assert backend.bounds("log") == Bounds(0, 5)
        backend.write([Append("log", [b"next"])])
        backend.commit()
        assert list(backend.read("log", 4, 9)) == [ROWS[4], b"next"]
        backend.write([Repair("log", 2, ROWS[2])])
        backend.commit()
        assert list(backend.read("log", 0, 9)) == [*ROWS, b"next"]


def test_a_flipped_bit_in_the_file_itself_is_found(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    at = content.index(b"row 3") + 4
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == [*ROWS[:3], None, ROWS[4]]


def test_rows_that_are_missing_at_the_end_are_known_to_be(path):
    tamper(path, f"DELETE FROM rows WHERE at >= {at(3)}")
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 5)
        assert list(backend.read("log", 0, 9)) == [*ROWS[:3], None, None]


@pytest.mark.parametrize("damage", ["stop = 4", "start = 1", "sum = 0"])
def test_a_record_of_the_bounds_that_is_damaged_is_not_believed(path, damage):
    tamper(path, f"UPDATE logs SET {damage}", f"DELETE FROM rows WHERE at = {at(4)}")
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 4, sure=False)
        assert list(backend.read("log", 0, 9)) == ROWS[:4]


def test_a_log_whose_record_is_gone_gets_no_rows_of_the_old_one(path):
    tamper(path, "DELETE FROM logs")
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 0)
        backend.write([Append("log", [b"new"])])
        backend.commit()
        assert list(backend.read("log", 0, 9)) == [b"new"]


def test_a_damaged_value_is_told_from_a_missing_one(path):
    tamper(path, "UPDATE keys SET value = x'00' WHERE key = 'key'")
    with closing(SqliteBackend(path)) as backend:
        with pytest.raises(Damaged, match="the value of 'key'"):
            backend.get("key")
        assert backend.get("missing") is None
        assert backend.get("other") == b"x"


def copied(path, to):
    """The files of a store that is in use, as a crash would leave them."""
    to.mkdir()
    for suffix in ("", "-wal", "-mark"):
        shutil.copy(f"{path}{suffix}", to / f"store.db{suffix}")
    return to / "store.db"


def test_commits_that_sqlite_drops_in_silence_are_missed(path, tmp_path):
    with closing(SqliteBackend(path)) as backend:
        for number in range(5, 35):
            backend.write([Append("log", [b"row %d" % number])])
            backend.commit()
        whole, flipped, gone = (copied(path, tmp_path / name) for name in ("whole", "flipped", "gone"))
    with closing(SqliteBackend(whole)) as backend:
        assert backend.bounds("log") == Bounds(0, 35)
    wal = flipped.with_name("store.db-wal")
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 1
    wal.write_bytes(content)
    gone.with_name("store.db-wal").unlink()
    for shortened, least in ((flipped, 5), (gone, 5)):
        with closing(SqliteBackend(shortened)) as backend:
            bounds = backend.bounds("log")
            assert least <= bounds.end < 35
            assert not bounds.sure
            assert not backend.bounds("a log that may have been there").sure


def test_a_store_without_its_mark_is_not_sure(path):
    path.with_name("store.db-mark").unlink()
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 5, sure=False)
        backend.write([Put("key", b"more")])
        backend.commit()
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 5)


def test_a_second_process_is_kept_out(path):
    with closing(SqliteBackend(path)):
        assert "another process uses this store" in refused(path)
    SqliteBackend(path).close()


def test_a_page_that_is_damaged_takes_only_its_own_rows(path):
    with closing(SqliteBackend(path)) as backend:
        backend.write([Append("long", [b"%04d" % number * 1_000 for number in range(100)])])
        backend.commit()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    page = content.index(b"0050" * 900) // PAGE_BYTES * PAGE_BYTES
    content[page : page + 8] = b"\xff" * 8
    path.write_bytes(content)
    with closing(SqliteBackend(path)) as backend:
        rows = backend.read("long", 0, 100)
        assert len(rows) == 100
        assert 1 <= rows.count(None) <= 8
        assert all(row is None or row == b"%04d" % number * 1_000 for number, row in enumerate(rows))


OLD_SCHEMA = """
CREATE TABLE rows (log TEXT NOT NULL, position INTEGER NOT NULL, sum INTEGER NOT NULL, row BLOB NOT NULL,
    PRIMARY KEY (log, position)) WITHOUT ROWID;
CREATE TABLE keys (key TEXT PRIMARY KEY, sum INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;
"""


def test_a_store_of_version_1_is_brought_up_to_date(tmp_path):
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(OLD_SCHEMA)
        for log in ("log", "other"):
            rows = [(log, number, crc32(row), row) for number, row in enumerate(ROWS)]
            database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
        database.execute("UPDATE rows SET row = x'00' WHERE log = 'other' AND position = 2")
        database.execute("INSERT INTO keys VALUES ('key', ?, ?), ('bad', 1, x'00')", (crc32(b"value"), b"value"))
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute("PRAGMA user_version = 1000")
        database.commit()
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == ROWS
        assert list(backend.read("other", 0, 9)) == [*ROWS[:2], None, *ROWS[3:]], "damaged before is damaged after"
        assert backend.bounds("log") == Bounds(0, 5)
        assert backend.get("key") == b"value"
        with pytest.raises(Damaged):
            backend.get("bad")
        backend.write([Append("log", [b"next"], at=5)])
        backend.commit()
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 6)


def test_a_later_major_is_refused_and_left_alone(path):
    tamper(path, f"PRAGMA user_version = {(MAJOR + 1) * 1_000 + 3}")
    assert f"version {MAJOR + 1}.3, this release writes {MAJOR}.{MINOR}" in refused(path)
    tamper(path, f"PRAGMA user_version = {VERSION}")
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == ROWS


def test_a_later_minor_is_welcome_and_keeps_its_number(path):
    tamper(path, f"PRAGMA user_version = {VERSION + 1}", "CREATE TABLE later (x)")
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == ROWS
        assert backend._db.execute("PRAGMA user_version").fetchone()[0] == VERSION + 1


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "theirs.db"
    tamper(path, "CREATE TABLE theirs (x)", "INSERT INTO theirs VALUES (1)")
    before = path.read_bytes()
    assert "another program" in refused(path)
    assert path.read_bytes() == before


def test_what_is_no_database_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "text.db"
    path.write_text("no database " * 100)
    assert "cannot be opened" in refused(path)
    assert "cannot be opened" in refused(tmp_path)
    assert "cannot be opened" in refused(tmp_path / "nowhere" / "store.db")


def test_a_store_that_another_process_is_writing_to_says_so(path, monkeypatch):
    with closing(SqliteBackend(path)) as backend, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        backend._db.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(Unavailable, match=r"cannot be written \(database is locked\)"):
            backend.write([Append("log", [b"x"])])
        backend.rollback()
        other.execute("ROLLBACK")
        backend.write([Append("log", [b"x"])])
        backend.commit()
        assert backend.bounds("log") == Bounds(0, 6)


def test_a_full_disk_is_told_and_nothing_is_half_written(path):
    with closing(SqliteBackend(path)) as backend:
        pages = backend._db.execute("PRAGMA page_count").fetchone()[0]
        backend._db.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(Unavailable, match="full"):
            backend.write([Append("log", [b"x" * 100_000])])
        backend.rollback()
        assert backend.bounds("log") == Bounds(0, 5)
        assert list(backend.read("log", 0, 9)) == ROWS


def test_a_row_alone_is_one_statement_and_all_or_nothing_too(path):
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 5)
        pages = backend._db.execute("PRAGMA page_count").fetchone()[0]
        backend._db.execute(f"PRAGMA max_page_count = {pages + 1}")
        backend.write([Append("log", [b"x" * 100_000])])
        with pytest.raises(Unavailable, match="full"):
            backend.commit()
        backend.rollback()
        assert backend.bounds("log") == Bounds(0, 5)
        backend._db.execute("PRAGMA max_page_count = 1000000")
        said: list[str] = []
        backend._db.set_trace_callback(said.append)
        backend.write([Append("log", [b"more"])])
        backend.commit()
        assert [statement.split()[0] for statement in said] == ["INSERT"]
        said.clear()
        backend.write([Append("log", [b"and"]), Append("log", [b"more"])])
        backend.commit()
        assert [statement.split()[0] for statement in said] == ["BEGIN", "INSERT", "INSERT", "COMMIT"]
        assert list(backend.read("log", 0, 9)) == [*ROWS, b"more", b"and", b"more"]
    with closing(SqliteBackend(path)) as again:
        assert again.bounds("log") == Bounds(0, 8)


def test_the_file_says_whose_it_is(path):
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        assert database.execute("PRAGMA user_version").fetchone()[0] == VERSION


def test_a_store_that_is_written_to_has_room_in_its_log_before_it_needs_it(tmp_path):
    backend = SqliteBackend(tmp_path / "roomy.db")
    log = tmp_path / "roomy.db-wal"
    rows = [bytes([number]) * 3_000 for number in range(2 * AFTER_COMMITS)]
    for row in rows:
        backend.write([Append("log", (row,))])
        backend.commit()
    assert log.stat().st_size == room_bytes(PAGE_BYTES)
    for name in ("roomy.db", "roomy.db-wal", "roomy.db-mark"):  # as a crash would leave it
        (tmp_path / name.replace("roomy", "crashed")).write_bytes((tmp_path / name).read_bytes())
    backend.close()
    crashed = SqliteBackend(tmp_path / "crashed.db")
    assert list(crashed.read("log", 0, len(rows))) == rows and crashed.bounds("log").sure
    crashed.close()


def test_no_room_is_no_error(tmp_path):
    make_room(str(tmp_path / "nowhere.db"), PAGE_BYTES)
    assert not list(tmp_path.iterdir())


def appended(path, rows):
    """Written by commits that only append, and left as a crash would."""
    backend = SqliteBackend(path)
    for row in rows:
        backend.write([Append("log", (row,))])
        backend.commit()
    crashed = path.with_name("crashed.db")
    for name in ("", "-wal", "-mark"):
        shutil.copy(f"{path}{name}", f"{crashed}{name}")
    backend.close()
    return crashed


def test_appended_rows_tell_where_their_log_ends_and_how_many_commits_there_were(path):
    crashed = appended(path, [b"more"] * 9)
    with closing(SqliteBackend(crashed)) as backend:
        assert backend.bounds("log") == Bounds(0, 14, sure=True)
    tamper(crashed, f"UPDATE rows SET row = x'00' WHERE at = {at(13)}")
    with closing(SqliteBackend(crashed)) as backend:
        assert backend.bounds("log").end == 14 and list(backend.read("log", 12, 14)) == [b"more", None]


@pytest.mark.parametrize("again", ["closed", "crashed"])
def test_appended_rows_outlive_a_crash_and_the_next_start_too(path, tmp_path, again):
    crashed = appended(path, [b"more"] * 9)
    with closing(SqliteBackend(crashed)) as backend:
        backend.write([Put("key", b"of the next start, which appends nothing")])
        backend.commit()
        if again == "crashed":
            crashed = copied(crashed, tmp_path / "again")
    with closing(SqliteBackend(crashed)) as backend:
        assert backend.bounds("log") == Bounds(0, 14, sure=True)
        assert list(backend.read("log", 0, 14)) == [*ROWS, *[b"more"] * 9]


def test_a_last_row_that_is_gone_is_missed_by_the_mark(path):
    crashed = appended(path, [b"more"] * 9)
    tamper(crashed, f"DELETE FROM rows WHERE at >= {at(12)}")
    with closing(SqliteBackend(crashed)) as backend:
        assert not backend.bounds("log").sure


def test_what_is_copied_into_the_database_is_written_down(path):
    crashed = appended(path, [bytes(400_000)] * (CHECKPOINT_BYTES // 400_000 + 2))
    with closing(sqlite3.connect(crashed)) as database:
        (stop,) = database.execute("SELECT stop FROM logs").fetchone()
        rows, last = database.execute("SELECT COUNT(*), MAX(at) FROM rows").fetchone()
    assert rows - 5 <= stop <= rows and last == at(rows - 1)
    with closing(SqliteBackend(crashed)) as backend:
        assert backend.bounds("log") == Bounds(0, rows, sure=True)


def test_when_the_log_is_full_the_next_commit_says_so_and_copies_it(tmp_path):
    with closing(SqliteBackend(tmp_path / "laden.db")) as backend:
        laden = []
        for _ in range(CHECKPOINT_BYTES // (1 << 20) + 1):
            backend.write([Append("log", (bytes(1 << 20),))])
            backend.commit()
            laden.append(backend.laden)
        copied = laden.index(True) + 1
        assert not any(laden[:-2]) and laden[copied:] == [False] * len(laden[copied:]) and copied < len(laden)


class _FullAtCheckpoints:
    """A connection to a database on a disk that has no room but in SQLite's log."""

    def __init__(self, db):
        self._db = db

    def execute(self, statement, *given):
        if "wal_checkpoint" in statement:
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.execute(statement, *given)

    def __getattr__(self, name):
        return getattr(self._db, name)


def test_a_commit_whose_log_cannot_be_copied_into_the_database_is_a_commit(tmp_path):
    backend = SqliteBackend(tmp_path / "full.db")
    backend._db = _FullAtCheckpoints(backend._db)
    for number in range(10):
        backend.write([Append("log", (bytes(1 << 20),), number)])
        backend.commit()
    assert backend.bounds("log").end == 10
    backend.close()
    again = SqliteBackend(tmp_path / "full.db")
    assert again.bounds("log") == Bounds(0, 10)
    again.close()


def test_a_commit_whose_mark_cannot_be_written_is_a_commit(path, monkeypatch):
    refused = []

    def full(file, data, at):
        refused.append(data)
        raise OSError(errno.ENOSPC, "no space left on device")

    backend = SqliteBackend(path)
    with monkeypatch.context() as patched:
        patched.setattr(mark, "_write", full)
        backend.write([Append("log", [b"more"], at=5)])
        backend.commit()
        backend.close()
    assert refused
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 6, sure=True)
        assert list(backend.read("log", 5, 6)) == [b"more"]


def test_where_a_file_cannot_be_written_at_a_place_the_mark_is_written_all_the_same(path, monkeypatch):
    monkeypatch.setattr(mark, "_write", mark._seek_and_write)
    with closing(SqliteBackend(path)) as backend:
        backend.write([Append("log", [b"more"], at=5)])
        backend.commit()
    with closing(mark.Mark(f"{path}-mark")) as found:
        assert found.read() == backend._commits


def test_a_reader_that_cannot_read_says_so_in_our_words(tmp_path):
    store = SqliteBackend(tmp_path / "kept.db")
    store.write([Append("log", (b"row",))])
    store.commit()
    reader = store.reader()
    assert reader is not None and list(reader.read("log", 0, 1)) == [b"row"]
    reader._db.set_progress_handler(lambda: 1, 1)  # as a disk that does not answer
    with pytest.raises(Unavailable, match=r"kept\.db cannot be read"):
        reader.read("log", 0, 1)
    reader.close()
    store.close()
