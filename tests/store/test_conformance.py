"""What every backend must do, against a dumb oracle in memory."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadInput
from pluribus.core.ports import Append, Bounds, Cut, Delete, Put, Repair, Restart, Trim
from pluribus.store.backend import POSITIONS_MAX, Backend
from tests.store.places import OPENERS


@pytest.fixture(params=OPENERS)
def opened(request, tmp_path):
    """Opens the same store again at every call; all are closed in the end."""
    dsn = request.getfixturevalue("postgres_server") if request.param == "postgres" else ""
    made: list[Backend] = []

    def open_it() -> Backend:
        made.append(OPENERS[request.param](tmp_path, dsn))
        return made[-1]

    yield open_it
    for backend in made:
        backend.close()


def append(backend, log, rows, at=None):
    backend.write([Append(log, rows, at)])


def test_a_new_store_is_empty(opened):
    backend = opened()
    assert backend.bounds("log") == Bounds(0, 0, True)
    assert list(backend.read("log", 0, 10)) == []
    assert backend.get("key") is None


def test_rows_get_consecutive_places_in_each_log(opened):
    backend = opened()
    append(backend, "a", [b"0", b"1"])
    append(backend, "b", [b"other"])
    append(backend, "a", [b"2"])
    append(backend, "a", [])
    backend.commit()
    assert backend.bounds("a") == Bounds(0, 3)
    assert list(backend.read("a", 0, 99)) == [b"0", b"1", b"2"]
    assert list(backend.read("a", 1, 2)) == [b"1"]
    assert list(backend.read("a", 3, 9)) == list(backend.read("a", 2, 1)) == []
    assert list(backend.read("a", -5, 1)) == [b"0"]
    assert list(backend.read("b", 0, 99)) == [b"other"]


def test_a_row_may_be_empty_long_or_hold_any_byte(opened):
    backend = opened()
    rows = [b"", bytes(range(256)), b"\x00" * (1 << 20)]
    append(backend, "log", rows)
    backend.write([Put("key", rows[2])])
    backend.commit()
    assert list(backend.read("log", 0, 3)) == rows
    assert backend.get("key") == rows[2]


def test_names_may_hold_any_letter(opened):
    backend = opened()
    for name in ("keepers/ünïversal", "a%sb", "x'y\"z", "?"):
        backend.write([Append(name, [name.encode()]), Put(name, name.encode())])
        backend.commit()
        assert list(backend.read(name, 0, 1)) == [name.encode()] == [backend.get(name)]


def test_the_last_value_of_a_key_stays(opened):
    backend = opened()
    for value in (b"1", b"22", b""):
        backend.write([Put("key", value)])
        backend.commit()
        assert backend.get("key") == value
    backend.write([Put("other", b"x")])
    backend.commit()
    assert backend.get("key") == b""
    backend.write([Delete("key"), Delete("never there")])
    backend.commit()
    assert backend.get("key") is None
    assert backend.get("other") == b"x"


def test_committed_is_there_after_opening_again(opened):
    first = opened()
    append(first, "log", [b"row"])
    first.write([Put("key", b"value")])
    first.commit()
    append(first, "log", [b"not committed"])
    first.close()
    second = opened()
    assert list(second.read("log", 0, 9)) == [b"row"]
    assert second.get("key") == b"value"
    assert second.bounds("log") == Bounds(0, 1)


def test_a_rollback_takes_everything_back_and_the_next_row_gets_its_place(opened):
    backend = opened()
    append(backend, "log", [b"kept"])
    backend.commit()
    append(backend, "log", [b"gone", b"gone"])
    append(backend, "new", [b"gone"])
    backend.write([Put("key", b"gone")])
    backend.rollback()
    assert (backend.bounds("log").end, backend.bounds("new").end, backend.get("key")) == (1, 0, None)
    append(backend, "log", [b"next"])
    backend.commit()
    assert list(backend.read("log", 0, 9)) == [b"kept", b"next"]
    backend.rollback()
    backend.commit()
    assert backend.bounds("log").end == 2


def test_a_tail_is_cut_and_written_again(opened):
    backend = opened()
    append(backend, "log", [b"0", b"1", b"2"])
    backend.commit()
    backend.write([Cut("log", 1), Append("log", [b"another"], at=1), Put("epoch", b"2")])
    backend.commit()
    assert list(backend.read("log", 0, 9)) == [b"0", b"another"]
    backend.write([Cut("log", 0)])
    backend.commit()
    assert backend.bounds("log") == Bounds(0, 0)


def test_the_front_is_trimmed_and_places_stay(opened):
    backend = opened()
    append(backend, "log", [b"0", b"1", b"2"])
    backend.write([Put("snapshot", b"state"), Trim("log", 2)])
    backend.commit()
    assert backend.bounds("log") == Bounds(2, 3)
    assert list(backend.read("log", 0, 9)) == [b"2"]
    append(backend, "log", [b"3"])
    backend.commit()
    assert list(backend.read("log", 3, 9)) == [b"3"]
    backend.write([Trim("log", 10)])
    backend.commit()
    assert backend.bounds("log") == Bounds(10, 10)
    append(backend, "log", [b"10"], at=10)
    backend.commit()
    assert list(backend.read("log", 0, 99)) == [b"10"]


def test_a_log_is_begun_again_anywhere(opened):
    backend = opened()
    append(backend, "log", [b"0", b"1", b"2"])
    backend.write([Trim("log", 1)])
    backend.commit()
    for at in (7, 0, 2):
        backend.write([Restart("log", at), Append("log", [b"new"], at=at)])
        backend.commit()
        assert backend.bounds("log") == Bounds(at, at + 1)
        assert list(backend.read("log", 0, 9)) == [b"new"]


def test_what_does_not_fit_is_refused_and_nothing_of_it_is_done(opened):
    backend = opened()
    append(backend, "log", [b"0", b"1", b"2"])
    backend.write([Trim("log", 1)])
    backend.commit()
    for change in (
        Append("log", [b"x"], at=2),
        Append("log", [b"x"], at=4),
        Cut("log", 0),
        Cut("log", 4),
        Trim("log", 0),
        Trim("log", POSITIONS_MAX),
        Restart("log", -1),
        Restart("log", POSITIONS_MAX),
        Repair("log", 0, b"x"),
        Repair("log", 3, b"x"),
    ):
        with pytest.raises(BadInput, match="'log'"):
            backend.write([Put("key", b"x"), change])
        backend.rollback()
        assert backend.bounds("log") == Bounds(1, 3)
        assert backend.get("key") is None


def test_a_whole_row_is_not_repaired(opened):
    backend = opened()
    append(backend, "log", [b"0"])
    backend.write([Repair("log", 0, b"another")])
    backend.commit()
    assert list(backend.read("log", 0, 1)) == [b"0"]


rows_of_a_write = st.lists(st.binary(max_size=3), max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("ab"), rows_of_a_write),
        st.tuples(st.just("put"), st.sampled_from("kl"), st.none() | st.binary(max_size=3)),
        st.tuples(st.just("cut"), st.sampled_from("ab"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["trim", "restart"]), st.sampled_from("ab"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["commit", "rollback", "reopen"])),
    ),
    max_size=25,
)


def change_of(step):
    name, target, what = step
    if name == "append":
        return Append(target, what)
    if name == "put":
        return Delete(target) if what is None else Put(target, what)
    return {"cut": Cut, "trim": Trim, "restart": Restart}[name](target, what)


class Oracle:
    """Logs are a start and a list; a change that does not fit says so."""

    def __init__(self, logs, keys):
        self.logs, self.keys = logs, keys

    def copy(self):
        return Oracle({log: (start, rows[:]) for log, (start, rows) in self.logs.items()}, dict(self.keys))

    def change(self, step) -> bool:
        name, target, what = step
        if name == "put":
            self.keys[target] = what
            return True
        start, rows = self.logs[target]
        if name == "append":
            rows += what
        elif name == "cut":
            if not start <= what <= start + len(rows):
                return False
            del rows[what - start :]
        elif name == "restart":
            self.logs[target] = (what, [])
        else:
            if what < start:
                return False
            self.logs[target] = (what, rows[what - start :])
        return True


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps=steps)
@pytest.mark.parametrize("kind", OPENERS)
def test_any_sequence_of_calls_does_what_the_oracle_does(kind, steps, tmp_path_factory, request):
    dsn = request.getfixturevalue("postgres_server") if kind == "postgres" else ""
    folder = tmp_path_factory.mktemp("store")
    backend = OPENERS[kind](folder, dsn)
    kept = Oracle({"a": (0, []), "b": (0, [])}, {"k": None, "l": None})
    now = kept.copy()
    for step in steps:
        if step[0] == "commit":
            backend.commit()
            kept = now.copy()
        elif step[0] == "rollback":
            backend.rollback()
            now = kept.copy()
        elif step[0] == "reopen":
            backend.close()
            backend = OPENERS[kind](folder, dsn)
            now = kept.copy()
        elif now.change(step):
            backend.write([change_of(step)])
        else:
            with pytest.raises(BadInput):
                backend.write([change_of(step)])
            backend.rollback()
            now = kept.copy()
        for log, (start, rows) in now.logs.items():
            assert backend.bounds(log) == Bounds(start, start + len(rows))
            assert list(backend.read(log, 0, 99)) == rows
            assert list(backend.read(log, 1, 3)) == rows[max(1 - start, 0) : max(3 - start, 0)]
        for key, value in now.keys.items():
            assert backend.get(key) == value
    backend.close()
