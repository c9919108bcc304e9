"""A table machine: a mapping like any other, whose state is always the last snapshot plus the parts that changed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pluribus
from pluribus.core.errors import BadInput
from pluribus.group.host import table
from pluribus.group.host.machine import Ground
from pluribus.group.host.parts import Parts
from pluribus.group.host.user import hosted
from pluribus.group.log import PART_BYTES

KEYS = st.one_of(st.integers(0, 5), st.sampled_from(["", "a", "é"]), st.binary(max_size=1))
VALUES = st.recursive(st.none() | st.integers(-5, 5) | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("drop"), KEYS, st.none()),
        st.tuples(st.sampled_from(["freeze", "take", "keep", "open again"]), st.none(), st.none()),
    ),
    max_size=60,
)


class Shelf(pluribus.TableMachine):
    """Puts and drops as it is told; it counts its commands, which is no part of its state."""

    def __init__(self):
        self.commands = 0

    def apply(self, index, command):
        self.commands += 1
        key, *value = msgspec.msgpack.decode(command)
        if value:
            self.table[key] = value[0]
        else:
            del self.table[key]
        return b"%d" % len(self.table)


@given(STEPS)
def test_it_is_a_mapping_and_the_last_snapshot_plus_what_changed_is_its_state(steps):
    known, shelf, disk, taking, wanted, moment = {}, table.PartedTable(), {}, None, [], {}
    for what, key, value in steps:
        if what == "put":
            known[key] = shelf[key] = value
        elif what == "drop":
            assert (known.pop(key, shelf) is shelf) == (shelf.pop(key, known) is known)
        elif what == "freeze" and taking is None:
            names, moment = shelf.part_names(), dict(known)
            wanted, taking = shelf.parts.freeze(names, disk), {}
            disk = {name: data for name, data in disk.items() if name in names}
        elif what == "take" and wanted:
            name = wanted.pop()
            taking[name] = shelf.parts.encoded(name)
        elif what == "keep" and taking is not None:
            taking |= {name: shelf.parts.encoded(name) for name in wanted}
            shelf.parts.thaw(True)
            disk, taking, wanted = disk | taking, None, []
            other = table.PartedTable()
            other.restore(disk.items())
            assert other == moment, "the snapshot is of the moment of freeze"
        elif what == "open again" and taking is None:
            shelf.parts.thaw(False)
            whole = [(name, shelf.encode_part(name)) for name in shelf.part_names()]
            shelf.restore(whole)
        assert shelf == known
        assert len(shelf) == len(known)


def test_only_parts_that_changed_are_due_and_each_is_small():
    machine = hosted("shelf", Shelf)(Ground(1, None, None, None))
    for number in range(20_000):
        machine.apply(number, 0, msgspec.msgpack.encode([number, "x" * 100]))
    names = machine.part_names()
    assert machine.parts.freeze(names, ()) == names
    assert max(len(machine.parts.encoded(name)) for name in names) < PART_BYTES // 100
    machine.parts.thaw(True)
    assert machine.apply(20_000, 0, msgspec.msgpack.encode([7])).result == b"19999"
    assert len(machine.parts.freeze(machine.part_names(), names)) == 1
    assert isinstance(machine.parts, Parts)


def test_values_are_copies_and_what_cannot_be_kept_changes_nothing():
    shelf = table.PartedTable()
    shelf["a"] = [1]
    shelf["a"].append(2)
    assert shelf["a"] == [1]
    with pytest.raises(TypeError):
        shelf["a"] = object()
    assert dict(shelf) == {"a": [1]}
    with pytest.raises(KeyError, match="'b'"):
        shelf["b"]


def test_it_travels_whole_to_a_new_member_in_memory():
    async def story():
        url = "inproc://shelves"
        async with pluribus.connect(url) as ann, pluribus.connect(url) as bob:
            one = await ann.replica("shelf", Shelf())
            await one.call(msgspec.msgpack.encode(["book", 3]))
            other = await bob.replica("shelf", Shelf())
            assert await other.read(lambda shelf: shelf.table["book"]) == 3
            assert other.machine.commands == 0, "it was given the state, not the commands"

    pluribus.run(story())


def test_a_table_does_not_become_a_plain_machine_unnoticed():
    class Plain:
        def restore(self, state):
            raise AssertionError("never asked")

    shelf = hosted("shelf", Shelf)(Ground(1, None, None, None))
    shelf.machine.table["a"] = 1
    plain = hosted("shelf", Plain)(Ground(1, None, None, None))
    with pytest.raises(BadInput, match="a kind of its own"):
        plain.restore(shelf.parts_now())
