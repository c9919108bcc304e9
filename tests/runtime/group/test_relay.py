"""Open groups: who is not in them sends through any member, once and in order."""

import asyncio
import os
from contextlib import AsyncExitStack

import pytest

import pluribus.sim
from pluribus.bench.ports import free_port
from pluribus.core.errors import BadInput, GroupMismatch, NoMembers, Refused, TooLarge, Uncertain
from pluribus.core.ids import number_of
from pluribus.core.limits import OUTSIDE_BODY_BYTES_MAX, WINDOW_BYTES_MAX
from pluribus.group.relay.words import Settled
from pluribus.runtime.bus import BEST_EFFORT, VIEWS, Bus
from pluribus.runtime.group.group import Group
from tests.harness import eventually, on_a_loop


async def bodies(group: Group, count: int) -> list[object]:
    return [(await group.receive(timeout=10)).body for _ in range(count)]


async def known_to(bus: Bus, name: str) -> None:
    while number_of(name) not in bus._dispatch.members:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "promises", [{}, {"order": "causal"}, {"order": "semantic"}, {"order": "total"}, {"safe": True}]
)
def test_a_process_that_is_no_member_sends_to_an_open_group(promises: dict):
    async def main() -> None:
        async with pluribus.sim.world(members=4, seed=1, stack=VIEWS) as world:
            *inside, outside = world.buses
            groups = [await bus.group("news", open=True, **promises) for bus in inside]
            await groups[0].wait_for(3)
            relay = outside.relay("news")
            ids = [await relay.send(number) for number in range(50)]
            await relay.drain(timeout=10)
            ids.append(await outside.send("news", "last"))
            for group in groups:
                messages = [await group.receive(timeout=10) for _ in range(51)]
                assert [message.body for message in messages] == [*range(50), "last"]
                assert [message.id for message in messages] == ids
                assert {message.sender for message in messages} == {outside.me}

    pluribus.sim.run(main())


def test_what_is_read_makes_room_for_more_than_a_window():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            *inside, outside = world.buses
            groups = [await bus.group("news", open=True) for bus in inside]
            await groups[0].wait_for(2)
            relay, body, count = outside.relay("news"), b"x" * OUTSIDE_BODY_BYTES_MAX, 0
            readers = [asyncio.create_task(bodies(group, 2 * WINDOW_BYTES_MAX // len(body))) for group in groups]
            while count < 2 * WINDOW_BYTES_MAX // len(body):
                await relay.send(body, timeout=20)
                count += 1
            await relay.drain(timeout=20)
            for read in await asyncio.gather(*readers):
                assert read == [body] * count

    pluribus.sim.run(main())


def test_a_relay_that_dies_loses_nothing_and_repeats_nothing():
    async def main() -> None:
        async with pluribus.sim.world(members=4, seed=2, stack=VIEWS) as world:
            outside = world.buses[3]
            groups = [await bus.group("news", open=True) for bus in world.buses[:3]]
            await groups[0].wait_for(3)
            relay = outside.relay("news")
            for number in range(200):
                await relay.send(number)
                if number % 10 == 0:
                    await asyncio.sleep(0.001)
                if number == 100:
                    chosen = relay._outside._relay
                    world.crash(next(at for at, bus in enumerate(world.buses) if bus.me == chosen))
            await relay.drain(timeout=20)
            assert relay._outside.relays > 1
            for group in groups:
                if group.me != chosen:
                    assert await bodies(group, 200) == list(range(200))

    pluribus.sim.run(main())


def test_what_nobody_waited_for_is_told_of_though_somebody_waited_for_an_earlier_message():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=2, stack=VIEWS) as world:
            await world.buses[1].group("news", open=True)
            await known_to(world.buses[0], "news")
            relay = world.buses[0].relay("news")
            world.crash(1)
            waiting = asyncio.create_task(relay.send("waited for", wait="stable"))
            await asyncio.sleep(0)
            await relay.send("not waited for")
            with pytest.raises(Uncertain):
                await waiting
            with pytest.raises(Uncertain):
                await relay.drain(timeout=20)
            await relay.drain(timeout=20)

    pluribus.sim.run(main())


def test_what_is_settled_in_the_very_moment_of_the_time_out_is_certain():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=2, stack=VIEWS) as world:
            await world.buses[1].group("news", open=True)
            await known_to(world.buses[0], "news")
            world.pause(1, 30)
            relay, loop = world.buses[0].relay("news"), asyncio.get_running_loop()
            outside = relay._outside
            loop.call_later(1, lambda: outside.heard(outside._relay, Settled(outside._stamp, 1, 1)))
            await relay.send(b"just in time", wait="stable", timeout=1)

    pluribus.sim.run(main())


def test_who_joins_later_hears_nothing_of_before_and_everything_after():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=3, stack=VIEWS) as world:
            one, other, outside = world.buses
            first = await one.group("news", open=True)
            await outside.send("news", "before")
            second = await other.group("news", open=True)
            await first.wait_for(2)
            await outside.send("news", "after")
            assert await bodies(first, 2) == ["before", "after"]
            assert await bodies(second, 1) == ["after"]

    pluribus.sim.run(main())


def test_a_closed_group_refuses_and_an_empty_one_has_no_members():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=4, stack=VIEWS) as world:
            one, outside = world.buses
            with pytest.raises(NoMembers, match="no members"):
                await outside.send("private", b"x")
            await one.group("private")
            await known_to(outside, "private")
            with pytest.raises(Refused, match=r"bus.group\('private'\)"):
                await outside.send("private", b"x")
            with pytest.raises(GroupMismatch, match="open"):
                await outside.group("private", open=True)
            with pytest.raises(GroupMismatch, match="open"):
                await one.group("private", open=True)
            group = await one.group("public", open=True)
            await known_to(outside, "public")
            with pytest.raises(TooLarge, match="join the group"):
                await outside.relay("public").send(bytes(OUTSIDE_BODY_BYTES_MAX + 1))
            await group.close()
            with pytest.raises(Uncertain, match="may have been delivered"):
                await outside.send("public", b"x", timeout=5)
            with pytest.raises(NoMembers):
                await outside.send("public", b"x", timeout=5)

    pluribus.sim.run(main())


def test_members_refuse_whoever_does_not_ask_the_list():
    """The same, enforced by the member: a process that takes a closed group for an open one gets no further."""

    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=5, stack=VIEWS) as world:
            one, outside = world.buses
            group = await one.group("private")
            relay = outside.relay("private")
            await known_to(outside, "private")
            relay._outside._promises = "fifo open"
            relay._outside._relay = int(one.me)
            with pytest.raises(Refused):
                await relay.send(b"x", wait="stable", timeout=5)
            assert not group._channel.inbox

    pluribus.sim.run(main())


def test_a_member_that_does_not_hear_itself_hears_what_it_relays():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=6, stack=VIEWS) as world:
            one, outside = world.buses
            group = await one.group("news", open=True, own=False)
            await group.send("mine")
            await outside.send("news", "yours")
            assert await bodies(group, 1) == ["yours"]
            assert await one.send("news", "mine too") == (one.me, 3)

    pluribus.sim.run(main())


def test_without_agreed_views_there_are_no_relays():
    async def main() -> None:
        async with pluribus.sim.world(members=1, seed=7, stack=BEST_EFFORT) as world:
            with pytest.raises(BadInput, match="views"):
                world.buses[0].relay("news")
            with pytest.raises(BadInput, match="views"):
                await world.buses[0].group("news", open=True)

    pluribus.sim.run(main())


@pytest.mark.parametrize("engine", ["multicast", "udp", "tcp"])
@on_a_loop
async def test_on_real_sockets_a_relay_dies_and_another_one_goes_on(engine: str):
    host = "" if engine == "multicast" else f"127.0.0.1:{free_port()}/"
    url = f"{engine}://{host}relay-{os.getpid()}"
    async with AsyncExitStack() as opened:
        buses = [await opened.enter_async_context(pluribus.connect(url, name=f"m{number}")) for number in range(4)]
        *inside, outside = buses
        groups = await asyncio.gather(*[bus.group("news", open=True, order="total") for bus in inside])
        for group in groups:
            await group.wait_for(3, timeout=20)
        relay = outside.relay("news")
        await eventually(lambda: relay._outside.members)
        await relay.send(0, wait="stable", timeout=20)
        chosen = relay._outside._relay
        for number in range(1, 100):
            await relay.send(number)
        victim = next(bus for bus in inside if bus.me == chosen)
        victim.abandon()
        await victim._engine.close()
        for number in range(100, 200):
            await relay.send(number)
        await relay.drain(timeout=30)
        for group in groups:
            if group.me != chosen:
                assert await bodies(group, 200) == list(range(200))
