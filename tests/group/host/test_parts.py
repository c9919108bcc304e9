"""A snapshot is of one moment, whatever is changed while it is taken."""

from hypothesis import given
from hypothesis import strategies as st

from pluribus.group.host.parts import Parts

NAMES = ("a", "b", "c")
STEPS = st.lists(
    st.sampled_from(["change a", "change b", "change c", "freeze", "take", "keep", "give up"]), max_size=60
)


@given(STEPS)
def test_the_last_snapshot_that_was_kept_plus_what_changed_is_always_the_state(steps):
    state = dict.fromkeys(NAMES, 0)
    parts = Parts(lambda name: b"%d" % state[name])
    for name in NAMES:
        parts.touch(name)
    disk, taking, wanted, frozen = {}, None, [], {}
    for number, step in enumerate(steps, 1):
        if step.startswith("change"):
            parts.touch(step[-1])
            state[step[-1]] = number
        elif step == "freeze" and taking is None:
            frozen = {name: b"%d" % value for name, value in state.items()}
            wanted, taking = parts.freeze(NAMES), {}
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
