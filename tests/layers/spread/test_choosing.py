"""``auto`` takes the way that what it measured speaks for."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import BadStack
from pluribus.core.ids import ALL
from pluribus.layers.spread import Spread
from pluribus.layers.spread.choosing import PIPELINE, TREE, UNICAST, Chooser
from pluribus.sim.machinery.network import Medium
from tests.sim.test_spread import with_spread


@pytest.mark.parametrize(
    ("size", "moment", "others", "way"),
    [
        (100, 100, 1, UNICAST),
        (100, 100, 6, UNICAST),
        (100, 100, 7, TREE),
        (20_000, 20_000, 2, UNICAST),
        (20_000, 20_000, 3, TREE),
        (20_000, 20_000, 199, TREE),
        (20_000, 400_000, 3, PIPELINE),
        (20_000, 400_000, 2, UNICAST),
        (100, 50_000, 20, PIPELINE),
    ],
)
def test_what_is_needed(size: int, moment: int, others: int, way: str):
    assert Chooser._needed(size, moment, others) == way


def ways_of(members: int, medium: Medium, bodies: list[int], lose=None) -> dict[str, object]:
    """What the sender's spread layer counted after it sent these bodies to all, who have them."""

    async def main() -> dict[str, object]:
        async with pluribus.sim.world(members, 3, stack=with_spread("by='auto'"), medium=medium) as world:
            groups = await asyncio.gather(*[bus.group("x", own=False) for bus in world.buses])
            for group in groups:
                await group.wait_for(members)
            if lose is not None:
                lose(world)
            before = dict(world.buses[0].stats()["spread"])
            for size in bodies:
                reading = [asyncio.create_task(group.receive(timeout=20)) for group in groups[1:]]
                await groups[0].send(bytes(size))
                assert [len(message.body) for message in await asyncio.gather(*reading)] == [size] * (members - 1)
            found = world.buses[0].stats()["spread"]
            world.validate()
            counted = ("multicast", "unicast", "tree", "pipeline")
            return {**found, **{way: found[way] - before[way] for way in counted}}

    return pluribus.sim.run(main())


def test_multicast_is_taken_where_there_is_one():
    found = ways_of(10, Medium(), [100, 30_000])
    assert found["multicast"] >= 2 and not found["tree"] and not found["unicast"]


def test_few_are_sent_to_one_by_one_and_many_down_a_tree():
    few = ways_of(4, Medium(broadcasts=False), [100, 100])
    many = ways_of(10, Medium(broadcasts=False), [100, 100])
    assert few["unicast"] >= 2 and not few["tree"]
    assert many["tree"] >= 2 and not many["unicast"]


def test_a_long_message_is_pipelined():
    found = ways_of(10, Medium(broadcasts=False, path_bytes=8_192), [1 << 20])
    assert found["pipeline"] > 100


def test_a_member_that_multicast_does_not_reach_is_found_and_served():
    def lose(world: pluribus.sim.World) -> None:
        carry, codec, deaf = world.network.carry, world.buses[0]._stack.node.codec, world.hosts[2].address

        def without_multicast(source, target, data):
            frame = codec.decode(data)
            beat = type(frame.headers[-1]).__name__ == "Beat"  # or it would not even be a member
            if target != deaf or frame.to != ALL or beat:
                carry(source, target, data)

        world.network.carry = without_multicast

    found = ways_of(5, Medium(), [50_000] * 40, lose)
    assert found["unreached"] == 1
    assert found["multicast"] > 0 and found["tree"] + found["pipeline"] > 0


def test_what_is_no_way_is_refused_with_a_sentence():
    with pytest.raises(BadStack, match="use auto, multicast, unicast, tree"):
        Spread(by="pigeon")
    with pytest.raises(BadStack, match="use 1 to 8"):
        Spread(k=9)
    with pytest.raises(BadStack, match="sender or first"):
        Spread(proxy="anybody")
