"""Shared live subscriptions: an event goes to the subscriber of the set that asks for it."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import SimpleNamespace

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.core.limits import SHARED_WAITING_MAX
from pluribus.pubsub import shares as protocol
from pluribus.pubsub.concepts import Vocabulary
from pluribus.pubsub.event import Event
from pluribus.pubsub.places import Near
from pluribus.pubsub.shares import Shares
from pluribus.pubsub.words import Dealt, Grant, Joined, Left, Worked
from pluribus.runtime.styles.topics import worker
from tests.harness import eventually, on_a_loop
from tests.runtime.styles.topics.test_topic_orders import members, taken


class Job(msgspec.Struct, frozen=True):
    number: int


pluribus.register(Job, "tests.runtime.Job")

VOCABULARY = Vocabulary({"share": {"terms": ["stock"]}, "bond": {"terms": ["loan"]}})


def share_of(bus):
    return next(iter(bus.pubsub.sharing.shares._shares.values()))


@on_a_loop
async def test_each_event_goes_to_one_of_the_set_and_to_every_set():
    async with members(4) as buses, AsyncExitStack() as stack:
        share = [await stack.enter_async_context(bus.subscribe("jobs/#", shared="workers")) for bus in buses[:3]]
        everything = await stack.enter_async_context(buses[0].subscribe("jobs/#"))
        other = await stack.enter_async_context(buses[3].subscribe("jobs/#", where="body >= 0", shared="workers"))
        got = []

        async def work(subscription):
            async for event in subscription:
                got.append(event.body)

        tasks = [asyncio.create_task(work(one)) for one in share]
        for number in range(300):
            await buses[3].publish(f"jobs/{number % 3}", number)
        assert await taken(everything, 300) == list(range(300))
        assert await taken(other, 300) == list(range(300))
        await eventually(lambda: len(got) == 300)
        assert Counter(got) == Counter(range(300))
        for task in tasks:
            task.cancel()


@on_a_loop
async def test_a_slow_worker_has_the_event_it_works_on_and_a_free_one_all_others():
    async with members(3) as (a, b, c):
        slow, quick = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
        await a.publish("jobs", 0)
        assert await taken(slow, 1) == [0]  # and is at it for long
        await a.publish_many([("jobs", number) for number in range(1, 200)])
        assert await taken(quick, 199) == list(range(1, 200))
        assert slow.waiting == 0
        await slow.close()
        again = await quick.receive(10)
        assert (again.body, again.again) == (0, True)


@on_a_loop
async def test_workers_that_wait_are_served_in_turn():
    async with members(3) as (a, b, c):
        one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
        waiting = [asyncio.create_task(sub.receive_many(3, timeout=10)) for sub in (one, other)]
        await eventually(lambda: len(share_of(b).wants) == 2)
        await a.publish_many([("jobs", number) for number in range(6)])
        first, second = [[event.body for event in events] for events in await asyncio.gather(*waiting)]
        assert 0 < len(first) <= 3 and 0 < len(second) <= 3
        rest = await one.receive_many(10, timeout=10) if one.waiting else []
        assert sorted([*first, *second, *[event.body for event in rest]]) == list(range(6))


@on_a_loop
async def test_a_worker_that_comes_later_helps_with_what_waits():
    async with members(3) as (a, b, c):
        first = await b.subscribe("jobs", shared="w", type=Job)
        await a.publish("jobs", Job(0), headers={"why": "so"})
        await a.publish_many([("jobs", Job(number)) for number in range(1, 50)])
        assert await taken(first, 1) == [Job(0)]
        await eventually(lambda: first.waiting == 49)
        late = await c.subscribe("jobs", shared="w", type=Job)
        assert await taken(late, 20) == [Job(number) for number in range(1, 21)]
        await eventually(lambda: not share_of(b).untold)
        await first.close()  # who dealt, and has begun one
        event = await late.receive(10)
        assert (event.body, event.again, event.headers) == (Job(0), True, {"why": "so"})
        assert await taken(late, 29) == [Job(number) for number in range(21, 50)]


@on_a_loop
async def test_what_waits_outlives_a_dealer_that_was_there_with_others():
    async with members(3) as (a, b, c):
        one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
        for number in range(100):
            await a.publish("jobs", number)
        await eventually(lambda: one.waiting == other.waiting == 100)
        assert await taken(one, 3) == [0, 1, 2]
        await one.close()
        got = [await other.receive(10) for _ in range(98)]
        assert [event.body for event in got] == list(range(2, 100))
        assert [event.body for event in got if event.again] == [2], "the event under way is in doubt, and no other"
        await a.publish("jobs", "more")
        assert await taken(other, 1) == ["more"]


@on_a_loop
async def test_an_event_that_came_when_nobody_read_any_more_goes_to_another(monkeypatch):
    monkeypatch.setattr(worker, "HELD_S", 0.05)
    async with members(3) as (a, b, c):
        gone, there = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
        with pytest.raises(TimeoutError):
            await gone.receive(0.05)
        await a.publish("jobs", 1)
        event = await there.receive(10)
        assert (event.body, event.again) == (1, False), "nobody had begun it"
        await a.publish("jobs", 2)
        assert await taken(gone, 1) == [2]


@on_a_loop
async def test_an_event_that_a_subscriber_could_not_read_is_dealt_with_its_body():
    async with members(3) as (a, b, c):
        one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
        await a.publish("jobs", 7)
        await eventually(lambda: one.waiting == other.waiting == 1)
        share_of(c).waiting.clear()  # as if its program had not been able to decode it
        assert await taken(other, 1) == [7]


@on_a_loop
async def test_what_is_too_much_is_dropped_and_reported(monkeypatch):
    monkeypatch.setattr(protocol, "SHARED_WAITING_MAX", 10)
    async with members(2) as (a, b):
        told = []
        b.on_event(told.append)
        one = await b.subscribe("jobs", shared="w")
        await a.publish_many([("jobs", number) for number in range(15)])
        await eventually(lambda: one.missed == 5)
        assert await taken(one, 10) == list(range(5, 15))
        assert sum(event.count for event in told if isinstance(event, pluribus.events.Missed)) == 5
    assert SHARED_WAITING_MAX > 10_000


@on_a_loop
async def test_events_that_are_too_late_are_finished_and_reported():
    async with members(2) as (a, b):
        one = await b.subscribe("jobs", shared="w", deadline=60)
        wall = a.pubsub.wall
        a.pubsub.wall = lambda: wall() - 100
        await a.publish("jobs", "late")
        a.pubsub.wall = wall
        waits = asyncio.create_task(one.receive(10))
        await eventually(lambda: one.late == 1)
        await a.publish("jobs", "in time")
        assert (await waits).body == "in time"
        with pytest.raises(BadInput, match="ask for 1 or more"):
            await one.receive_many(0)


def test_words_that_come_twice_count_once():
    shares = Shares(1)

    got = []

    class Hand(protocol.Hand):
        def given(self, events, turn):
            got.extend(event.body for event in events)

    shares.enter("k", 1, Hand())
    shares.apply(1, Joined("k", 1))
    shares.give("k", [Event(n, 7, (7, n), "t", 0.0) for n in range(3)], 1)
    shares.apply(1, Worked("k", 1, 1, 1))
    first = shares.deal("k")
    assert first == Dealt("k", 1, 1, [Grant(1, 1, 1, [(7, 0)])], [], (1, 1))
    shares.apply(2, first)  # from who is no dealer
    assert got == []
    for _ in range(2):
        shares.apply(1, first)
    assert got == [0] and not shares.deals("k")
    for _ in range(2):
        shares.apply(1, Worked("k", 1, 2, 1, done=[(7, 0)]))
    shares.apply(1, first)
    shares.apply(1, shares.deal("k"))
    assert got == [0, 1]
    shares.validate()


def test_what_only_one_member_has_keeps_its_mark():
    """Seed 31,000,037 of the scenario ``topics``, as it was then."""
    shares = Shares(1)
    shares.enter("k", 1, protocol.Hand())
    for member in (2, 1):
        shares.apply(member, Joined("k", 1))
    shares.give("k", [Event(0, 7, (7, 0), "t", 0.0)], 1)
    shares.apply(2, Worked("k", 1, 1, 1))
    shares.apply(2, Dealt("k", 1, 1, [Grant(2, 1, 1, [(7, 0)])]))
    shares.apply(1, Left("k", 2, 1))
    (kept,) = shares.left_over("k", [(1, 1)], frozenset())
    assert kept.again


def url_of(bus, door):
    return f"client://127.0.0.1:{door.address[1]}/{bus.url.bus}"


@on_a_loop
async def test_a_client_that_asks_for_a_type_shares_with_members_that_do_and_with_nobody_else():
    async with members(2) as (a, b):
        door = await b.serve("127.0.0.1:0")
        typed = await a.subscribe("jobs", shared="w", type=Job)
        texts = await a.subscribe("jobs", shared="w", type=str)
        anything = await a.subscribe("jobs", shared="w")
        async with pluribus.connect(url_of(b, door)) as client, pluribus.connect(url_of(b, door)) as other:
            theirs = await client.subscribe("jobs", shared="w", type=Job).open()
            theirs_text = await other.subscribe("jobs", shared="w", type=str).open()
            keys = b.pubsub.sharing.shares.takers
            await eventually(lambda: sorted(len(takers) for takers in keys.values()) == [1, 2, 2])
            for number in range(10):
                await a.publish_many([("jobs", Job(number)), ("jobs", f"text {number}"), ("jobs", {"number": number})])
            got = []

            async def work(subscription):
                while True:
                    got.append((await subscription.receive()).body)

            tasks = [asyncio.create_task(work(one)) for one in (typed, theirs, texts, theirs_text)]
            wanted = [Job(number) for number in range(10)] + [f"text {number}" for number in range(10)]
            await eventually(lambda: len(got) == 20)
            assert sorted(map(repr, got)) == sorted(map(repr, wanted)), "each went to one, and none got lost"
            for task in tasks:
                task.cancel()
            assert len([await anything.receive(10) for _ in range(30)]) == 30
            await eventually(lambda: typed.waiting == texts.waiting == anything.waiting == 0)


@on_a_loop
async def test_what_a_set_cannot_have_in_common_is_refused():
    async with members(1) as (a,):
        door = await a.serve("127.0.0.1:0")
        near = Near(48.2, 16.4, 1_000)
        async with pluribus.connect(url_of(a, door)) as client:
            for bus in (a, client):
                with pytest.raises(BadInput, match="leave one of them out"):
                    bus.subscribe("jobs", shared="w", near=near)
                async with bus.subscribe("jobs", "body > 1", shared="w") as one:
                    with pytest.raises(BadInput, match="keeps its condition"):
                        one.set_where("body > 2")
                    await bus.publish("jobs", 2)
                    assert (await one.receive(10)).body == 2
            with pytest.raises(BadInput, match="does not know its concepts"):
                client.subscribe("jobs", shared="w", concept="share", vocabulary=VOCABULARY)
            with pytest.raises(BadInput, match="no type of plain data"):
                await client.subscribe("jobs", shared="w", type=Mapping).open()
        one = await a.subscribe("jobs", shared="w", concept="share", vocabulary=VOCABULARY)
        same = await a.subscribe("jobs", shared="w", concept="stock", vocabulary=VOCABULARY)
        other = await a.subscribe("jobs", shared="w", concept="bond", vocabulary=VOCABULARY)
        assert one._worker.share[0] == same._worker.share[0] != other._worker.share[0]


@on_a_loop
async def test_a_subscriber_whose_program_gives_up_closing_leaves_the_set_all_the_same():
    async with members(2) as (a, b):
        one, other = await a.subscribe("jobs", shared="w"), await b.subscribe("jobs", shared="w")
        await b.publish("jobs", 1)
        assert await taken(one, 1) == [1]
        closing = asyncio.create_task(one.close())
        await asyncio.sleep(0)  # it has begun
        assert one.closed
        closing.cancel()
        event = await other.receive(10)
        assert (event.body, event.again) == (1, True)


@on_a_loop
async def test_an_event_that_no_program_of_the_set_can_read_is_counted_and_holds_up_nothing(monkeypatch):
    async with members(2) as (a, b):
        one, other = await a.subscribe("jobs", shared="w"), await b.subscribe("jobs", shared="w")
        await a.publish("jobs", 1)
        await eventually(lambda: one.waiting == other.waiting == 1)
        share_of(b).waiting.clear()  # as if its program had not been able to decode it
        monkeypatch.setattr(protocol, "_unpacked", lambda whole: None)  # nor when it comes with its body
        waits = asyncio.create_task(other.receive(10))
        await eventually(lambda: other.stats()["malformed"] == 1)
        await a.publish("jobs", 2)
        assert (await waits).body == 2


@on_a_loop
async def test_what_was_handed_out_and_not_begun_goes_to_another_as_soon_as_its_subscriber_leaves(monkeypatch):
    monkeypatch.setattr(worker, "HELD_S", 3_600.0)
    async with members(2) as (a, b):
        one, other = await a.subscribe("jobs", shared="w"), await b.subscribe("jobs", shared="w")
        with pytest.raises(TimeoutError):
            await one.receive_many(3, timeout=0.05)
        await b.publish_many([("jobs", number) for number in range(5)])
        await eventually(lambda: len(one._worker.ready) > 0)
        await one.close()
        assert await taken(other, 5) == list(range(5))


@on_a_loop
async def test_what_is_published_while_nobody_is_in_the_set_goes_to_nobody():
    async with members(2) as (a, b):
        await a.publish("jobs", "before")
        one = await b.subscribe("jobs", shared="w")
        await a.publish("jobs", 1)
        assert await taken(one, 1) == [1]
        await one.close()
        await a.publish("jobs", "between")
        again = await a.subscribe("jobs", shared="w")
        await b.publish("jobs", 2)
        event = await again.receive(10)
        assert (event.body, event.again) == (2, False)


@on_a_loop
async def test_a_word_that_came_before_its_subscriber_was_in_the_set_is_said_again():
    async with members(1) as (a,):
        one = await a.subscribe("jobs", shared="w")
        sharing, (key, number) = a.pubsub.sharing, one._worker.share
        word = Worked(key, number, 5, 1)
        there, sharing.shares.takers = sharing.shares.takers, {}
        sharing.heard(SimpleNamespace(body=word, sender=a.me))
        assert not one._worker.has_said(word), "it did not count"
        sharing.shares.takers = there
        sharing.heard(SimpleNamespace(body=word, sender=a.me))
        assert one._worker.has_said(word)
