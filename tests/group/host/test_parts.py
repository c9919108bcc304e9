"""A snapshot is of one moment, whatever is changed while it is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadInput
from pluribus.group.host.machine import Ground
from pluribus.group.host.parts import Parts
from pluribus.group.host.user import hosted

NAMES = ("a", "b", "c")
STEPS = st.lists(
    st.sampled_from(["change a", "change b", "change c", "freeze", "anew", "take", "keep", "give up"]), max_size=60
)
"""``anew``: as ``freeze``, by a keeper that has no snapshot of its own to go on from."""


@given(STEPS)
def test_the_last_snapshot_that_was_kept_plus_what_changed_is_always_the_state(steps):
    state = dict.fromkeys(NAMES, 0)
    parts = Parts(lambda name: b"%d" % state[name])
    disk, taking, wanted, frozen = {}, None, [], {}
    for number, step in enumerate(steps, 1):
        if step.startswith("change"):
            parts.touch(step[-1])
            state[step[-1]] = number
        elif step in ("freeze", "anew") and taking is None:
            frozen = {name: b"%d" % value for name, value in state.items()}
            wanted, taking = parts.freeze(NAMES, disk if step == "freeze" else ()), {}
            assert step == "freeze" or wanted == list(NAMES)
        elif step == "take" and taking is not None and wanted:
            name = wanted.pop(0)
            taking[name] = parts.encoded(name)
        elif step == "keep" and taking is not None and not wanted:
            disk |= taking
            assert disk == frozen, "the snapshot is of the moment of freeze"
            parts.thaw(True)
            taking = None
        elif step == "give up" and taking is not None:
            parts.thaw(False)
            taking = None


class Last:
    """A user's machine: the last command."""

    def __init__(self):
        self.command = b""

    def apply(self, index, command):
        self.command = command
        return b""

    def snapshot(self):
        return self.command

    def restore(self, state):
        self.command = state


def test_a_users_machine_is_of_one_moment_too_when_it_is_taken_anew():
    machine = hosted("last", Last)(Ground(1, None, None, None))
    machine.apply(0, 0, b"before")
    names = machine.part_names()
    known = set(machine.parts.freeze(names, ()))
    assert [machine.parts.encoded(name) for name in names] == [b"before"]
    machine.parts.thaw(True)
    assert machine.parts.freeze(machine.part_names(), known) == [], "nothing has changed"
    machine.parts.thaw(True)
    assert machine.parts.freeze(machine.part_names(), ()) == names
    machine.apply(1, 0, b"after")
    assert [machine.parts.encoded(name) for name in names] == [b"before"]


def test_what_a_later_version_takes_over_is_of_now_and_leaves_the_snapshot_as_it_is():
    machine = hosted("last", Last)(Ground(1, None, None, None))
    machine.apply(0, 0, b"before")
    names = machine.part_names()
    machine.parts.freeze(names, ())
    machine.apply(1, 0, b"after")
    assert machine.parts_now() == [("000000", b"after")]
    assert [machine.parts.encoded(name) for name in names] == [b"before"]


def test_an_object_is_told_the_version_in_use():
    class Versioned(Last):
        version = 3

    assert hosted("last", Versioned).version == 3
    assert hosted("last", Versioned)(Ground(1, None, None, None, version=2)).machine.version == 2
    assert not hasattr(hosted("last", Last)(Ground(1, None, None, None)).machine, "version")


def test_an_object_that_cannot_be_told_the_version_is_refused():
    class Narrow:
        __slots__ = ("command",)
        version = 2

    with pytest.raises(BadInput, match="leave them out"):
        hosted("narrow", Narrow)
