"""The SQLite store meets damage, strangers and other releases: it says what it found and deletes nothing."""

import sqlite3
from contextlib import closing

import pytest

from pluribus.core.errors import Unavailable
from pluribus.store.sqlite import APPLICATION_ID, MAJOR, MINOR, VERSION, SqliteBackend

ROWS = [b"row %d" % number for number in range(5)]


@pytest.fixture
def path(tmp_path):
    """A store with five rows and two keys."""
    path = tmp_path / "store.db"
    with closing(SqliteBackend(path)) as backend:
        backend.append("log", ROWS)
        backend.put("key", b"value")
        backend.put("other", b"x")
        backend.commit()
    return path


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
        "UPDATE rows SET row = x'726f772033' WHERE position = 2",  # the bytes of another row
        "UPDATE rows SET row = 'row 2' WHERE position = 2",  # text, which is no row
        "UPDATE rows SET sum = sum + 1 WHERE position = 2",
        "UPDATE rows SET row = x'' WHERE position = 2",
        "DELETE FROM rows WHERE position = 2",
    ],
)
def test_a_damaged_row_is_read_as_none_and_the_others_keep_their_places(path, damage):
    tamper(path, damage)
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == [ROWS[0], ROWS[1], None, ROWS[3], ROWS[4]]
        assert list(backend.read("log", 2, 3)) == [None]
        assert backend.end("log") == 5
        backend.append("log", [b"next"])
        backend.commit()
        assert list(backend.read("log", 4, 9)) == [ROWS[4], b"next"]


def test_a_flipped_bit_in_the_file_itself_is_found(path):
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    at = content.index(b"row 3") + 4
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == [*ROWS[:3], None, ROWS[4]]


def test_a_damaged_value_is_read_as_none(path):
    tamper(path, "UPDATE keys SET value = x'00' WHERE key = 'key'")
    with closing(SqliteBackend(path)) as backend:
        assert backend.get("key") is None
        assert backend.get("other") == b"x"


def test_another_major_is_refused_and_left_alone(path):
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
            backend.append("log", [b"x"])
        backend.rollback()
        other.execute("ROLLBACK")
        backend.append("log", [b"x"])
        backend.commit()
        assert backend.end("log") == 6


def test_a_full_disk_is_told_and_nothing_is_half_written(path):
    with closing(SqliteBackend(path)) as backend:
        pages = backend._db.execute("PRAGMA page_count").fetchone()[0]
        backend._db.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(Unavailable, match="full"):
            backend.append("log", [b"x" * 100_000])
        backend.rollback()
        assert backend.end("log") == 5
        assert list(backend.read("log", 0, 9)) == ROWS


def test_the_file_says_whose_it_is(path):
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        assert database.execute("PRAGMA user_version").fetchone()[0] == VERSION
