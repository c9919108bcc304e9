"""``send(..., wait="stable")`` returns when everybody has it; leaving ``connect`` drains, or says what it did not."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import BadInput, Closed, Uncertain, Undelivered
from pluribus.core.ids import ALL
from pluribus.runtime.bus import VIEWS
from pluribus.runtime.group.stability import drain
from pluribus.stack.events import Unconfirmed
from tests.harness import eventually, new_bus, on_a_loop, two_in_a_group


@on_a_loop
async def test_a_message_is_everywhere_when_the_call_returns():
    async with two_in_a_group(stack="views") as (one, other):
        for options in ({}, {"to": other.me}):
            message = await one.send(b"important", wait="stable", timeout=5, **options)
            assert other._channel.inbox[-1].bodies and (await other.receive(5)).id == message
        await one.send("typed", wait="stable", timeout=5)
        ids = await one.send_many([b"a", b"b", b"c"], wait="stable", timeout=5)
        assert len(ids) == 3 and [(await other.receive(5)).id for _ in range(4)][1:] == ids
        many = await asyncio.gather(*[one.send(b"%d" % n, wait="stable") for n in range(500)])
        assert len(set(many)) == 500 and not len(one._dispatch.confirmations)


@on_a_loop
async def test_a_member_alone_has_it_at_once():
    async with pluribus.connect(new_bus(), stack="views") as bus:
        for own in (True, False):
            await (await bus.group(f"own {own}", own=own)).send(b"me", wait="stable", timeout=5)


@on_a_loop
async def test_what_cannot_be_waited_for_is_refused():
    async with two_in_a_group() as (one, _):
        with pytest.raises(BadInput, match="stack='views'"):
            await one.send(b"", wait="stable")
        with pytest.raises(BadInput, match="wait='durable'"):
            await one.send(b"", wait="durable")
        with pytest.raises(BadInput):
            await one.send_many([b""], wait="durable")


@on_a_loop
async def test_a_closed_group_ends_the_waiting():
    async with two_in_a_group(stack="views") as (one, other):
        other._dispatch.stimulus = lambda work: None  # it says nothing any more
        sending = asyncio.create_task(one.send(b"?", wait="stable"))
        await asyncio.sleep(0)
        await one.close()
        with pytest.raises(Closed):
            await sending


def test_a_receiver_that_is_silent_or_gone():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("x") for bus in world.buses])
            await groups[0].wait_for(3)
            world.pause(2, 0.5)
            with pytest.raises(Uncertain, match="not all are known") as uncertain:
                await groups[0].send(b"slow", wait="stable", timeout=0.1)
            assert uncertain.value.id[0] == groups[0].me
            await groups[0].send(b"patient", wait="stable", timeout=5)
            assert len(groups[0].view) == 3
            world.crash(2)
            await groups[0].send(b"it is gone", wait="stable", timeout=10)
            assert len(groups[0].view) == 2
            world.pause(1, 1)
            sending = asyncio.create_task(groups[0].send(b"to one", to=groups[1].me, wait="stable", timeout=20))
            await asyncio.sleep(0.1)
            world.crash(1)
            with pytest.raises(Uncertain, match="cut off"):
                await sending

    pluribus.sim.run(main())


def test_what_is_confirmed_in_the_very_moment_of_the_time_out_is_certain():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=1, stack=VIEWS) as world:
            one, _ = await asyncio.gather(*[bus.group("x") for bus in world.buses])
            await one.wait_for(2)
            world.pause(1, 30)
            group, loop = one._channel.number, asyncio.get_running_loop()
            loop.call_later(1, lambda: one._dispatch.confirmations.confirmed((group, ALL), 1))
            await one.send(b"just in time", wait="stable", timeout=1)

    pluribus.sim.run(main())


@pytest.mark.parametrize("asks", [False, True])
def test_who_was_away_without_notice_makes_it_uncertain(asks: bool):
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=1, stack=VIEWS) as world:
            one, other = await asyncio.gather(*[bus.group("x") for bus in world.buses])
            await one.wait_for(2)
            world.pause(0, 6)  # the other goes on alone, and this one does not notice
            await eventually(lambda: len(other.view) == 1)
            if asks:
                with pytest.raises(pluribus.errors.NoMembers):
                    await one.ask("?", of=[other.me], timeout=30)
            else:
                with pytest.raises(Uncertain, match="cut off"):
                    await one.send(b"to whom?", wait="stable", timeout=30)
            assert len(one.view) == 2

    pluribus.sim.run(main())


@on_a_loop
async def test_leaving_waits_until_everybody_has_it():
    url = new_bus()
    async with pluribus.connect(url, name="reader", stack="views") as bus:
        group = await bus.group("x")
        async with pluribus.connect(url, name="writer", stack="views") as writer:
            sending = await writer.group("x")
            await sending.wait_for(2)
            await sending.send_many([b"%d" % number for number in range(1_000)])
            await sending.send("the last", to=group.me)
            await sending.close()  # what a group sent before it was left counts, too
        seen = [await group.receive(5) for _ in range(1_001)]
        assert sorted(str(m.body) for m in seen) == sorted([*(str(b"%d" % n) for n in range(1_000)), "the last"])


def test_leaving_says_what_it_did_not_deliver():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=1, stack=VIEWS) as world:
            one, other = world.buses
            group, _ = await asyncio.gather(*[bus.group("x") for bus in (one, other)])
            await group.wait_for(2)
            world.pause(1, 3)
            await group.send_many([b"a", b"b"])
            with pytest.raises(Undelivered, match=f"2 messages have not reached {other.me!r} after 0.5 s"):
                await one.close(timeout=0.5)
            assert one.closed
            await one.close()

    pluribus.sim.run(main())


def test_leaving_because_of_an_error_raises_that_error():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=1, stack=VIEWS) as world:
            groups = await asyncio.gather(*[bus.group("x", order="total") for bus in world.buses])
            await groups[0].wait_for(2)
            eldest = next(iter(world.buses[0].members))
            at, one = next((at, bus) for at, bus in enumerate(world.buses) if bus.me != eldest)
            world.partition([0], [1])
            for _ in range(5):
                await groups[at].send(b"?")
            world.pause(1 - at, 60)
            with pytest.raises(LookupError) as error:
                async with one:
                    raise LookupError("mine")
            assert "have not reached" in error.value.__notes__[0]

    pluribus.sim.run(main())


class Silent:
    """A dispatch that never tells, and a window whose only receiver leaves after it was looked at."""

    def __init__(self):
        self.looks = 0

    def confirm(self, stream, upto, told):
        return lambda: None

    def unsent(self):
        return []

    def unconfirmed(self):
        self.looks += 1
        return [Unconfirmed(7, 5, 1, 1, (5,))] if self.looks == 1 else []


def test_closing_does_not_wait_for_a_receiver_that_left_before_it_was_asked():
    async def main():
        silent = Silent()
        async with asyncio.timeout(20):
            await drain(silent, silent, 60)
        assert silent.looks == 2

    asyncio.run(main())
