"""A SQLite store that is gone, empty or broken: it says so, begins anew only when told, and deletes nothing."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

import pluribus
from pluribus.cli import app
from pluribus.core.errors import BadInput, Damaged, Unavailable
from pluribus.core.ports import Append, Bounds, Put, Repair
from pluribus.runtime.keepers.store_writer import StoreWriter
from pluribus.store import aside
from pluribus.store.mark import Mark
from pluribus.store.sqlite import SqliteBackend
from tests.harness import eventually, new_bus, on_a_loop
from tests.store.test_sqlite import ROWS, at, path, tamper  # noqa: F401 - path is a fixture


def missing(store):
    store.unlink()


def emptied(store):
    store.write_bytes(b"")


def as_new(store):
    """A database of ours, in which nothing ever was."""
    store.unlink()
    SqliteBackend(store.with_name("new.db")).close()
    store.with_name("new.db").rename(store)


@pytest.mark.parametrize("damage", [missing, emptied, as_new])
def test_a_store_that_is_gone_although_its_mark_counts_commits_is_refused(path, damage):  # noqa: F811
    damage(path)
    before = path.read_bytes() if path.exists() else None
    with pytest.raises(Damaged, match=r"2 commits were acknowledged in it: put the file back, or .* fresh=True"):
        SqliteBackend(path)
    assert (path.read_bytes() if path.exists() else None) == before
    with closing(SqliteBackend(path, fresh=True)) as backend:
        assert backend.bounds("log") == Bounds()
        backend.write([Append("log", [b"new"])])
        backend.commit()
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == [b"new"] and backend.bounds("log").sure
    if before is not None:
        assert path.with_name("store.db-broken-1").read_bytes() == before


def test_a_store_of_which_nothing_was_acknowledged_yet_is_new(tmp_path):
    Mark(str(tmp_path / "store.db-mark")).close()
    SqliteBackend(tmp_path / "store.db").close()
    SqliteBackend(tmp_path / "store.db").close()


def test_a_store_that_can_be_read_is_not_given_up(path):  # noqa: F811
    with pytest.raises(BadInput, match="leave fresh out"):
        SqliteBackend(path, fresh=True)
    with closing(SqliteBackend(path)) as backend:
        assert list(backend.read("log", 0, 9)) == ROWS
        with pytest.raises(Unavailable, match="another process"):
            SqliteBackend(path, fresh=True)


def test_what_is_no_database_any_more_is_set_aside_when_told(path):  # noqa: F811
    content = b"\xff" * 5_000
    path.write_bytes(content)
    with pytest.raises(Damaged, match="cannot be opened, its structure is damaged"):
        SqliteBackend(path)
    SqliteBackend(path, fresh=True).close()
    assert path.with_name("store.db-broken-1").read_bytes() == content


def test_a_count_of_commits_that_went_up_by_itself_hides_no_rows(path):  # noqa: F811
    with closing(SqliteBackend(path)) as backend:
        backend.write([Append("log", [b"more"])])
        backend.commit()
        backend._unsaved.clear()  # as a crash would leave it
    tamper(path, "UPDATE state SET number = number + 1048576")
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log") == Bounds(0, 6, sure=False)


def test_a_repair_that_does_not_hold_is_an_error(path):  # noqa: F811
    with closing(SqliteBackend(path)) as backend:
        backend._db.execute("CREATE TRIGGER away AFTER INSERT ON rows BEGIN DELETE FROM rows WHERE at = NEW.at; END")
        backend._db.execute(f"DELETE FROM rows WHERE at = {at(2)}")
        with pytest.raises(Damaged, match="row 2 of 'log' was put back and is not found"):
            backend.write([Repair("log", 2, ROWS[2])])
        backend.rollback()
    with closing(SqliteBackend(path)) as backend:
        backend._db.execute("DROP TRIGGER away")
        backend.write([Repair("log", 2, ROWS[2])])
        backend.commit()
        assert list(backend.read("log", 0, 9)) == ROWS
        with pytest.raises(Damaged):  # whoever asks again has not found it
            backend.write([Repair("log", 2, ROWS[2])])


def test_a_file_that_sqlite_calls_malformed_is_damaged(path):  # noqa: F811
    with closing(SqliteBackend(path)) as backend:
        backend._db.execute("PRAGMA writable_schema = ON")
        backend._db.execute("DELETE FROM sqlite_master WHERE name = 'keys'")
    with closing(SqliteBackend(path)) as backend:
        for call in (lambda: backend.write([Put("key", b"x")]), lambda: backend.get("key")):
            with pytest.raises(Damaged, match="its structure is damaged"):
                call()
            backend.rollback()


@pytest.mark.parametrize("crash", [None, "finished", "set_aside", "put_in_place"])
def test_a_store_is_renewed_whole_or_not_at_all(path, monkeypatch, crash):  # noqa: F811
    before = path.read_bytes()
    backend = SqliteBackend(path)
    if crash:
        whole = getattr(aside, crash)

        def fail(name):
            if name == str(path):
                raise KeyboardInterrupt
            return whole(name)

        monkeypatch.setattr(aside, crash, fail)
        with pytest.raises(KeyboardInterrupt):
            backend.renew([Put("who", b"me")])
        monkeypatch.undo()
        backend._mark.close()
    else:
        assert backend.renew([Put("who", b"me")]) == f"{path}-broken-1"
        assert (backend.get("who"), backend.bounds("log")) == (b"me", Bounds())
        backend.write([Append("log", [b"a"])])
        backend.commit()
        backend.close()
    with closing(SqliteBackend(path)) as backend:
        renewed = crash in (None, "put_in_place")
        assert (backend.get("who"), backend.get("key")) == ((b"me", None) if renewed else (None, b"value"))
        assert backend.bounds("log").sure
    assert sorted(found.name for found in path.parent.iterdir() if "new" in found.name) == []
    if renewed:
        assert path.with_name("store.db-broken-1").read_bytes() == before


@on_a_loop
async def test_a_writer_reads_the_new_store(path):  # noqa: F811
    store = StoreWriter(SqliteBackend(path), asyncio.get_running_loop())
    assert list(store.read("log", 0, 9)) == ROWS
    store.renew([Put("who", b"me")])
    done = []
    store.append("log", [b"first"], done.append)
    await eventually(lambda: done == [None])
    assert list(store.read("log", 0, 9)) == [b"first"] == list(store.read("log", 0, 9))
    store.close()


def published(url, store, *events, **options):
    with pluribus.sync.connect(url, store=store, **options) as bus:
        for event in events:
            bus.publish("t", event, durable=True)
        return bus._real.keeping.keeper.keeper.id, bus.log("t").offsets()


def test_a_keeper_whose_file_is_gone_is_refused_and_begins_anew_as_another_when_told(tmp_path, capsys):
    store = tmp_path / "kept.db"
    first, offsets = published(new_bus(), store, 1, 2)
    assert offsets == (0, 2)
    store.unlink()
    with pytest.raises(Damaged, match=r"fresh=True \(`pluribus keep --fresh`\)"):
        published(new_bus(), store)
    assert app.run(["keep", "--store", str(store), "--url", new_bus(), "--seconds", "0.1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    second, offsets = published(new_bus(), store, 3, fresh=True)
    assert second != first and offsets == (0, 1)
    assert published(new_bus(), store)[0] == second


def test_the_mark_of_a_backup_is_not_made_by_looking(tmp_path):
    with pytest.raises(Unavailable):
        SqliteBackend(tmp_path / "nowhere" / "store.db")
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as database:
        database.execute("CREATE TABLE theirs (x)")
    with pytest.raises(Unavailable, match="another program"):
        SqliteBackend(tmp_path / "theirs.db", fresh=True)
    assert [found.name for found in tmp_path.iterdir()] == ["theirs.db"]
