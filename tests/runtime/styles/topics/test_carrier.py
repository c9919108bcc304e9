"""The group that carries events: the short way to a program that waits, the room that is given back, and what code of
a program may do meanwhile."""

import asyncio

import pytest

from pluribus.core.errors import Closed
from pluribus.group.channel import REPORT_IDLE_BYTES
from pluribus.pubsub.concepts import Vocabulary
from tests.harness import eventually, on_a_loop, two


async def together(*buses):
    for bus in buses:
        await (await bus.pubsub.base()).group.wait_for(len(buses))


class Watched:
    """The engine's call-back of a bus; calls ``after`` when it has returned."""

    def __init__(self, bus, after):
        self._receive, self._after = bus._engine._receive, after
        bus._engine._receive = self

    def __call__(self, datagrams):
        self._receive(datagrams)
        self._after()


@pytest.mark.parametrize("how", ["receive", "receive in time", "async for"])
@on_a_loop
async def test_a_program_that_waits_has_the_event_when_its_datagram_was_received(how):
    async with two(stack="views") as (a, b), b.subscribe("t") as events:
        await together(a, b)
        seen, seen_when_received = [], []
        Watched(b, lambda: seen_when_received.append(list(seen)))

        async def read():
            if how == "async for":
                async for event in events:
                    seen.append(event.body)
            while True:
                seen.append((await events.receive(20.0 if how == "receive in time" else None)).body)

        reading = asyncio.create_task(read())
        for number in range(5):
            await asyncio.sleep(0)
            await a.publish("t", number)
            await eventually(lambda number=number: number in seen)
            assert next(one for one in seen_when_received if number in one)  # not in a later turn of the loop
        reading.cancel()


@on_a_loop
async def test_events_that_are_read_one_by_one_cost_no_report_each():
    async with two(stack="views") as (a, b), b.subscribe("t") as events:
        await together(a, b)
        channel = (await b.pubsub.base()).group._channel
        told, report = [], channel.report_consumed
        channel.report_consumed = lambda: told.append(channel._taken_bytes) or report()
        for number in range(60):
            await a.publish("t", number)
            assert (await events.receive(10)).body == number
            await asyncio.sleep(0)  # the report comes behind the program
            assert channel._taken_bytes < REPORT_IDLE_BYTES  # so little holds no sender up
        assert 1 <= len(told) <= 20, "one for several events"


@on_a_loop
async def test_an_error_in_code_of_a_program_keeps_no_later_event_from_it(caplog):
    class Broken(Vocabulary):
        def translated(self, event, concept):
            if event.body == "bad":
                raise ZeroDivisionError("a mistake of the program")
            return event

    words = Broken({"share": {"terms": ["share"]}})
    async with (
        two(stack="views") as (a, b),
        b.subscribe("t", concept="share", vocabulary=words) as translated,
        b.subscribe("u") as others,
    ):
        await together(a, b)
        for body in ("bad", "good"):
            await a.publish("t", body)
            await a.publish("u", body)
        assert (await translated.receive(10)).body == "good"
        assert [(await others.receive(10)).body for _ in range(2)] == ["bad", "good"]
        assert "a mistake of the program" in caplog.text
        assert not (await b.pubsub.base())._held, "the room of all frames is given back"


@on_a_loop
async def test_waiting_ends_in_time_with_the_subscription_and_when_it_is_cancelled():
    async with two(stack="views") as (a, b):
        events = b.subscribe("t")
        with pytest.raises(TimeoutError):
            await events.receive(0.01)  # which opens it
        await together(a, b)
        for timeout in (0.01, 0.0, -1.0):
            with pytest.raises(TimeoutError):
                await events.receive(timeout)
        waiting = asyncio.create_task(events.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        waiting = [asyncio.create_task(events.receive(20)) for _ in range(2)]
        await asyncio.sleep(0)
        await a.publish("t", "for one of them")
        done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().body for task in done] == ["for one of them"]
        await events.close()
        for task in left:
            with pytest.raises(Closed):
                await task
        with pytest.raises(Closed):
            await events.receive()


@on_a_loop
async def test_a_busy_reader_gives_the_loop_its_turns(monkeypatch):
    monkeypatch.setattr("pluribus.runtime.styles.topics.carrier.TURN_S_MAX", 0.0)
    async with two(stack="views") as (a, b), b.subscribe("t") as events:
        await together(a, b)
        carrier, turns = await b.pubsub.base(), []
        take, inbox = carrier._take_batches, carrier.group._channel.inbox
        carrier._take_batches = lambda frame: (turns.append(len(inbox)), take(frame))
        for _ in range(40):
            await a.publish("t", bytes(30_000))  # a frame each
        assert [len((await events.receive(10)).body) for _ in range(40)] == [30_000] * 40
        assert len(turns) >= 20 and not inbox


@on_a_loop
async def test_an_event_is_handed_over_only_to_a_program_that_waits_and_has_nothing_before_it():
    async with two(stack="views") as (a, b), b.subscribe("t/#") as events, b.subscribe("t/both") as other:
        await together(a, b)
        handed = []
        for one in (events, other):
            one.hand_over = lambda batch, one=one, take=one.hand_over: take(batch) and not handed.append(one.pattern)
        waiting = asyncio.create_task(events.receive(20))
        await asyncio.sleep(0)
        await a.publish("t/1", "waited for")
        assert (await waiting).body == "waited for" and handed == ["t/#"]
        for topic, body in (("t/1", "nobody waits"), ("t/2", "nor here"), ("t/both", "for two")):
            await a.publish(topic, body)
            await asyncio.sleep(0)
        await eventually(lambda: events.waiting == 3)
        assert [(await events.receive(20)).body for _ in range(3)] == ["nobody waits", "nor here", "for two"]
        assert (await other.receive(20)).body == "for two" and handed == ["t/#"]
        waiting = asyncio.create_task(events.receive(20))
        await asyncio.sleep(0)
        await a.publish("t/1", "with headers", headers={"x": 1}, retain=True)
        assert (await waiting).headers == {"x": 1} and handed == ["t/#"]
        async with b.subscribe("t/1") as late:
            assert (await late.receive(20)).retained


@on_a_loop
async def test_an_event_that_was_handed_to_a_task_that_is_cancelled_is_there_for_the_next():
    async with two(stack="views") as (a, b), b.subscribe("t") as events:
        await together(a, b)
        b._line.eager = False  # the task goes on in the loop's next turn
        for number, way in enumerate(("receive", "async for")):
            waiting = asyncio.create_task(events.receive())
            await asyncio.sleep(0)
            hand_over = events.hand_over

            def and_cancel(batch, hand_over=hand_over, waiting=waiting):
                return hand_over(batch) and waiting.cancel()

            events.hand_over = and_cancel
            await a.publish("t", number)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            del events.hand_over
            await a.publish("t", number + 10)
            if way == "receive":
                assert [(await events.receive(20)).body for _ in range(2)] == [number, number + 10]
            else:
                seen = []
                async for event in events:
                    seen.append(event.body)
                    if len(seen) == 2:
                        break
                assert seen == [number, number + 10]


@on_a_loop
async def test_several_tasks_that_wait_share_what_comes():
    async with two(stack="views") as (a, b), b.subscribe("t") as events:
        await together(a, b)
        seen = []

        async def read(way):
            if way:
                async for event in events:
                    seen.append(event.body)
            while True:
                seen.append((await events.receive()).body)

        tasks = [asyncio.create_task(read(way)) for way in (0, 1, 0, 1)]
        for start in range(0, 200, 10):
            await asyncio.sleep(0)
            await a.publish("t", start)  # alone
            await a.publish_many([("t", start + 1 + number) for number in range(9)])  # together
            await eventually(lambda start=start: len(seen) == start + 10)
        assert sorted(seen) == list(range(200))
        for task in tasks:
            task.cancel()


@on_a_loop
async def test_frames_that_came_before_the_carrier_are_read():
    async with two(stack="views") as (a, b), a.subscribe("t") as own:
        group = await b.group("topics", own=False)  # as the carrier will open it
        await group.wait_for(2)
        await (await a.pubsub.base()).group.wait_for(2)
        await a.publish("t", "early")
        assert (await own.receive(10)).body == "early"
        await eventually(lambda: group.has_unread)
        await b.pubsub.base()
        await eventually(lambda: not group.has_unread)
