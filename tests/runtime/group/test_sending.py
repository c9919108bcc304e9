"""Sending: at once while there is room, waiting while there is none, and never a message lost on the way to waiting."""

import asyncio
import dataclasses
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadBody, BadInput, Closed, Overflow, TooLarge
from pluribus.runtime.bus import BEST_EFFORT, VIEWS
from pluribus.stack.events import Blocked
from tests.harness import eventually, new_bus, on_a_loop, two, two_in_a_group

BODY = bytes(10_000)


@pluribus.register
class SentTick(msgspec.Struct):
    symbol: str
    at: int


@pluribus.register
class Tock(msgspec.Struct):
    at: Any


async def full(group: pluribus.Group, **options: object) -> int:
    """Send until there is no room; how many were admitted."""
    count = 0
    try:
        while True:
            await group.send(BODY, timeout=0, **options)  # type: ignore[arg-type]
            count += 1
            await asyncio.sleep(0)
    except Overflow:
        return count


@on_a_loop
async def test_send_waits_while_the_receiver_does_not_read_and_goes_on_when_it_does():
    async with two_in_a_group(own=False) as (one, other):
        admitted = 0

        async def flood() -> None:
            nonlocal admitted
            for _ in range(1_000):
                await one.send(BODY)
                admitted += 1

        flooding = asyncio.create_task(flood())
        before = -1
        while admitted != before or admitted == 0:  # no progress over many turns: it waits
            before = admitted
            for _ in range(200):
                await asyncio.sleep(0)
        assert 0 < admitted < 1_000
        for _ in range(1_000):
            await other.receive(5)
        await flooding


@on_a_loop
async def test_a_timeout_raises_overflow_and_the_message_was_not_sent():
    async with two_in_a_group(own=False) as (one, other):
        admitted = await full(one)
        assert admitted > 5
        with pytest.raises(Overflow, match=r"has no room: b \(\w+\) does not read, or reads too slowly"):
            await one.send(b"never", timeout=0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(Overflow):
            await one.send(b"never", timeout=0.1)
        assert 0.09 < loop.time() - began < 5
        received = [(await other.receive(5)).body for _ in range(admitted)]
        assert received == [BODY] * admitted
        await one.send(b"now", timeout=5)
        assert (await other.receive(5)).body == b"now"


@on_a_loop
async def test_a_timeout_is_for_the_whole_wait_however_often_it_is_disturbed():
    async with two_in_a_group(own=False) as (one, _other):
        await full(one)
        channel = one._channel

        async def disturb() -> None:
            while True:
                channel.on_room()  # as every change of the view does
                await asyncio.sleep(0.01)

        disturbing = asyncio.create_task(disturb())
        with pytest.raises(Overflow):
            await asyncio.wait_for(one.send(BODY, timeout=0.2), 10)
        disturbing.cancel()


@on_a_loop
async def test_closing_the_group_wakes_everybody_who_waits():
    async with two_in_a_group(own=False) as (one, other):
        await full(one)
        waiting = [
            asyncio.create_task(one.send(BODY)),
            asyncio.create_task(one.send(BODY, to=other.me)),
            asyncio.create_task(one.receive()),
            asyncio.create_task(one.wait_for(5, timeout=None)),
        ]
        iterating = asyncio.create_task(anext(aiter(one), "the end"))
        await full(one, to=other.me)
        await asyncio.sleep(0)
        await one.close()
        for result in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5):
            assert isinstance(result, Closed | tuple)
        assert isinstance(waiting[0].exception(), Closed)
        assert isinstance(waiting[2].exception(), Closed)
        assert isinstance(waiting[3].exception(), Closed)
        assert await iterating == "the end"
        with pytest.raises(Closed, match=r"open it again with bus\.group"):
            await one.send(b"x")


@on_a_loop
async def test_a_message_to_one_who_leaves_while_it_waits_is_refused_not_swallowed():
    async with two_in_a_group(own=False) as (one, other):
        await full(one, to=other.me)
        waiting = asyncio.create_task(one.send(b"for you", to=other.me))
        await asyncio.sleep(0)
        await other.close()
        with pytest.raises(BadInput, match="is not a member of 'x' now"):
            await asyncio.wait_for(waiting, 5)


@on_a_loop
async def test_a_message_to_one_member_reaches_it_alone():
    async with two_in_a_group() as (one, other), pluribus.connect(one_url(one), name="c", stack="best-effort") as c:
        third = await c.group("x")
        await one.wait_for(3)
        sent = await one.send(b"secret", to=other.me)
        await one.send(b"public")
        assert {(await other.receive(5)).body for _ in range(2)} == {b"secret", b"public"}
        assert (await third.receive(5)).body == b"public"
        assert (await one.receive(5)).body == b"public"
        mine = await one.send(b"note", to=one.me)
        assert (await one.receive(5)).body == b"note"
        assert len({sent, mine}) == 2
        with pytest.raises(BadInput, match="is not a member of 'x' now"):
            await one.send(b"x", to=12345)


def one_url(group: pluribus.Group) -> str:
    """The URL of the bus that a group is on."""
    return f"inproc://{group._dispatch.node.bus}"


@on_a_loop
async def test_a_burst_is_a_frame_or_two_also_for_a_member_that_hears_itself():
    async with two(stack=VIEWS) as (bus, peer):
        one, other = await bus.group("x"), await peer.group("x")
        await one.wait_for(2)
        for _ in range(20):
            for number in range(5):
                await one.send(b"%d" % number)
            for group in (one, other):
                found: list[bytes] = []
                while len(found) < 5:
                    found += [message.body for message in await group.receive_many(timeout=5)]
                assert found == [b"0", b"1", b"2", b"3", b"4"]
        reliable = bus.stats()["reliable"]
        assert reliable["messages_out"] == 100 and reliable["frames_out"] <= 45


@on_a_loop
async def test_identities_are_those_that_the_receivers_see():
    async with two_in_a_group(own=False) as (one, other):
        sent = [await one.send(body) for body in (b"a", "b", {"c": 1}, b"d")]
        received = [await other.receive(5) for _ in range(4)]
        assert [message.id for message in received] == sent
        assert all(message.sender == one.me == message.id[0] for message in received)
        assert sorted(set(sent)) == sent, "they grow"


@on_a_loop
async def test_every_kind_of_body_arrives_in_the_order_of_sending():
    @pluribus.register
    @dataclasses.dataclass
    class OrderOfGoods:
        item: str

    async with two_in_a_group(own=False) as (one, other):
        bodies = [
            b"bytes",
            "text",
            {"plain": [1, None]},
            OrderOfGoods("tea"),
            b"",
            "",
            5,
            OrderOfGoods("milk"),
            b"end",
        ] * 50
        for body in bodies:
            await one.send(body)
        assert [(await other.receive(5)).body for _ in bodies] == bodies


@on_a_loop
async def test_bodies_of_mixed_types_in_one_turn_arrive_as_they_were_sent():
    """Runs of one type are appended in a hurry; whatever interrupts a run must not get into it."""
    random = Random(1)
    made = {
        bytes: lambda at: bytes([at % 256]) * random.randrange(200),
        str: lambda at: f"text {at}",
        dict: lambda at: {"at": at},
        list: lambda at: [at, "of a list"],
        SentTick: lambda at: SentTick(f"symbol {at}", at),
        Tock: lambda at: Tock(at),
    }
    async with two_in_a_group(own=False) as (one, other):
        sent = []
        while len(sent) < 3_000:
            make = made[random.choice(list(made))]
            for _ in range(random.randrange(1, 40)):
                sent.append((body := make(len(sent)), await one.send(body)))
        got = []
        while len(got) < len(sent):
            got += await other.receive_many(timeout=5)
        assert [(message.body, message.id) for message in got] == sent
        assert [type(message.body) for message in got] == [type(body) for body, _ in sent]


@on_a_loop
async def test_a_typed_body_that_cannot_travel_is_refused_within_a_run_too():
    async with two_in_a_group(own=False) as (one, other):
        await one.send(Tock(1))
        await one.send(Tock(2))
        with pytest.raises(BadBody, match="cannot travel"):
            await one.send(Tock(object()))
        await one.send(Tock(3))
        assert [(await other.receive(5)).body for _ in range(3)] == [Tock(1), Tock(2), Tock(3)]


@on_a_loop
async def test_typed_bodies_wait_for_room_like_all_others():
    async with two_in_a_group(own=False) as (one, other):
        count = 0
        with suppress(Overflow):
            while count < 10_000:
                await one.send(SentTick("x" * 1_000, count), timeout=0)
                count += 1
        assert 10 < count < 10_000
        assert [(await other.receive(5)).body.at for _ in range(count)] == list(range(count))


@on_a_loop
async def test_what_cannot_travel_is_refused_at_once_and_nothing_is_sent():
    async with two_in_a_group(own=False) as (one, other):
        with pytest.raises(BadBody):
            await one.send(object())
        with pytest.raises(TooLarge, match="this stack does not cut messages"):
            await one.send(bytes(100_000))
        await one.send(b"fine")
        assert (await other.receive(5)).body == b"fine"


@on_a_loop
async def test_many_tasks_may_send_at_once():
    async with two_in_a_group(own=False) as (one, other):
        bodies = {b"%d/%d" % (task, number) for task in range(10) for number in range(500)}

        async def send(task: int) -> None:
            for number in range(500):
                await one.send(b"%d/%d" % (task, number))

        async with asyncio.TaskGroup() as tasks:
            for task in range(10):
                tasks.create_task(send(task))
            received = [(await other.receive(5)) for _ in range(5_000)]
        assert {message.body for message in received} == bodies
        assert len({message.id for message in received}) == 5_000
        last: dict[bytes, int] = {}
        for message in received:
            task, number = message.body.split(b"/")
            assert int(number) > last.get(task, -1), "each task's messages are in its order"
            last[task] = int(number)


@on_a_loop
async def test_a_busy_sender_gives_the_loop_its_turns():
    async with pluribus.connect(new_bus()) as bus:
        group = await bus.group("alone", own=False)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() - began < 0.3:
            for _ in range(100):
                await group.send(bytes(100))
        assert turns > 10
        task.cancel()


@on_a_loop
async def test_a_member_hears_itself_unless_it_asked_not_to():
    async with two_in_a_group(own=True) as (one, other):
        await one.send(b"loud")
        assert (await one.receive(5)).body == (await other.receive(5)).body == b"loud"
    async with two_in_a_group(own=False) as (one, other):
        await one.send(b"quiet")
        assert (await other.receive(5)).body == b"quiet"
        await other.send(b"answer")
        assert (await one.receive(5)).body == b"answer"


@on_a_loop
async def test_what_was_sent_before_closing_arrives():
    async with two_in_a_group(own=False) as (one, other):
        for number in range(50):
            await one.send(b"%d" % number)
        await one.close()
        assert [(await other.receive(5)).body for _ in range(50)] == [b"%d" % number for number in range(50)]
        await eventually(lambda: len(other.view) == 1, "it left")


@on_a_loop
async def test_nothing_joins_what_still_waits_to_leave_a_group_that_was_closed():
    async with two_in_a_group(own=False, stack="views") as (one, other):
        dispatch = one._dispatch
        sent = await one.send_many([b"at once", b"gathers"])
        dispatch.stimulus(lambda: dispatch.event_up(Blocked(True)))  # a view is about to change
        await one.close()
        with pytest.raises(Closed):
            await one.send(b"behind")
        dispatch.stimulus(lambda: dispatch.event_up(Blocked(False)))
        assert [(await other.receive(5)).id for _ in sent] == sent
        await eventually(lambda: len(other.view) == 1)
        assert not other._channel.inbox


@pytest.mark.parametrize("stack", [BEST_EFFORT, VIEWS])
def test_the_first_message_of_a_turn_goes_at_once_and_the_others_wait_for_each_other(stack):
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=1, stack=stack) as world:
            asks, answers = [await bus.group("g", own=False) for bus in world.buses]
            await asks.wait_for(2)
            await answers.wait_for(2)
            for _ in range(3):
                for body in (b"?", b"more", b"and more"):
                    await asks.send(body)
                assert len(asks._open.pending) == 2, "the first is on its way, the others make a batch"
                assert [(await answers.receive(timeout=5)).body for _ in range(3)] == [b"?", b"more", b"and more"]
                await answers.send(b"!")
                assert not answers._open.pending
                assert (await asks.receive(timeout=5)).body == b"!"
                asks._open.batched = 1  # as if nobody had joined the last batch: it asks and answers again

    pluribus.sim.run(main())
