"""Who leaves for good leaves the others a primary; sets that heard of different leavers never both form one."""

import asyncio
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pluribus.sim
from pluribus.layers.membership.primary import is_quorum
from pluribus.layers.membership.words import Link
from pluribus.runtime.bus import VIEWS


@pytest.mark.parametrize("members", [2, 3, 4])
def test_members_leave_one_after_another_and_the_rest_stays_primary(members: int):
    async def main() -> None:
        async with pluribus.sim.world(members=members, seed=members, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("votes", safe=True) for bus in world.buses])
            for group in groups:
                await group.wait_for(members)
            by_age = sorted(
                zip(world.buses, groups, strict=True), key=lambda one: list(one[0].members).index(one[0].me)
            )
            while len(by_age) > 1:
                eldest, _ = by_age.pop(0)
                await eldest.close()
                for _, group in by_age:
                    async for view in group.views():
                        if len(view) == len(by_age):
                            break
                for bus, group in by_age:
                    assert bus.primary
                    await group.send(b"still here", timeout=5)

    pluribus.sim.run(main())


@given(st.integers(1, 6), st.data())
def test_two_disjoint_sets_never_both_have_a_quorum(size: int, data: st.DataObject):
    members = tuple(range(1, size + 1))
    link = Link(1, 1, (1, 1), members)
    gone = data.draw(st.sets(st.sampled_from(members)))
    rest = [member for member in members if member not in gone]
    heard = [data.draw(st.sets(st.sampled_from(sorted(gone)))) if gone else set() for _ in range(2)]
    for count in range(len(rest) + 1):
        for one in combinations(rest, count):
            other = [member for member in rest if member not in one]
            assert not (is_quorum(one, link, heard[0]) and is_quorum(other, link, heard[1]))
