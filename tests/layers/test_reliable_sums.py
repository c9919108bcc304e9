"""Acknowledgements of a large group are summed along the tree: a sender hears a handful, and nothing too early."""

import asyncio

import pytest

import pluribus
from pluribus.core.ids import ALL
from pluribus.core.tree import place
from pluribus.layers.reliable.headers import Ack, Granted, Summed
from pluribus.layers.reliable.outgoing import Outgoing
from pluribus.layers.reliable.summing import Summing
from pluribus.runtime.bus import VIEWS

GROUP = 7
MEMBERS = tuple(range(1, 21))


def summing(me: int) -> Summing:
    found = Summing(16)
    found.set_order(GROUP, MEMBERS)
    assert found.applies(1, GROUP, me)
    return found


def test_everybody_answers_its_parent_in_the_tree_of_the_owner():
    for owner in (1, 7, 20):
        for me in MEMBERS:
            parent, children = summing(me).around(owner, GROUP, me)
            where = place(20, owner - 1, me - 1, 1)
            assert parent == (0 if me == owner else where.parent + 1)
            assert children == tuple(child + 1 for child in where.children)


def test_a_sum_is_the_least_and_waits_for_all():
    me = 11
    found = summing(me)
    _, children = found.around(1, GROUP, me)
    assert len(children) >= 2
    mine = found.own(1, GROUP, 50, 5_000, me)
    assert found.total(mine, children) is None
    for at, child in enumerate(children):
        found.heard(child, Summed(1, GROUP, 3, 40 + at, 9_000 - at, 100 + child))
    assert found.total(mine, children) == (40, 5_000, me)
    found.own(1, GROUP, 60, 99_000, me)
    last = children[-1]
    assert found.total(mine, children) == (40, 9_000 - len(children) + 1, 100 + last)
    found.heard(children[0], Summed(1, GROUP, 3, 10, 10, 5))
    assert found.total(mine, children)[0] == 40, "what was said is not taken back"


def test_a_changed_group_starts_again_from_what_was_stable():
    found = summing(11)
    found.own(1, GROUP, 50, 5_000, 11)
    found.set_order(GROUP, MEMBERS[:-1])
    assert len(found) == 0
    found.set_order(GROUP, MEMBERS[:16])
    assert not found.applies(1, GROUP, 11), "sixteen are few enough to answer themselves"


def test_who_answers_for_others_is_not_believed_for_what_it_said_for_itself():
    out = Outgoing(0)
    out.receivers(frozenset({1, 2, 3}), 1_000)
    out.next = 10
    out.acknowledged(2, 10, 5_000)
    out.acknowledged(1, 10, 5_000)
    out.answered_by(frozenset({1, 2}), 1, 1_000)
    assert out.stable == 0 and out.acked == {1: 10, 2: 0}, "3 is below 2, and has nothing"
    out.acknowledged(2, 10, 6_000)
    assert out.stable == 10
    out.validate()


def test_where_sums_are_counted_nobody_is_heard_for_itself():
    """It is in a later view of the group, a small one, and its word would pass for that of all below it."""
    mine, other = Granted(GROUP, ALL, 9, 9_000), Granted(GROUP + 1, ALL, 9, 9_000)
    direct = Granted(GROUP, 5, 3, 3_000)
    assert summing(1).plain(Ack([mine, other, direct]), 1).streams == [other, direct]
    few = Summing(16)
    few.set_order(GROUP, MEMBERS[:16])
    assert few.plain(Ack([mine, other]), 1).streams == [mine, other]


def test_who_comes_to_a_large_group_begins_with_the_first_window():
    out = Outgoing(0)
    out.receivers(frozenset({1, 2, 3}), 1_000)
    for member in (1, 2, 3):
        out.acknowledged(member, 0, 50_000)
    out.answered_by(frozenset({1, 2}), 1, 1_000)
    assert set(out.limits.values()) == {1_000}, "somebody below 2 may have granted nothing yet"


@pytest.mark.parametrize("members", [12, 40])
def test_a_sender_in_a_large_group_hears_a_handful(members: int):
    async def main() -> None:
        async with pluribus.sim.world(members, 3, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("all", own=False) for bus in world.buses])
            for group in groups:
                await group.wait_for(members)
            await asyncio.sleep(1)
            reliable = next(layer for layer in world.buses[0]._stack.layers if layer.name == "reliable")
            for _ in range(100):
                await groups[0].send(bytes(20_000))
                await asyncio.gather(*[group.receive(timeout=10) for group in groups[1:]])
            await asyncio.sleep(3)
            out = reliable._out[(groups[0]._channel.number, ALL)]
            assert out.stable == out.next and not out.kept, "everybody has everything, and the sender knows"
            assert len(out.acked) <= (members - 1 if members <= 16 else 6)
            world.validate()

    pluribus.sim.run(main())


def test_a_member_that_does_not_read_is_named_although_another_answers_for_it():
    async def main() -> None:
        async with pluribus.sim.world(30, 4, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("all", own=False) for bus in world.buses])
            for group in groups:
                await group.wait_for(30)
            lazy = groups[17]
            reading = [asyncio.create_task(read(group)) for group in groups[1:] if group is not lazy]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send(groups[0]), 20)
            reliable = next(layer for layer in world.buses[0]._stack.layers if layer.name == "reliable")
            out = reliable._out[(groups[0]._channel.number, ALL)]
            assert out.full() == [lazy.me]
            for task in reading:
                task.cancel()

    async def send(group: pluribus.Group) -> None:
        while True:
            await group.send(bytes(20_000))

    async def read(group: pluribus.Group) -> None:
        async for _ in group:
            pass

    pluribus.sim.run(main())
