"""Gossip reaches as many as it is said to; digests make it certain."""

import asyncio
from random import Random

import pytest

import pluribus
from pluribus.core.limits import VIEW_MEMBERS_MAX
from pluribus.layers.spread.gossip import fanout_for, reach
from pluribus.sim.machinery.network import Medium
from tests.sim.test_spread import with_spread


def told(members: int, fanout: int, random: Random) -> int:
    """How many hear a message if everybody who does tells so many others, once."""
    heard, waiting = {0}, [0]
    while waiting:
        me = waiting.pop()
        for other in random.sample(range(members), fanout + 1)[:fanout]:
            if other != me and other not in heard:
                heard.add(other)
                waiting.append(other)
    return len(heard)


@pytest.mark.parametrize("fanout", [2, 3, 5])
def test_the_stated_probability_is_the_measured_one(fanout: int):
    random, members = Random(fanout), 1_000
    runs = [told(members, fanout, random) / members for _ in range(40)]
    spread_out = [share for share in runs if share > 0.1]  # a rumour may die with its first tellers
    stated, _ = reach(members, fanout)
    assert abs(sum(spread_out) / len(spread_out) - stated) < 0.02


def test_all_are_reached_about_as_often_as_stated():
    random, members = Random(7), 200
    fanout = fanout_for(members)
    whole = sum(told(members, fanout, random) == members for _ in range(150)) / 150
    _, stated = reach(members, fanout)
    assert stated - 0.15 < whole <= 1


def test_a_fanout_of_one_leaves_most_to_the_digests_and_still_all_hear_all():
    async def main() -> None:
        stack = with_spread("by='gossip', fanout=1")
        async with pluribus.sim.world(members=10, seed=3, stack=stack) as world:
            groups = await asyncio.gather(*[bus.group("all", own=False) for bus in world.buses])
            for group in groups:
                await group.wait_for(10)
            for number in range(20):
                await groups[4].send(str(number))
                await asyncio.sleep(0.01)
            for group in groups[:4] + groups[5:]:
                assert [(await group.receive(timeout=10)).body for _ in range(20)] == [str(n) for n in range(20)]
            await asyncio.sleep(5)
            stats = [bus.stats()["spread"] for bus in world.buses]
            assert sum(each["repaired"] for each in stats) > 0
            assert all(each["kept"] == 0 for each in stats), "what everybody has is forgotten"

    pluribus.sim.run(main())


def test_a_crowd_beyond_agreed_views_hears_everything_although_three_in_ten_die():
    async def main() -> None:
        members = VIEW_MEMBERS_MAX + 10
        world = pluribus.sim.world(members, 5, stack=pluribus.runtime.bus.CROWD, medium=Medium(broadcasts=False))
        async with world:
            groups = await asyncio.gather(*[bus.group("all", own=False) for bus in world.buses])
            await asyncio.sleep(6)
            assert min(len(group.view) for group in groups) > 12
            dead = Random(5).sample(range(10, members), members * 3 // 10)
            for number in dead:
                world.crash(number)
            for number in range(5):
                await groups[2].send(str(number))
            hearers = [group for number, group in enumerate(groups) if number not in (2, *dead)]
            for group in hearers:
                assert [(await group.receive(timeout=10)).body for _ in range(5)] == [str(n) for n in range(5)]
            world.validate()

    pluribus.sim.run(main())
