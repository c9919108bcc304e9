"""Groups in the simulator: the seeds that once failed, and stories. ``test_mutants_groups.py`` has the sample."""

import asyncio

import pytest

import pluribus
from pluribus.runtime.bus import VIEWS
from pluribus.sim.machinery.campaign import play_seed

ONCE_FAILED = (5, 10, 12, 15, 31, 32, 36, 48, 87, 146, 155, 185, 274)
"""Each found a mistake: a stale stream in a digest, an entry that shrank before it was repaired, a status of another
view, an order asked for in the view before, a channel that was opened again while paused, a group joined before it was
left, a stream to one member that went on where its receiver had forgotten it."""


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed(seed: int):
    assert play_seed("groups", seed).failure == ""


def test_a_minority_waits_and_a_majority_goes_on():
    async def main() -> None:
        async with pluribus.sim.world(members=5, seed=3, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("votes", order="total") for bus in world.buses])
            for group in groups:
                await group.wait_for(5)
            world.partition([0, 1], [2, 3, 4])
            await asyncio.sleep(10)
            assert [bus.primary for bus in world.buses] == [False, False, True, True, True]
            with pytest.raises(pluribus.errors.NotPrimary, match="primary"):
                await groups[0].send(b"nobody orders this", timeout=0)
            await groups[2].send(b"ordered")
            for group in groups[2:]:
                assert (await group.receive(timeout=5)).body == b"ordered"
            world.heal()
            await groups[0].wait_for(5, timeout=30)
            await groups[0].send(b"together again")
            for group in groups[:2]:
                with pytest.raises(pluribus.errors.Excluded, match="gap"):
                    await group.receive(timeout=5)
            for group in groups:
                assert (await group.receive(timeout=5)).body == b"together again"

    pluribus.sim.run(main())


def test_fifty_members_that_start_at_once_form_one_view():
    async def main() -> None:
        async with pluribus.sim.world(members=50, seed=4, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("all") for bus in world.buses])
            for group in groups:
                await group.wait_for(50, timeout=30)
            assert len({group.view.members for group in groups}) == 1
            assert world.now < 5

    pluribus.sim.run(main())


def test_a_paused_observer_suspects_nobody():
    async def main() -> None:
        async with pluribus.sim.world(members=4, seed=5, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("all") for bus in world.buses])
            await groups[0].wait_for(4)
            world.pause(0, 0.9)
            await asyncio.sleep(30)
            assert world.buses[0].stats()["detector"]["suspicions"] == 0
            assert len(groups[0].view) == 4

    pluribus.sim.run(main())
