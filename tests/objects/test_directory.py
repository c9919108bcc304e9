"""The directory: names, turns, preemptive objects; against a dumb oracle."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pluribus.core.errors import BadInput, NoObject, Overflow
from pluribus.group.calls import exposed
from pluribus.objects import directory as directory_of
from pluribus.objects.directory import Directory
from pluribus.objects.names import is_id, new_id
from pluribus.objects.subprotocols import Subprotocol

RANDOM = Random(7)
aliases = st.sampled_from(["printer", "lamp", "door"])


class Thing:
    @exposed
    def touch(self) -> str:
        return "touched"

    def hidden(self) -> None: ...


class Directories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.changed: list[str] = []
        self.directory = Directory(self.changed.extend)
        self.things: list[tuple[str, Thing]] = []
        self.names: list[tuple[str, str]] = []
        """Pairs of an alias and an id, in the order in which they were given."""

    @rule(names=st.lists(aliases, max_size=3))
    def add(self, names):
        thing = Thing()
        found = self.directory.add(thing, new_id(RANDOM), names)
        self.things.append((found.id, thing))
        self.names += [(name, found.id) for name in dict.fromkeys(names)]

    @precondition(lambda self: self.things)
    @rule(data=st.data())
    def remove(self, data):
        at = data.draw(st.integers(0, len(self.things) - 1))
        id, thing = self.things.pop(at)
        self.directory.remove(thing)
        self.names = [pair for pair in self.names if pair[1] != id]

    @precondition(lambda self: self.things)
    @rule(data=st.data(), name=aliases)
    def add_alias(self, data, name):
        id, thing = data.draw(st.sampled_from(self.things))
        self.directory.add_alias(name, thing)
        if (name, id) not in self.names:
            self.names.append((name, id))

    @precondition(lambda self: self.things)
    @rule(data=st.data(), name=aliases)
    def delete_alias(self, data, name):
        id, _ = data.draw(st.sampled_from(self.things))
        self.directory.delete_alias(name, id)
        if (name, id) in self.names:
            self.names.remove((name, id))

    @precondition(lambda self: len(self.things) > 1)
    @rule(data=st.data())
    def preempt(self, data):
        target, by = (data.draw(st.sampled_from(self.things))[1] for _ in range(2))
        try:
            self.directory.preempt(target, by, data.draw(st.sampled_from(["instead", "before"])))
        except BadInput:
            at = self.directory.resident(by)
            while at is not None and at.served is not target:
                at = at.preempted_by
            assert at is not None, "only a cycle is refused"

    @rule(name=aliases)
    def one_in_turn(self, name):
        there = [id for alias, id in self.names if alias == name]
        got = [self.directory.one_of(name) for _ in there]
        assert sorted(resident.id for resident in got) == sorted(there), "each has its turn"
        if not there:
            assert self.directory.one_of(name) is None

    @invariant()
    def all_are_there(self):
        for name in ("printer", "lamp", "door"):
            assert [r.id for r in self.directory.all_of(name)] == [id for alias, id in self.names if alias == name]
            assert self.directory.knows(name) == any(alias == name for alias, _ in self.names)
        for id, thing in self.things:
            assert self.directory.one_of(id).served is thing
        self.directory.validate()


TestDirectories = Directories.TestCase
TestDirectories.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_ids_are_for_ever_and_may_be_taken_again():
    directory, thing = Directory(), Thing()
    resident = directory.add(thing, new_id(RANDOM))
    assert is_id(resident.id) and len({new_id(RANDOM) for _ in range(1_000)}) == 1_000
    directory.remove(thing)
    assert directory.add(Thing(), resident.id).id == resident.id


def test_what_is_refused(monkeypatch):
    directory, thing = Directory(), Thing()
    directory.add(thing, new_id(RANDOM), ["printer"])
    with pytest.raises(BadInput, match="already"):
        directory.add(thing, new_id(RANDOM))
    with pytest.raises(BadInput, match="belongs to"):
        directory.add(Thing(), directory.one_of("printer").id)
    for wrong in ("", "x" * 200, "id:1", 5):
        with pytest.raises(BadInput):
            directory.add(Thing(), new_id(RANDOM), [wrong])
    with pytest.raises(BadInput, match="no id"):
        directory.add(Thing(), "printer")
    with pytest.raises(NoObject, match="add it first"):
        directory.add_alias("x", Thing())
    with pytest.raises(BadInput, match="for ever"):
        directory.preempt(thing, thing)
    with pytest.raises(BadInput, match="'instead'"):
        directory.preempt(thing, None, "after")
    monkeypatch.setattr(directory_of, "OBJECTS_MAX", 1)
    with pytest.raises(Overflow, match="remove some"):
        directory.add(Thing(), new_id(RANDOM))
    monkeypatch.setattr(directory_of, "ALIASES_MAX", 1)
    with pytest.raises(Overflow, match="delete some"):
        directory.add_alias("lamp", thing)
    assert len(directory.residents) == 1
    directory.validate()


def test_a_cycle_of_preemptive_objects_is_refused():
    directory = Directory()
    one, two, three = (directory.add(Thing(), new_id(RANDOM)) for _ in range(3))
    directory.preempt(one, two)
    directory.preempt(two, three, "before")
    with pytest.raises(BadInput, match="round for ever"):
        directory.preempt(three, one)
    assert one.path() == [(three, True), (two, False)]
    directory.remove(two)
    assert one.path() == [(one, False)]


def test_methods_that_may_be_called_are_those_that_say_so():
    directory = Directory()
    assert list(directory.add(Thing(), new_id(RANDOM)).methods) == ["touch"]
    assert set(directory.add(Thing(), new_id(RANDOM), names=["hidden"]).methods) == {"touch", "hidden"}
    with pytest.raises(BadInput):
        directory.add(Thing(), new_id(RANDOM), names=["no_such"])


def test_subprotocols_have_names_of_their_own():
    class Nameless(Subprotocol):
        pass

    with pytest.raises(BadInput, match="a name of its own"):
        Directory().add(Thing(), new_id(RANDOM), subprotocols=[Nameless])
