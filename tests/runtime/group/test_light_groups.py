"""Groups change inside a view of the bus: it stays, and nobody but the group waits."""

import asyncio

import pytest

import pluribus.sim
from pluribus.core.errors import GroupMismatch
from pluribus.runtime.bus import VIEWS, Bus
from tests.harness import eventually, on_a_loop, two


def view_of(bus: Bus) -> int:
    return bus.stats()["membership"]["view"]


def test_a_thousand_groups_come_and_go_in_one_view_of_the_bus():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            first = await asyncio.gather(*[bus.group("all") for bus in world.buses])
            await first[0].wait_for(3)
            before = [view_of(bus) for bus in world.buses]
            opened = await asyncio.gather(
                *[bus.group(f"g{number}") for number in range(500) for bus in world.buses[number % 2 : number % 2 + 2]]
            )
            for group in opened:
                await group.wait_for(2)
            assert [view_of(bus) for bus in world.buses] == before
            for group in opened:
                await group.close()
            await asyncio.sleep(1)
            assert [view_of(bus) for bus in world.buses] == before
            assert [bus.stats()["groups"]["channels"] for bus in world.buses] == [1, 1, 1]

    pluribus.sim.run(main())


def test_another_group_goes_on_while_one_waits_for_a_member_that_does_not_answer():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=2, stack=VIEWS) as world:
            one, other, slow = world.buses
            talk = [await bus.group("talk") for bus in (one, other)]
            await talk[0].wait_for(2)
            shared = [await bus.group("shared") for bus in (one, slow)]
            await shared[0].wait_for(2)
            world.pause(2, 0.8)
            joining = asyncio.create_task(other.group("shared"))
            await asyncio.sleep(0.3)
            assert not joining.done(), "a member of it has not said where its stream ends"
            for number in range(10):
                await talk[0].send(b"%d" % number, timeout=0)
                assert (await talk[1].receive(timeout=1)).body == b"%d" % number
            await joining
            await shared[0].wait_for(3)

    pluribus.sim.run(main())


@pytest.mark.parametrize("asked", [{"order": "causal"}, {"order": "total"}, {"safe": True}])
def test_who_asks_for_other_promises_is_refused_with_both(asked: dict):
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=3, stack=VIEWS) as world:
            one, other = world.buses
            group = await one.group("talk", order="fifo")
            with pytest.raises(GroupMismatch, match=r"'talk' is open with 'fifo', not with '(causal|total( safe)?)'"):
                await other.group("talk", **asked)
            again = await other.group("talk", order="fifo")
            await group.wait_for(2)
            await again.send(b"together")
            assert (await group.receive(timeout=1)).body == b"together"

    pluribus.sim.run(main())


def test_a_name_whose_members_have_all_left_is_free_for_other_promises():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=4, stack=VIEWS) as world:
            one, other = world.buses
            await (await one.group("talk", order="fifo")).close()
            group = await other.group("talk", order="total")
            await group.send(b"mine")
            assert (await group.receive(timeout=1)).body == b"mine"

    pluribus.sim.run(main())


@on_a_loop
async def test_who_asks_for_a_group_that_is_being_joined_waits_for_it_too():
    async with two(stack="views") as (a, b):
        await a.group("x")
        first = asyncio.create_task(b.group("x"))
        await asyncio.sleep(0)
        group = await b.group("x")
        assert b.me in group.view and await first is group


@on_a_loop
async def test_a_group_whose_joining_was_given_up_is_left_again():
    async with two(stack="views") as (a, b):
        stayed = await a.group("x")
        given_up = [asyncio.create_task(b.group("x")) for _ in range(2)]
        await asyncio.sleep(0)
        given_up[0].cancel()
        assert b.me in (await given_up[1]).view, "one of two who asked still wants it"
        await (await b.group("x")).close()
        await eventually(lambda: len(stayed.view) == 1)
        given_up = [asyncio.create_task(b.group("x")) for _ in range(2)]
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        await asyncio.wait(given_up)
        await a.group("y")  # what was sent to the coordinator before is dealt with
        await b.group("y")
        await eventually(lambda: len(stayed.view) == 1)
        again = await b.group("x")
        await stayed.wait_for(2)
        await stayed.send(b"for both")
        assert (await again.receive(5)).body == b"for both"
