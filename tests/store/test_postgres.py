"""The PostgreSQL store: one process writes, a commit that was in doubt is looked up, damage is told."""

import os
import socket
from time import monotonic, sleep

import psycopg
import pytest

from pluribus.core.errors import BadInput, Damaged, Fenced, Unavailable
from pluribus.core.ports import Append, Bounds, Put, Repair
from pluribus.store.postgres import PostgresBackend
from pluribus.store.tables import MAJOR, MINOR
from tests.store.places import schema_of

ROWS = [b"row %d" % number for number in range(5)]
KILL_MS_MAX = 20_000


@pytest.fixture
def schema(tmp_path):
    return schema_of(tmp_path)


@pytest.fixture
def server(postgres_server):
    with psycopg.connect(postgres_server, autocommit=True) as db:
        yield db


@pytest.fixture
def opened(postgres_server, schema):
    made = []

    def open_it():
        made.append(PostgresBackend(postgres_server, schema))
        return made[-1]

    yield open_it
    for backend in made:
        backend.close()


@pytest.fixture
def backend(opened):
    backend = opened()
    backend.write([Append("log", ROWS), Put("key", b"value")])
    backend.commit()
    return backend


def kill_session(server, backend):
    """As if the network between us and the server broke, for good. The server has noticed when this returns: until the
    session is over it holds its lock, and who comes back is told to try again."""
    pid = backend._db.info.backend_pid
    assert server.execute("SELECT pg_terminate_backend(%s, %s)", (pid, KILL_MS_MAX)).fetchone() == (True,)


def write_late(backend):
    backend.write([Append("log", [b"late"])])
    backend.commit()


def test_a_second_process_stands_by_while_the_first_lives(backend, opened):
    with pytest.raises(Fenced, match="active keeper in another process"):
        opened()
    backend.close()
    second = opened()
    assert list(second.read("log", 0, 9)) == ROWS


def test_who_was_taken_over_from_writes_nothing_any_more(backend, opened, server, schema):
    server.execute(f"UPDATE {schema}.fence SET epoch = epoch + 1".encode())
    for _ in range(2):
        with pytest.raises(Fenced, match="taken over"):
            write_late(backend)
        backend.rollback()
    assert server.execute(f"SELECT count(*) FROM {schema}.rows".encode()).fetchone() == (5,)


def test_who_lost_its_session_and_its_place_is_fenced(backend, opened, server):
    backend.write([Append("log", [b"late"])])
    kill_session(server, backend)
    second = opened()
    with pytest.raises(Fenced, match="taken over by another process"):
        backend.commit()
    backend.rollback()
    with pytest.raises(Fenced):
        backend.write([Append("log", [b"late"])])
    second.write([Append("log", [b"mine"], at=5)])
    second.commit()
    assert list(second.read("log", 0, 9)) == [*ROWS, b"mine"]


def test_who_lost_its_session_alone_goes_on(backend, server):
    kill_session(server, backend)
    assert not _worked(backend, [Append("log", [b"first"], at=5)]), "what was open is gone"
    assert _worked(backend, [Append("log", [b"second"], at=5)])
    assert list(backend.read("log", 5, 9)) == [b"second"]
    kill_session(server, backend)
    with pytest.raises(Unavailable):
        backend.get("key")
    assert backend.get("key") == b"value"


def _worked(backend, changes) -> bool:
    try:
        backend.write(changes)
        backend.commit()
    except Unavailable:
        backend.rollback()
        return False
    return True


def test_a_commit_whose_answer_was_lost_is_looked_up(backend, server, monkeypatch):
    flush = backend._flush

    def lose_the_answer():
        flush()
        monkeypatch.undo()
        kill_session(server, backend)
        backend._db.close()
        raise psycopg.OperationalError("the server closed the connection")

    backend.write([Append("log", [b"kept"], at=5)])
    monkeypatch.setattr(backend, "_flush", lose_the_answer)
    backend.commit()
    backend.write([Append("log", [b"next"], at=6)])
    backend.commit()
    assert list(backend.read("log", 5, 9)) == [b"kept", b"next"]


def break_line(backend):
    """Our end of the connection is gone, and the server does not know: its session lives until what is returned is
    closed."""
    kept = os.dup(backend._db.fileno())
    near, far = socket.socketpair()
    far.close()
    with near:
        os.dup2(near.fileno(), backend._db.fileno())
    return kept


def test_nothing_is_written_before_the_lost_session_has_ended(backend, server, schema, monkeypatch):
    flush, kept = backend._flush, []

    def lose_the_answer():
        flush()
        monkeypatch.undo()
        kept.append(break_line(backend))
        backend._db.execute("SELECT 1")

    backend.write([Append("log", [b"first"], at=5)])
    monkeypatch.setattr(backend, "_flush", lose_the_answer)
    with pytest.raises(Unavailable, match="has not ended"):
        backend.commit()
    backend.rollback()
    assert not _worked(backend, [Append("log", [b"second"], at=6)])
    os.close(kept[0])
    deadline = monotonic() + 20
    while not _worked(backend, [Append("log", [b"second"], at=6)]):
        assert monotonic() < deadline
        sleep(0.05)
    backend.write([Append("log", [b"third"], at=7)])
    kill_session(server, backend)
    with pytest.raises(Unavailable):  # it is not taken for done because the count is one ahead of ours
        backend.commit()
    backend.rollback()
    assert list(backend.read("log", 5, 9)) == [b"first", b"second"]
    assert server.execute(f"SELECT commits FROM {schema}.fence".encode()).fetchone() == (backend._commits,)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {}.rows SET row = 'row 3' WHERE position = 2",
        "UPDATE {}.rows SET sum = sum + 1 WHERE position = 2",
        "DELETE FROM {}.rows WHERE position = 2",
        "UPDATE {}.rows SET position = 77 WHERE position = 2",
    ],
)
def test_a_damaged_row_is_read_as_none_and_repaired(backend, server, schema, damage):
    server.execute(damage.format(schema).encode())
    assert list(backend.read("log", 0, 9)) == [*ROWS[:2], None, *ROWS[3:]]
    backend.write([Repair("log", 2, ROWS[2])])
    backend.commit()
    assert list(backend.read("log", 0, 9)) == ROWS


def test_rows_that_are_missing_at_the_end_are_known_to_be(backend, opened, server, schema):
    backend.close()
    server.execute(f"DELETE FROM {schema}.rows WHERE position > 2".encode())
    again = opened()
    assert again.bounds("log") == Bounds(0, 5)
    assert list(again.read("log", 0, 9)) == [*ROWS[:3], None, None]
    again.close()
    server.execute(f"UPDATE {schema}.logs SET stop = 4".encode())
    assert opened().bounds("log") == Bounds(0, 3, sure=False)


def test_a_damaged_value_is_told_from_a_missing_one(backend, server, schema):
    server.execute(f"UPDATE {schema}.keys SET value = 'other'".encode())
    with pytest.raises(Damaged, match="'key'"):
        backend.get("key")
    assert backend.get("missing") is None


def test_another_version_and_another_program_are_refused(backend, opened, server, schema, postgres_server):
    backend.close()
    server.execute(f"UPDATE {schema}.version SET number = {(MAJOR + 1) * 1_000 + 3}".encode())
    with pytest.raises(Unavailable, match=rf"version {MAJOR + 1}\.3, this release writes {MAJOR}\.{MINOR}"):
        opened()
    server.execute(f"CREATE SCHEMA {schema}_x CREATE TABLE theirs (x integer)".encode())
    with pytest.raises(Unavailable, match="another program"):
        PostgresBackend(postgres_server, f"{schema}_x")
    with pytest.raises(BadInput, match="no name for a schema"):
        PostgresBackend(postgres_server, "x; DROP SCHEMA y")


def test_a_server_that_is_not_there_is_told_in_one_sentence():
    with pytest.raises(Unavailable) as caught:
        PostgresBackend("postgresql://nobody:secret@127.0.0.1:1/none")
    assert "\n" not in str(caught.value)
    assert "127.0.0.1:1" in str(caught.value) and "secret" not in str(caught.value)
