"""``connect(spread=)`` on real buses: the same group by every way, and members that choose differently."""

import asyncio
import contextlib

import pytest

import pluribus
from pluribus.core.errors import BadInput, Refused
from pluribus.runtime.bus import CROWD, VIEWS
from pluribus.runtime.group.spreads import SPREADS, spreading


async def together(url: str, *spreads: str | None) -> None:
    """As many members as ways: each sends a long message and a short one, and all have all of them."""
    count = len(spreads)
    buses = [await pluribus.connect(url, name=f"m{at}", spread=spread) for at, spread in enumerate(spreads)]
    try:
        groups = await asyncio.gather(*[bus.group("all") for bus in buses])
        for group in groups:
            await group.wait_for(count, timeout=20)
        for at, group in enumerate(groups):
            await group.send(f"{at} short")
            await group.send(f"{at} " + "long " * 20_000)
        expected = {(at, length) for at in range(count) for length in ("short", "long")}
        for group in groups:
            got = [(await group.receive(timeout=20)).body.split(" ")[:2] for _ in range(2 * count)]
            assert {(int(at), length) for at, length in got} == expected
            for at in range(count):
                assert [length for sender, length in got if sender == str(at)] == ["short", "long"]
        for bus, spread in zip(buses, spreads, strict=True):
            if spread not in (None, "auto"):
                assert bus.stats()["spread"][SPREADS[str(spread)]] > 0
    finally:
        for bus in reversed(buses):
            await bus.close()


@pytest.mark.parametrize("spread", SPREADS)
def test_every_way_brings_everything_to_all(spread: str):
    pluribus.run(together(f"inproc://spreads-{spread}", spread, spread, spread, spread))


def test_members_that_choose_different_ways_understand_each_other():
    pluribus.run(together("inproc://mixed", *SPREADS))


def test_over_sockets():
    pluribus.run(together("udp://127.0.0.1:17311/spreads", "tree", "pipelined", "one-by-one"))


def test_the_layer_goes_directly_below_reliability():
    assert spreading(VIEWS, None) == VIEWS
    assert "detector | spread(by='unicast') | reliable" in spreading(VIEWS, "one-by-one")


@pytest.mark.parametrize(
    ("stack", "spread", "sentence"),
    [
        (VIEWS, "pigeon", "use auto, multicast, one-by-one, tree, pipelined, gossip"),
        (CROWD, "tree", "stack='views'"),
        (spreading(VIEWS, "tree"), "gossip", "said twice"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(stack: str, spread: str, sentence: str):
    with pytest.raises(BadInput, match=sentence):
        pluribus.connect("inproc://refused", stack=stack, spread=spread)


def test_readers_of_one_host_are_served_by_its_one_dispatcher():
    """A message comes to a host once, by its place in the list, and everybody there who wants it gets it."""

    async def main() -> None:
        async with (
            pluribus.sim.world(members=5, seed=3, stack=spreading(VIEWS, "tree")) as world,
            contextlib.AsyncExitStack() as opened,
        ):
            readers = [
                await opened.enter_async_context(bus.subscribe("news/#")) for bus in world.buses for _ in range(3)
            ]
            groups = [group for bus in world.buses for group in bus._groups.values()]
            await asyncio.gather(*[group.wait_for(5) for group in groups])
            assert len({group.view.members for group in groups}) == 1, "the same ordered list everywhere"
            before = [host._engine.stats.bytes_in for host in world.hosts]
            await world.buses[1].publish("news/long", "x" * 50_000)
            for reader in readers:
                async for event in reader:
                    assert event.body == "x" * 50_000
                    break
            came = [host._engine.stats.bytes_in - was for host, was in zip(world.hosts, before, strict=True)]
            assert [size // 50_000 for size in came] == [1, 0, 1, 1, 1]

    pluribus.sim.run(main())


@pytest.mark.parametrize("spread", ["tree", "pipelined", "gossip"])
def test_who_is_not_in_an_open_group_sends_one_copy_and_a_dispatcher_spreads_it(spread: str):
    async def main() -> None:
        async with pluribus.sim.world(members=9, seed=4, stack=spreading(VIEWS, spread)) as world:
            *inside, outside = world.buses
            groups = await asyncio.gather(*[bus.group("news", open=True) for bus in inside])
            await groups[0].wait_for(8)
            await outside.send("news", "first")
            sent = world.hosts[8]._engine.stats.bytes_out
            await outside.send("news", "x" * 30_000)
            assert (world.hosts[8]._engine.stats.bytes_out - sent) // 30_000 == 1
            for group in groups:
                assert [(await group.receive(timeout=5)).body for _ in range(2)] == ["first", "x" * 30_000]
            closed = await inside[0].group("closed")
            await asyncio.sleep(1)  # of virtual time: everybody knows of it
            with pytest.raises(Refused):
                await outside.send("closed", "nobody asked")
            await closed.close()

    pluribus.sim.run(main())
