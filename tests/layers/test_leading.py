"""Who leads a change of the view, when, and what a leader owes those who promised to follow."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

import pluribus.sim
from pluribus.layers.membership import Membership, attempt, leading
from pluribus.layers.membership.attempt import INVITING
from pluribus.layers.membership.words import Word
from pluribus.runtime.bus import VIEWS, Bus
from pluribus.sim.machinery.world import World
from pluribus.stack.events import Found, Gone, Told

GHOST = 99


def membership_of(bus: Bus) -> Membership:
    return next(layer for layer in bus._stack.layers if isinstance(layer, Membership))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0.001)


async def gathered(world: World) -> list[Membership]:
    """The members' layers, the eldest first."""
    groups = await asyncio.gather(*[bus.group("all") for bus in world.buses])
    for group in groups:
        await group.wait_for(len(groups))
    await asyncio.sleep(5.0)  # everybody has heard of everybody's view
    ages = list(world.buses[0].members)
    return [membership_of(bus) for bus in sorted(world.buses, key=lambda bus: ages.index(bus.me))]


def test_a_leader_whose_reason_is_gone_does_not_leave_others_waiting():
    async def main() -> None:
        async with pluribus.sim.world(members=4, seed=1, stack=VIEWS) as world:
            eldest, *others = layers = await gathered(world)
            views = [layer.views for layer in layers]
            stack = next(bus._stack for bus in world.buses if membership_of(bus) is eldest)
            elsewhere = msgspec.msgpack.encode(Word((1, GHOST), (1, GHOST), 1, 0, False, True))
            stack.run(eldest.event_up, Found(GHOST, "ghost"))
            stack.run(eldest.event_up, Told(GHOST, elsewhere))
            await until(lambda: all(layer._busy for layer in layers))
            assert eldest._attempt is not None and eldest._attempt.step == INVITING
            stack.run(eldest.event_up, Gone(GHOST, "it left"))
            began = world.now
            while any(layer._busy or layer._flushing for layer in layers):
                await asyncio.sleep(0.01)
                assert world.now - began < 1.0, "they wait for a leader that has nothing to do"
            assert [layer.views for layer in layers] == [number + 1 for number in views]
            assert not any(layer._owes for layer in layers)
            assert all(layer._members == eldest._members for layer in others)

    pluribus.sim.run(main())


def test_changes_one_after_another_are_led_by_one_each_and_at_once():
    async def main() -> None:
        async with pluribus.sim.world(members=6, seed=2, stack=VIEWS) as world:
            layers = await gathered(world)
            for gone in range(5):
                bus = next(bus for bus in world.buses if membership_of(bus) is layers[gone])
                began = world.now
                await bus.close()
                left = layers[gone + 1 :]
                await until(lambda left=left: all(len(one._members) == len(left) and not one._busy for one in left))
                assert world.now - began < 0.5, "the next eldest looks at once, whatever it had put off"
                await asyncio.sleep(0.2)
            assert sum(layer.attempts_lost for layer in layers) == 0

    pluribus.sim.run(main())


def test_others_lead_in_the_end_if_the_eldest_does_not():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=3, stack=VIEWS) as world:
            eldest, *others = await gathered(world)
            eldest._lead = lambda: None  # type: ignore[method-assign]
            await world.add()
            began = world.now
            while any(len(layer._members) < 4 for layer in others):
                await asyncio.sleep(0.05)
                assert world.now - began < 30.0
            assert world.now - began > 4.0, "but not before it had time"

    pluribus.sim.run(main())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_is_one_too_many_waits_outside_and_does_not_disturb(seed: int, monkeypatch: pytest.MonkeyPatch):
    """A view that is full changes no more for those who found no room, and takes one in when somebody leaves."""
    for module in (leading, attempt):
        monkeypatch.setattr(module, "VIEW_MEMBERS_MAX", 3)

    async def main() -> None:
        async with pluribus.sim.world(members=5, seed=seed, stack=VIEWS) as world:
            await asyncio.sleep(15.0)
            layers = [membership_of(bus) for bus in world.buses]
            views = [layer.views for layer in layers]
            inside = [layer for layer in layers if len(layer._members) == 3]
            assert len(inside) == 3 and all(layer._view.ballot == inside[0]._view.ballot for layer in inside)
            assert all(layer._primary is (layer in inside) for layer in layers), "there is one primary"
            await asyncio.sleep(30.0)
            assert [layer.views for layer in layers] == views
            leaver = next(bus for bus in world.buses if membership_of(bus) is inside[0])
            await leaver.close()
            await asyncio.sleep(15.0)
            left = [layer for layer in layers if layer is not inside[0]]
            assert sum(layer._primary and len(layer._members) == 3 for layer in left) == 3

    pluribus.sim.run(main())
