"""The model of spreading agrees with whole stacks on the simulated network, and with what is known of each way."""

import asyncio
from random import Random

import pytest

import pluribus
from pluribus.core.tree import FLAT, balanced, median, steps
from pluribus.layers.spread.gossip import reach
from pluribus.sim import Link
from pluribus.sim.machinery.spreading import Line, by_gossip, by_multicast, by_tree
from tests.sim.test_spread import with_spread

LINE = Line()


def with_stacks(way: str, hosts: int, size: int) -> float:
    """Virtual seconds that the very protocol takes, its acknowledgements and beats among it."""

    async def main() -> float:
        stack = with_spread(way).replace("fragment", "fragment(path_bytes=32768)")
        async with pluribus.sim.world(members=hosts, seed=1, stack=stack) as world:
            groups = await asyncio.gather(*[bus.group("x", own=at != 0) for at, bus in enumerate(world.buses)])
            for group in groups:
                await group.wait_for(hosts)
            await asyncio.sleep(1)
            world.set_link(Link(LINE.latency_s, 0.0, LINE.bytes_s))

            async def read(group: pluribus.Group) -> float:
                await group.receive()
                return world.now

            reading = [asyncio.create_task(read(group)) for group in groups[1:]]
            began = world.now
            await groups[0].send(bytes(size))
            return max(await asyncio.gather(*reading)) - began

    return pluribus.sim.run(main())


@pytest.mark.parametrize("size", [20_480, 1 << 20])
@pytest.mark.parametrize(
    ("way", "shape"),
    [("by='unicast'", FLAT), ("by='tree'", median()), ("by='tree', k=3", median(3)), ("by='pipeline'", balanced())],
)
def test_the_model_agrees_with_whole_stacks(way: str, shape: int, size: int):
    assert with_stacks(way, 12, size) == pytest.approx(by_tree(12, size, shape, LINE).seconds, rel=0.05)


@pytest.mark.parametrize("hosts", [1, 2, 3, 16, 17, 1_000, 4_097])
def test_steps_are_the_least_and_the_busiest_host_is_the_root(hosts: int):
    tree = by_tree(hosts, 1_000, median())
    assert tree.steps == steps(hosts - 1)
    one_by_one = by_tree(hosts, 1_000, FLAT)
    assert one_by_one.steps == hosts - 1
    assert one_by_one.busiest_bytes == (hosts - 1) * by_multicast(hosts, 1_000).busiest_bytes
    assert by_tree(hosts, 1_000, balanced(2)).busiest_bytes <= 2 * by_multicast(hosts, 1_000).busiest_bytes


def test_the_pipelined_tree_hardly_notices_how_many_there_are():
    few, many = by_tree(16, 8 << 20, balanced()), by_tree(20_000, 8 << 20, balanced())
    assert many.seconds < 1.1 * few.seconds
    assert by_tree(20_000, 8 << 20, median()).seconds > 3 * by_tree(16, 8 << 20, median()).seconds


@pytest.mark.parametrize("fanout", [3, 6])
def test_gossip_reaches_what_it_is_said_to(fanout: int):
    runs = [by_gossip(3_000, 1_000, fanout, Random(seed)).reached for seed in range(8)]
    assert sum(runs) / len(runs) == pytest.approx(reach(3_000, fanout)[0], abs=0.02)


def test_alone_there_is_nobody_to_tell():
    assert by_tree(1, 1_000).seconds == 0 and by_gossip(1, 1_000, 5, Random(1)).reached == 1
