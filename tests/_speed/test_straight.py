"""The straight way does what the layers would do: the same worlds, with it and without, are the same to the byte."""

import asyncio

import pytest

import pluribus
from pluribus._speed.quick import Straight
from pluribus.layers.reliable import Reliable
from pluribus.runtime import bus
from pluribus.runtime.bus import STACKS
from pluribus.runtime.group import straight
from pluribus.sim.machinery.campaign import Outcome, play_seed
from tests.harness import eventually, new_bus, on_a_loop
from tests.mutants.hunt import released

WORLDS = [("groups", 12), ("topics", 2), ("deaf", 3)]
OTHERS = [("asks", 3), ("states", 0), ("relays", 1)]
"""Here most frames are unusual."""


def ways(monkeypatch: pytest.MonkeyPatch, went: list[Straight] | None) -> None:
    """From now on with the straight way, and those that there are; or without."""

    def counting(stack) -> None:
        if went is not None:
            straight.go_straight(stack)
            way = getattr(stack.layers[-1].send_alone, "__self__", None)
            went.extend([way] if isinstance(way, Straight) else [])

    monkeypatch.setattr(bus, "go_straight", counting)


def played(scenario: str, seed: int, monkeypatch: pytest.MonkeyPatch, went: list[Straight] | None) -> Outcome:
    ways(monkeypatch, went)
    return play_seed(scenario, seed)


def talked(monkeypatch: pytest.MonkeyPatch, went: list[Straight] | None) -> str:
    """The hash of a world in which three members send some messages each, whether they come or not."""
    ways(monkeypatch, went)

    async def main() -> str:
        async with pluribus.sim.world(members=3, seed=1, stack=STACKS["views"]) as world:
            groups = [await bus.group("g") for bus in world.buses]
            for number in range(60):
                await groups[number % 3].send(b"%d" % number, timeout=0)
                await asyncio.sleep(0.01)
            return world.trace_hash

    return pluribus.sim.run(main())


@pytest.mark.parametrize(("scenario", "seed"), WORLDS + OTHERS)
def test_a_world_is_the_same_without_it(scenario: str, seed: int, monkeypatch: pytest.MonkeyPatch):
    went: list[Straight] = []
    with_it, without = played(scenario, seed, monkeypatch, went), played(scenario, seed, monkeypatch, None)
    assert with_it.trace_hash == without.trace_hash
    assert with_it.checks == without.checks
    assert with_it.failure == without.failure == ""
    if (scenario, seed) in WORLDS:
        frames = [(way.received, way.sent) for way in went]
        assert all(sum(ways) > 10 for ways in zip(*frames, strict=True)) and frames, "else this shows nothing"


@pytest.mark.parametrize(("name", "wrong"), [("FRAME_CHARGE_BYTES", 1), ("VERSION", 17)])
def test_a_mistake_in_it_would_be_seen(name: str, wrong: object, monkeypatch: pytest.MonkeyPatch):
    went: list[Straight] = []
    without = talked(monkeypatch, None)
    assert talked(monkeypatch, went) == without and all(way.sent > 10 for way in went) and went
    monkeypatch.setattr(straight, name, wrong)
    assert talked(monkeypatch, []) != without


@on_a_loop
async def test_only_the_usual_stack_goes_straight():
    """In any other, and where something is in a layer's place, every layer sees every frame."""

    class Other(Reliable):
        """As a mutant is one."""

    async def goes(**options) -> bool:
        async with pluribus.connect(new_bus(), **options) as bus:
            ends = bus._stack.layers[0].receive, bus._stack.layers[-1].send_alone
            up, down = [isinstance(getattr(end, "__self__", None), Straight) for end in ends]
            assert up is down
            return up

    assert await goes()
    assert not any([await goes(stack=name) for name in STACKS if name != "views"])
    assert not await goes(secret="of the bus, which is long enough")
    assert not await goes(spread="tree")
    with released(Other):
        assert not await goes()


@on_a_loop
async def test_a_frame_that_something_fails_on_is_counted_and_the_node_goes_on():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        sends, reads = await one.group("g", own=False), await other.group("g", own=False)
        await sends.wait_for(2)
        await reads.wait_for(2)
        await sends.send(b"the first goes the long way")
        await reads.receive(5)
        dispatch = other._stack.layers[-1]
        before = dispatch.send_alone.__self__.received

        def fails(frame) -> None:
            raise ValueError("not this one")

        dispatch.observe = fails
        await sends.send(b"lost to its reader")
        await eventually(lambda: other.stats()["transport"]["faulty"] == 1)
        dispatch.observe = None
        await sends.send(b"here")
        assert (await reads.receive(5)).body == b"here"
        assert dispatch.send_alone.__self__.received > before, "else this shows nothing"


def test_it_is_not_made_of_less_than_it_needs():
    with pytest.raises(TypeError, match="by name"):
        Straight()
    with pytest.raises(TypeError, match="needs transport"):
        Straight(me=1)
