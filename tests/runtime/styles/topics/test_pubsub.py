"""Publishing and subscribing on a real bus: who gets what, in which order, and what a slow one does to others."""

import asyncio
import threading

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadFilter, BadInput, BadTopic, Closed, Gap, Overflow, Undelivered
from pluribus.events import Merged, Missed
from pluribus.pubsub.batch import Arrived, decode_batch
from pluribus.runtime.group.group import Group
from pluribus.runtime.styles.topics import subscription
from tests.harness import eventually, new_bus, on_a_loop, two


class Tick(msgspec.Struct, frozen=True):
    symbol: str
    price: float


class BigTick(Tick, frozen=True):
    size: int


pluribus.register(Tick, "tests.runtime.Tick")
pluribus.register(BigTick, "tests.runtime.BigTick")


def members(**options):
    return two(stack="views", **options)


async def together(*buses):
    """They see each other as publishers and subscribers."""
    groups = [(await bus.pubsub.base()).group for bus in buses]
    for group in groups:
        await group.wait_for(len(buses))


async def taken(subscription, count):
    return [(await subscription.receive(10)).body for _ in range(count)]


@on_a_loop
async def test_events_reach_those_who_asked_in_order_and_themselves_too():
    async with members() as (a, b), b.subscribe("stocks/+/tick") as theirs, a.subscribe("stocks/#") as own:
        await together(a, b)
        for number in range(300):
            await a.publish(f"stocks/{number % 7}/tick", number)
            await a.publish("stocks", "other")
        assert await taken(theirs, 300) == list(range(300))
        assert (await taken(own, 600))[::2] == list(range(300))
        event = await a.publish("stocks/x/tick", Tick("x", 1.5), headers={"region": "eu"}, parent=(7, 8))
        found = await theirs.receive(10)
        assert (found.id, found.sender, found.topic) == (event, a.me, "stocks/x/tick")
        assert (found.body, found.headers, found.parent) == (Tick("x", 1.5), {"region": "eu"}, (7, 8))


@on_a_loop
async def test_conditions_types_and_subtypes():
    async with (
        members() as (a, b),
        b.subscribe("s/#", where="price > 100") as dear,
        b.subscribe("s/#", type=Tick) as ticks,
        b.subscribe("s/#", type=BigTick, where="size >= 2 AND headers.region = 'eu'") as big,
    ):
        await together(a, b)
        await a.publish("s/1", {"price": 150})
        await a.publish("s/2", Tick("x", 50.0))
        await a.publish("s/3", BigTick("y", 150.0, 2), headers={"region": "eu"})
        await a.publish("s/4", BigTick("z", 10.0, 2))
        assert [type(body) for body in await taken(dear, 2)] == [dict, BigTick]
        assert [body.symbol for body in await taken(ticks, 3)] == ["x", "y", "z"]
        assert [body.symbol for body in await taken(big, 1)] == ["y"]
        assert dear.waiting == ticks.waiting == big.waiting == 0


@on_a_loop
async def test_what_is_wrong_is_refused_where_it_is_written():
    async with members() as (a, _):
        for topic in ("a//b", "a/+", ""):
            with pytest.raises(BadTopic):
                await a.publish(topic, b"")
        with pytest.raises(BadTopic):
            a.subscribe("a/#/b")
        with pytest.raises(BadTopic, match="it is empty"):
            a.subscribe("")
        with pytest.raises(BadFilter):
            a.subscribe("a", where="price > 'x' AND price < 3")
        for wrong in ({"guarantee": "sure"}, {"slow": "hurry"}, {"backlog": 0}, {"deadline": 0}):
            with pytest.raises(BadInput):
                a.subscribe("a", **wrong)
        with pytest.raises(BadInput, match="not registered"):
            await a.publish("a", msgspec.defstruct("Unknown", ["x"])(1))


@on_a_loop
async def test_large_events_and_many_small_ones_keep_their_order():
    async with members() as (a, b), b.subscribe("#") as events:
        await together(a, b)
        sent = [bytes([number]) * (300_000 if number % 40 == 7 else number) for number in range(120)]
        for number, body in enumerate(sent):
            await a.publish(f"t/{number % 3}", body)
        assert await taken(events, 120) == sent


@on_a_loop
async def test_unsubscribing_ends_it_and_others_go_on():
    async with members() as (a, b), b.subscribe("t") as stays:
        goes = await b.subscribe("t")
        await together(a, b)
        await a.publish("t", 1)
        assert await taken(goes, 1) == [1]
        await goes.close()
        await a.publish("t", 2)
        assert await taken(stays, 2) == [1, 2]
        assert goes.waiting == 0
        with pytest.raises(Closed):
            await goes.receive(1)
        assert [event async for event in stays_until_closed(stays)] == []


async def stays_until_closed(subscription):
    await subscription.close()
    return
    yield


@on_a_loop
async def test_call_backs_in_the_loop_and_in_threads():
    got: list[object] = []

    async def awaited(event):
        got.append(event.body)
        if event.body == 1:
            raise ValueError("one")

    def threaded(event):
        got.append(threading.current_thread() is threading.main_thread())

    async with members() as (a, b), b.subscribe("t", call=awaited), b.subscribe("u", call=threaded):
        await together(a, b)
        for body in (1, 2):
            await a.publish("t", body)
        await eventually(lambda: got == [1, 2])
        await a.publish("u", 3)
        await eventually(lambda: got == [1, 2, False])


@on_a_loop
async def test_a_slow_subscriber_is_dealt_with_as_it_chose_and_harms_nobody():
    async with (
        members() as (a, b),
        b.subscribe("t") as quick,
        b.subscribe("t", slow="tell", backlog=100) as told,
        b.subscribe("t", slow="sample", backlog=100) as sampled,
        b.subscribe("t", slow="disconnect", backlog=100) as cut,
        b.subscribe("t", slow="buffer", backlog=100) as buffered,
    ):
        await together(a, b)
        reports = b.events()
        reading = asyncio.create_task(taken(quick, 20_000))
        for number in range(20_000):
            await a.publish("t", number)
        assert await reading == list(range(20_000))
        assert await taken(buffered, 20_000) == list(range(20_000))
        sample = await sampled.receive_many()
        assert 0 < len(sample) <= 100 and len(sample) + sampled.missed == 20_000
        with pytest.raises(Gap) as gap:
            await taken(told, 20_000)
        assert gap.value.missed == told.missed > 19_000
        await a.publish("t", "after")
        assert await taken(told, 1) == ["after"]
        with pytest.raises(Overflow, match="disconnect"):
            await taken(cut, 20_000)
        assert isinstance(await eventually_missed(reports), Missed)


async def eventually_missed(reports):
    async for event in reports:
        if isinstance(event, Missed):
            assert event.reason == "slow" and event.count > 0 and event.pattern == "t"
            return event


@on_a_loop
async def test_publishers_wait_for_who_wants_to_be_waited_for():
    async with members() as (a, b), b.subscribe("t") as events:
        await together(a, b)
        body, sent = b"x" * 10_000, 0

        async def publish():
            nonlocal sent
            for _ in range(3_000):
                await a.publish("t", body)
                sent += 1

        publishing = asyncio.create_task(publish())
        await eventually(lambda: a.pubsub._base._queue)  # the window is full
        before = sent
        assert before < 3_000
        assert len(await taken(events, 3_000)) == 3_000
        await publishing
        assert events.missed == 0


@on_a_loop
async def test_what_a_member_publishes_to_itself_is_bounded_too():
    async with members() as (a, _), a.subscribe("t", backlog=1_000) as events:
        with pytest.raises(Overflow):
            await a.publish_many([("t", b"x")] * 100_000, timeout=0.05)
        assert 1_000 < events.waiting < 20_000
        assert len(await taken(events, 1_000)) == 1_000


@on_a_loop
async def test_an_event_after_its_deadline_is_dropped_and_reported_never_delivered():
    async with members() as (a, b), b.subscribe("t", deadline=0.2) as events:
        await together(a, b)
        reports = b.events()
        await a.publish("t", "late")
        await eventually(lambda: events.waiting)
        a.pubsub.wall = b.pubsub.wall = lambda: pluribus.runtime.bus.time() + 0.3
        await a.publish("t", "in time")
        assert await taken(events, 1) == ["in time"]
        assert events.late == 1
        assert await anext(reports) == Missed("t", 1, "late")


@on_a_loop
async def test_publish_soon_and_flush_and_many():
    async with members() as (a, b), b.subscribe("#") as events:
        with pytest.raises(BadInput, match="first"):
            a.publish_soon("t", 0)
        await together(a, b)
        ids = [a.publish_soon("t", number) for number in range(10)]
        await a.flush()
        ids += await a.publish_many([("t", 10), ("u", 11)])
        assert [event.id for event in [await events.receive(5) for _ in range(12)]] == ids
        assert [number for _, number in ids] == list(range(12))
        with pytest.raises(Overflow):
            [a.publish_soon("t", b"x" * 1_000) for _ in range(100_000)]


@on_a_loop
async def test_best_effort_on_a_stack_that_promises_nothing():
    async with two() as (a, b):
        with pytest.raises(BadInput, match="not offered"):
            b.subscribe("t")
        async with b.subscribe("t", guarantee="best effort") as events:
            await together(a, b)
            await a.publish("t", b"x")
            assert await taken(events, 1) == [b"x"]


@on_a_loop
async def test_a_bus_that_closes_ends_its_subscriptions():
    async with pluribus.connect(new_bus(), name="a") as a:
        events = await a.subscribe("t")
        reading = asyncio.create_task(anext(aiter(events), None))
        await asyncio.sleep(0)
    assert await reading is None
    with pytest.raises(Closed):
        await a.publish("t", b"")
    with pytest.raises(Closed):
        a.subscribe("t")


@on_a_loop
async def test_what_was_retained_apart_is_known_everywhere_when_two_sides_meet():
    async with members() as (a, b), a.subscribe("#") as at_a, b.subscribe("#") as at_b:
        await together(a, b)
        here, there = a.pubsub.neighbours, b.pubsub.neighbours
        for side, other, topic in ((here, there, "t/a"), (there, here, "t/b")):
            # As if they had been apart: each keeps what the other has not heard of.
            await (a if side is here else b).publish(topic, topic, retain=True)
            await eventually(lambda other=other, topic=topic: topic in other.retained.topics())
            other.retained.forget(topic)
        await taken(at_a, 2)
        await taken(at_b, 2)
        for bus in (a, b):
            bus.pubsub.neighbours.on_event(Merged(((a.me,), (b.me,))))
        assert await taken(at_a, 1) == ["t/b"]
        assert await taken(at_b, 1) == ["t/a"]


@on_a_loop
async def test_a_last_value_that_others_told_of_does_not_come_again_when_it_arrives():
    async with pluribus.connect(new_bus(), name="a") as a, pluribus.connect(new_bus(), name="b") as b:
        await a.publish("t/a", "first", retain=True)
        (value,) = a.pubsub.neighbours.retained.snapshot()
        await b.publish("t/b", "here")
        topics = b.pubsub
        async with b.subscribe("t/#") as early, b.subscribe("t/#", retain=False) as plain:
            topics.renewed(topics.neighbours.retained.merge([value]))
            async with b.subscribe("t/a") as late:
                assert [event.retained for event in [await early.receive(5), await late.receive(5)]] == [True, True]
                topics.joined._deliver(Arrived(decode_batch(value)), None)  # by itself, after it was told of
                await b.publish("t/a", "last")
                for subscription in (early, late):
                    assert await taken(subscription, 1) == ["last"] and not subscription.given
                assert await taken(plain, 2) == ["first", "last"]


@pytest.mark.parametrize("guarantee", ["reliable", "total"])
@on_a_loop
async def test_who_gives_up_while_joining_does_not_make_it_join_twice(guarantee):
    async with members() as (a, b), a.subscribe("t", guarantee=guarantee):
        topics, joined = b.pubsub, []

        async def group(name, **options):
            joined.append(name)
            return await type(b).group(b, name, **options)

        b.group = group
        for _ in range(3):
            impatient = asyncio.create_task(b.publish("u", 0) if guarantee == "reliable" else topics.carrier("total"))
            for _ in range(2):
                await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.gather(impatient, return_exceptions=True)
        async with b.subscribe("t", guarantee=guarantee) as events:
            for number in range(20):
                await a.publish("t", number)
                assert await taken(events, 1) == [number]
        assert len(joined) == len(set(joined))


@pytest.mark.parametrize("options", [{}, {"guarantee": "total"}, {"shared": "workers"}])
@pytest.mark.parametrize("turns", [1, 5, 21, 55])
@on_a_loop
async def test_a_subscription_that_is_closed_while_it_begins_leaves_nothing_behind(options, turns):
    async with members() as (a, b), b.subscribe("other", guarantee="total"):
        topics = a.pubsub
        await topics.carrier("total")
        events = a.subscribe("t", **options)
        opening = asyncio.create_task(events.open())
        for _ in range(turns):
            await asyncio.sleep(0)
        done = opening.done()
        await events.close()
        if not done:
            with pytest.raises(Closed):
                await opening
        assert not topics.subscriptions and not topics.neighbours.own_wants and not topics.sharing.shares.keys
        assert not any(len(carrier.table) for carrier in topics._carriers())


@on_a_loop
async def test_a_subscription_is_closed_in_good_order_while_its_bus_closes(monkeypatch):
    """The word that takes the wish back waits for its turn when the group is closed."""

    async def closed_meanwhile(*_, **__):
        raise Closed("the group is closed")

    async with members() as (a, _):
        events = a.subscribe("t", guarantee="total")
        await events.open()
        monkeypatch.setattr(Group, "send", closed_meanwhile)
        await events.close()
        monkeypatch.undo()
        assert events.closed and not a.pubsub.neighbours.own_wants


@on_a_loop
async def test_a_subscription_that_is_not_entered_in_time_leaves_nothing_behind():
    async with members() as (a, _):
        await a.publish("t", "here")
        entering = asyncio.create_task(a.subscribe("t", guarantee="total").__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await a.pubsub.carrier("total")
        assert not a.pubsub.subscriptions and not any(len(carrier.table) for carrier in a.pubsub._carriers())


@on_a_loop
async def test_taking_many_stops_before_a_gap_and_the_next_is_told_of_it():
    async with members() as (a, _), a.subscribe("t", slow="tell", backlog=3) as few:
        for number in range(5):
            await a.publish("t", number)
            await a.flush()
        assert [event.body for event in await few.receive_many()] == [0, 1, 2]
        with pytest.raises(Gap) as gap:
            await few.receive_many(timeout=5)
        assert gap.value.missed == 2
        few.backlog.lost()
        await a.publish("t", 5)
        with pytest.raises(Gap, match="cut off"):
            await few.receive_many(timeout=5)
        assert await taken(few, 1) == [5]


@on_a_loop
async def test_who_reads_when_a_subscription_is_closed_comes_to_the_end_and_not_to_a_gap():
    async with members() as (a, _):
        events = await a.subscribe("t")
        reading = events.__aiter__()
        for number in range(3):
            await a.publish("t", number)
            await a.flush()
        assert (await anext(reading)).body == 0
        await a.publish("t", 3)
        await a.flush()
        await events.close()
        assert [event.body async for event in reading] == [1, 2]  # it had taken them with the first
        with pytest.raises(Closed):
            await events.receive(1)


@pytest.mark.parametrize("deadline", [None, 60])
@on_a_loop
async def test_who_reads_slowly_what_it_took_at_once_is_not_taken_for_one_who_does_not_read(monkeypatch, deadline):
    monkeypatch.setattr(subscription, "STALL_S", 0.2)
    async with members() as (a, b), a.subscribe("t", deadline=deadline) as slow:
        await together(a, b)
        await b.publish_many([("t", number) for number in range(60)])
        await eventually(lambda: slow.waiting == 60)
        assert await taken(slow, 1) == [0]
        await b.publish_many([("t", number) for number in range(60, 120)])
        for number in range(1, 120):
            assert await taken(slow, 1) == [number]
            await asyncio.sleep(0.01)
        assert not slow.missed


@on_a_loop
async def test_what_was_late_is_reported_though_nobody_reads_on():
    async with members() as (a, b), a.subscribe("t", deadline=0.3) as urgent:
        await together(a, b)
        await a.publish_many([("t", "old")] * 3)
        await asyncio.sleep(0.4)
        await a.publish_many([("t", "new")] * 2)
        await a.flush()
        assert await taken(urgent, 1) == ["new"]
        assert urgent.late == 3


@pytest.mark.parametrize("options", [{"shared": "workers"}, {"guarantee": "total"}, {}])
@on_a_loop
async def test_a_body_that_is_not_of_its_type_keeps_nobody_from_the_next_one(options):
    async with members() as (a, b), a.subscribe("t", **options) as events:
        await together(a, b)
        await b.pubsub.publish_encoded("t", "tests.runtime.Tick", b"\x01", retain=True)
        await b.publish("t", "next")
        assert await taken(events, 1) == ["next"]


@on_a_loop
async def test_what_waits_for_slow_readers_is_sent_before_the_bus_is_closed(monkeypatch):
    room, send_some = asyncio.Event(), Group._send_some

    async def when_there_is_room(group, kind, batches):
        await room.wait()
        return await send_some(group, kind, batches)

    async with members() as (a, b), b.subscribe("t") as events:
        await together(a, b)
        monkeypatch.setattr(Group, "_send_now", lambda group, kind, batch: False)
        monkeypatch.setattr(Group, "_send_some", when_there_is_room)
        await a.publish("t", "kept")
        closing = asyncio.create_task(a.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        room.set()
        await closing
        assert (await events.receive(5)).body == "kept"


@on_a_loop
async def test_what_waits_for_slow_readers_for_too_long_is_told_of(monkeypatch):
    async def never(group, kind, batches):
        await asyncio.Event().wait()

    async def complains(dispatch, reliable, timeout):
        if dispatch is a._dispatch:
            raise Undelivered("a message has not arrived")

    async with members() as (a, b), b.subscribe("t"):
        await together(a, b)
        monkeypatch.setattr(Group, "_send_now", lambda group, kind, batch: False)
        monkeypatch.setattr(Group, "_send_some", never)
        monkeypatch.setattr("pluribus.runtime.bus.drain", complains)
        await a.publish("t", "lost")
        with pytest.raises(Undelivered, match="slow readers") as raised:
            await a.close(timeout=0.1)
        assert a.closed
        # Groups were waited for all the same: what one part cannot deliver keeps no other back.
        assert raised.value.__notes__ == ["a message has not arrived"]


def test_a_bus_that_is_gone_while_somebody_subscribes_leaves_no_error_that_nobody_looked_at():
    lost = []

    async def subscribing(bus):
        with pytest.raises(Closed):
            await bus.subscribe("a", guarantee="total")

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
        for moment in range(40):
            async with pluribus.sim.world(members=2, seed=1, stack="views") as world:
                await world.buses[1].subscribe("a", guarantee="total")
                await asyncio.sleep(2)
                task = asyncio.create_task(subscribing(world.buses[0]))
                await asyncio.sleep(moment * 0.0005)
                world.crash(0)
                await asyncio.gather(task, return_exceptions=True)

    pluribus.sim.run(main())
    assert not lost
