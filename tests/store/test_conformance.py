"""What every backend must do, against a dumb oracle in memory. A new backend is a line in ``OPENERS``."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pluribus.store.backend import Backend
from pluribus.store.sqlite import SqliteBackend

OPENERS: dict[str, Callable[[Path], Backend]] = {"sqlite": lambda folder: SqliteBackend(folder / "store.db")}


@pytest.fixture(params=OPENERS)
def opened(request, tmp_path):
    """Opens the same store again at every call; all are closed in the end."""
    made: list[Backend] = []

    def open_it() -> Backend:
        made.append(OPENERS[request.param](tmp_path))
        return made[-1]

    yield open_it
    for backend in made:
        backend.close()


def test_a_new_store_is_empty(opened):
    backend = opened()
    assert backend.end("log") == 0
    assert list(backend.read("log", 0, 10)) == []
    assert backend.get("key") is None


def test_rows_get_consecutive_places_in_each_log(opened):
    backend = opened()
    backend.append("a", [b"0", b"1"])
    backend.append("b", [b"other"])
    backend.append("a", [b"2"])
    backend.append("a", [])
    backend.commit()
    assert backend.end("a") == 3
    assert list(backend.read("a", 0, 99)) == [b"0", b"1", b"2"]
    assert list(backend.read("a", 1, 2)) == [b"1"]
    assert list(backend.read("a", 3, 9)) == list(backend.read("a", 2, 1)) == []
    assert list(backend.read("b", 0, 99)) == [b"other"]


def test_a_row_may_be_empty_long_or_hold_any_byte(opened):
    backend = opened()
    rows = [b"", bytes(range(256)), b"\x00" * (1 << 20)]
    backend.append("log", rows)
    backend.commit()
    assert list(backend.read("log", 0, 3)) == rows


def test_the_last_value_of_a_key_stays(opened):
    backend = opened()
    for value in (b"1", b"22", b""):
        backend.put("key", value)
        backend.commit()
        assert backend.get("key") == value
    backend.put("other", b"x")
    backend.commit()
    assert backend.get("key") == b""


def test_committed_is_there_after_opening_again(opened):
    first = opened()
    first.append("log", [b"row"])
    first.put("key", b"value")
    first.commit()
    first.append("log", [b"not committed"])
    first.close()
    second = opened()
    assert list(second.read("log", 0, 9)) == [b"row"]
    assert second.get("key") == b"value"
    assert second.end("log") == 1


def test_a_rollback_takes_everything_back_and_the_next_row_gets_its_place(opened):
    backend = opened()
    backend.append("log", [b"kept"])
    backend.commit()
    backend.append("log", [b"gone", b"gone"])
    backend.append("new", [b"gone"])
    backend.put("key", b"gone")
    backend.rollback()
    assert (backend.end("log"), backend.end("new"), backend.get("key")) == (1, 0, None)
    backend.append("log", [b"next"])
    backend.commit()
    assert list(backend.read("log", 0, 9)) == [b"kept", b"next"]
    backend.rollback()
    backend.commit()
    assert backend.end("log") == 2


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("ab"), st.lists(st.binary(max_size=3), max_size=3)),
        st.tuples(st.just("put"), st.sampled_from("kl"), st.binary(max_size=3)),
        st.tuples(st.sampled_from(["commit", "rollback", "reopen"])),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
@pytest.mark.parametrize("kind", OPENERS)
def test_any_sequence_of_calls_does_what_the_oracle_does(kind, steps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    backend = OPENERS[kind](folder)
    kept = {"a": [], "b": [], "k": None, "l": None}
    now = {key: value[:] if isinstance(value, list) else value for key, value in kept.items()}
    for name, *arguments in steps:
        if name == "append":
            backend.append(*arguments)
            now[arguments[0]] = now[arguments[0]] + arguments[1]
        elif name == "put":
            backend.put(*arguments)
            now[arguments[0]] = arguments[1]
        elif name == "commit":
            backend.commit()
            kept = dict(now)
        else:
            if name == "rollback":
                backend.rollback()
            else:
                backend.close()
                backend = OPENERS[kind](folder)
            now = dict(kept)
        for log in "ab":
            assert backend.end(log) == len(now[log])
            assert list(backend.read(log, 0, 99)) == now[log]
        for key in "kl":
            assert backend.get(key) == now[key]
    backend.close()
