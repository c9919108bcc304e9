"""The checkers of tuple spaces: each catches a history that breaks its promise, and passes one that does not."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.spaces import (
    cancelled_are_gone,
    leases_end,
    linearizable,
    not_lost,
    own_writes_seen,
    taken_once,
)
from pluribus.sim.machinery.history import Happening, History
from pluribus.spaces.partitioned.ranges import range_of
from pluribus.spaces.values import item_of

encode = msgspec.msgpack.encode


class Told:
    """A history, told call by call; each takes a second."""

    def __init__(self, kind="replicated"):
        self.kind = kind
        self.history = History()
        self.at = 0.0
        self.numbers = 0

    def note(self, what, member=1, id=(0, 0), body=None):
        self.at += 0.5
        self.history.add(Happening(self.at, member, what, self.kind, id, encode(body)))

    def begin(self, what, given, member=1, twin=0):
        self.numbers += 1
        id = (member, self.numbers)
        self.note("call", member, id, [what, given, twin])
        return id

    def call(self, what, given, result=None, member=1, twin=0):
        self.end(self.begin(what, given, member, twin), result)

    def end(self, id, result=None):
        self.note("answer", id[0], id, result)


def written(kind="replicated", name="a"):
    told = Told(kind)
    told.call("write", (name, 1))
    return told


@pytest.mark.parametrize("name", ["a", "c0"])
def test_what_is_there_is_found(name):
    told = written(name=name)
    told.call("own", (name, 1), (name, 1))
    told.call("read_now", (name,), (name, 1))
    told.call("take", (name if name == "a" else "c0",), (name, 1), 2)
    told.call("own", (name, 1))
    told.call("read_now", (name,))
    assert linearizable(told.history) == 6
    for what, given in (("own", (name, 1)), ("read_now", (name,))):
        told = written(name=name)
        told.call(what, given)
        told.call("take_now", (name,), (name, 1))
        with pytest.raises(Violation, match="nothing explains"):
            linearizable(told.history)


def test_a_take_that_found_nothing_tells_something_only_where_nobody_waits():
    told = written(name="a")
    told.call("take_now", ("a",))
    told.call("take", ("",), ("a", 1))
    assert linearizable(told.history) == 2
    told = written(name="c0")
    told.call("take_now", ("c0",))
    told.call("take_now", ("c0",), ("c0", 1))
    with pytest.raises(Violation, match="nothing explains"):
        linearizable(told.history)


def test_an_operation_without_an_answer_may_have_happened_and_one_that_is_undone_has_not():
    told = written(name="c0")
    told.begin("take_now", ("c0",), 2)
    told.call("read_now", ("c0",))
    assert linearizable(told.history) == 3 and not_lost(told.history) == 1
    told = written(name="c0")
    told.note("undone", 2, told.begin("take_now", ("c0",), 2))
    told.call("read_now", ("c0",))
    with pytest.raises(Violation, match="nothing explains"):
        linearizable(told.history)
    with pytest.raises(Violation, match="are gone"):
        not_lost(told.history)


def test_what_replaces_a_tuple_whose_take_is_void_need_not_be_there():
    for void in (True, False):
        told = written("views")
        write = told.begin("write", ("a", 2))
        take = told.begin("take_now", ("a",), twin=write[1])
        told.end(write)
        told.end(take, ("a", 1))
        if void:
            told.note("void", 1, body=("a", 1))
        told.call("take_now", ("a",), ("a", 1) if void else ("a", 2), 2)
        assert taken_once(told.history) and not_lost(told.history)
    told = written("views")
    write = told.begin("write", ("a", 2))
    told.end(write)
    told.call("take_now", ("a",), ("a", 1), twin=write[1])
    with pytest.raises(Violation, match="are gone"):
        not_lost(told.history)


@pytest.mark.parametrize("kind", ["replicated", "views", "partitioned"])
def test_a_tuple_whose_lease_was_cancelled_stays_away(kind):
    told = Told(kind)
    told.call("write_leased", ("l", 1))
    reading = told.begin("read_now", ("l",), 2)
    told.call("cancel", ("l", 1), ("l", 1))
    told.end(reading, ("l", 1))
    assert cancelled_are_gone(told.history) == (kind != "views") and leases_end(told.history) == 1
    told.call("take_now", ("l",), ("l", 1), 2)
    if kind == "views":
        assert cancelled_are_gone(told.history) == 0
    else:
        with pytest.raises(Violation, match="was cancelled"):
            cancelled_are_gone(told.history)
        told.note("forced")
        if kind == "partitioned":
            assert cancelled_are_gone(told.history) == 0


def test_a_cancel_that_was_too_late_says_nothing():
    told = Told()
    told.call("write_leased", ("l", 1))
    told.call("cancel", ("l", 1))
    told.call("take_now", ("l",), ("l", 1), 2)
    assert cancelled_are_gone(told.history) == 0


def test_what_was_in_a_lost_range_may_be_gone_and_nothing_else():
    ranges = [range_of(item_of((name, 1)), 0) for name in "ab"]
    assert ranges[0] != ranges[1]
    for lost, checked in ((ranges[:1], None), (ranges, 0), ([], 0)):
        told = Told("partitioned")
        for name in "ab":
            told.call("write", (name, 1))
        told.note("lost", body=lost)
        told.call("own", ("b", 1))
        if checked is None:
            with pytest.raises(Violation, match="are gone"):
                not_lost(told.history)
            with pytest.raises(Violation, match="did not find it"):
                own_writes_seen(told.history)
        else:
            assert not_lost(told.history) == own_writes_seen(told.history) == checked
