"""The straight way does what the layers would do: the same worlds, with it and without, are the same to the byte."""

import pytest

import pluribus
from pluribus.layers.reliable import Reliable
from pluribus.runtime import bus, straight
from pluribus.runtime.bus import STACKS
from pluribus.sim.campaign import Outcome, play_seed
from tests.harness import new_bus, on_a_loop
from tests.mutants.hunt import released

WORLDS = [*(("groups", seed) for seed in (4, 12, 14, 18)), *(("live", seed) for seed in (1, 2, 4))]
OTHERS = [("asks", 3), ("states", 0), ("relays", 1), ("groups", 1), ("groups", 2), ("groups", 3)]
"""Here most frames are unusual."""


def played(scenario: str, seed: int, monkeypatch: pytest.MonkeyPatch, went: dict[str, int] | None) -> Outcome:
    """With the straight way, and how often it was gone; or without."""

    def counting(stack) -> None:
        if went is None:
            return
        straight.go_straight(stack)
        transport, dispatch = stack.layers[0], stack.layers[-1]
        up, down = transport.straight, dispatch.alone

        def counted_up(frame) -> bool:
            taken = up(frame)
            went["up"] += taken
            return taken

        def counted_down(channel, body, kind) -> None:
            went["down"] += 1
            down(channel, body, kind)

        transport.straight, dispatch.alone = counted_up, counted_down

    monkeypatch.setattr(bus, "go_straight", counting)
    return play_seed(scenario, seed)


@pytest.mark.parametrize(("scenario", "seed"), WORLDS + OTHERS)
def test_a_world_is_the_same_without_it(scenario: str, seed: int, monkeypatch: pytest.MonkeyPatch):
    went = {"up": 0, "down": 0}
    with_it, without = played(scenario, seed, monkeypatch, went), played(scenario, seed, monkeypatch, None)
    assert with_it.trace_hash == without.trace_hash
    assert with_it.checks == without.checks
    assert with_it.failure == without.failure == ""
    if (scenario, seed) in WORLDS:
        assert went["up"] > 40 and went["down"] > 40, "else this shows nothing"


@pytest.mark.parametrize(("name", "wrong"), [("FRAME_CHARGE_BYTES", 1), ("VERSION", 17)])
def test_a_mistake_in_it_would_be_seen(name: str, wrong: object, monkeypatch: pytest.MonkeyPatch):
    without = played("live", 4, monkeypatch, None)
    monkeypatch.setattr(straight, name, wrong)
    assert played("live", 4, monkeypatch, {"up": 0, "down": 0}).trace_hash != without.trace_hash


@on_a_loop
async def test_only_the_usual_stack_goes_straight():
    """In any other, and where something is in a layer's place, every layer sees every frame."""

    class Other(Reliable):
        """As a mutant is one."""

    async def goes(**options) -> bool:
        async with pluribus.connect(new_bus(), **options) as bus:
            up, down = bus._stack.layers[0].straight, bus._stack.layers[-1].alone
            assert (up.__module__ == straight.__name__) is (down.__module__ == straight.__name__)
            return up.__module__ == straight.__name__

    assert await goes()
    assert not any([await goes(stack=name) for name in STACKS if name != "views"])
    assert not await goes(secret="of the bus, which is long enough")
    assert not await goes(spread="tree")
    with released(Other):
        assert not await goes()
