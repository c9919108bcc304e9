"""A snapshot is of one moment, whatever is changed while it is taken."""

from hypothesis import given
from hypothesis import strategies as st

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
