"""Shared subscriptions finish event by event: of a worker that is gone, only the event under way is done again."""

import asyncio
from contextlib import suppress

import pytest

import pluribus
from pluribus.pubsub.words import Left
from pluribus.sim.machinery.world import run
from pluribus.sim.machinery.world import world as new_world
from tests.harness import eventually, new_bus, on_a_loop
from tests.runtime.styles.topics.test_topic_orders import members

JOBS = 60


async def published(bus, *shares):
    for number in range(JOBS):
        await bus.publish("jobs", number)
    await eventually(lambda: all(share.waiting == JOBS for share in shares))


def reads(way, subscription):
    if way == "receive":
        return subscription.receive
    iterator = aiter(subscription)
    return lambda: anext(iterator)


@pytest.mark.parametrize("way", ["receive", "iterate"])
@on_a_loop
async def test_of_a_worker_that_is_gone_only_the_event_under_way_is_done_again(way):
    async with members(3) as (a, b, c):
        one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
        await published(a, one, other)
        read = reads(way, one)
        begun = [(await read()).body for _ in range(7)]
        await one.close()
        got = [await other.receive(10) for _ in range(JOBS - 6)]
        assert not {event.body for event in got} & set(begun[:6])
        assert [event.body for event in got if event.again] == [begun[6]]


@on_a_loop
async def test_an_event_is_finished_when_the_next_is_asked_for_though_there_is_none():
    async with members(3) as (a, b, c):
        one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
        await published(a, one, other)
        for _ in range(JOBS):
            await one.receive(10)
        with pytest.raises(TimeoutError):
            await one.receive(0.2)
        share = next(iter(c.pubsub.sharing.shares._shares.values()))
        await eventually(lambda: not share.held[(int(b.me), 1)])
        await one.close()
        with pytest.raises(TimeoutError):
            await other.receive(0.2)


@on_a_loop
async def test_a_client_finishes_event_by_event_too():
    async with members(2) as (a, b):
        door = await b.serve("127.0.0.1:0")
        url = f"client://127.0.0.1:{door.address[1]}/{b.url.bus}"
        other = await a.subscribe("jobs", shared="w")
        async with pluribus.connect(url) as client:
            one = await client.subscribe("jobs", shared="w").open()
            for number in range(JOBS):
                await a.publish("jobs", number)
            begun = [(await one.receive(10)).body for _ in range(5)]
        got = [await other.receive(10) for _ in range(JOBS - 4)]
        assert {event.body for event in got} == set(range(JOBS)) - set(begun[:4])


@on_a_loop
async def test_an_event_that_came_when_no_client_read_any_more_goes_to_another():
    async with members(2) as (a, b):
        door = await b.serve("127.0.0.1:0")
        url = f"client://127.0.0.1:{door.address[1]}/{b.url.bus}"
        other = await a.subscribe("jobs", shared="w")
        async with pluribus.connect(url) as client:
            one = await client.subscribe("jobs", shared="w").open()
            await a.publish("jobs", 1)
            assert (await other.receive(10)).body == 1, "a client that has not asked is given nothing"
            with pytest.raises(TimeoutError):
                await one.receive(0.2)
            await a.publish("jobs", 2)
            event = await other.receive(10)
            assert (event.body, event.again) == (2, False)
            await a.publish("jobs", 3)
            assert (await one.receive(10)).body == 3


def test_without_a_loop_events_are_taken_one_by_one_too():
    url = new_bus()
    with pluribus.sync.connect(url, name="a") as a, pluribus.sync.connect(url, name="b") as b:
        other = a.subscribe("jobs", shared="w")
        with b.subscribe("jobs", shared="w") as one:
            for number in range(JOBS):
                a.publish("jobs", number)
            begun = [one.receive(10).body for _ in range(5)]
        got = [other.receive(10) for _ in range(JOBS - 4)]
        assert {event.body for event in got} == set(range(JOBS)) - set(begun[:4])


def test_a_worker_may_take_long_and_loses_nothing_that_waits():
    async def play():
        async with new_world(2, seed=1, stack="views") as world:
            a, b = world.buses
            one = await b.subscribe("jobs", shared="w")
            await a.wait_for(2)
            for number in range(JOBS):
                await a.publish("jobs", number)
            await asyncio.sleep(1)
            first = await one.receive()
            await asyncio.sleep(60)
            return [first.body] + [(await one.receive(1)).body for _ in range(JOBS - 1)]

    assert run(play()) == list(range(JOBS))


def test_a_worker_that_is_no_longer_in_the_primary_waits_with_the_next_event():
    async def play():
        async with new_world(3, seed=1, stack="views") as world:
            a, b, c = world.buses
            one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
            await a.wait_for(3)
            for number in range(JOBS):
                await a.publish("jobs", number)
            await asyncio.sleep(1)
            await one.receive()
            world.partition([1], [0, 2])
            await asyncio.sleep(30)
            with pytest.raises(TimeoutError):
                await one.receive(5)
            assert {(await other.receive(5)).body for _ in range(JOBS)} == set(range(JOBS))
            world.heal()
            await asyncio.sleep(30)
            for number in range(JOBS, 2 * JOBS):  # it is back, and is given none of what the other has finished
                await a.publish("jobs", number)
            await asyncio.sleep(1)
            given = [event.body for subscription in (one, other) for event in await everything(subscription)]
            assert sorted(given) == list(range(JOBS, 2 * JOBS))

    run(play())


async def everything(subscription):
    events = []
    with suppress(TimeoutError):
        while True:
            events.append(await subscription.receive(5))
    return events


def test_one_task_may_read_shared_events_and_others_in_total_order_that_fill_the_window():
    async def play():
        async with new_world(2, seed=1, stack="views") as world:
            a, b = world.buses
            jobs, prices = await b.subscribe("jobs", shared="w"), await b.subscribe("prices", guarantee="total")
            await a.wait_for(2)

            async def publish():
                for number in range(JOBS):
                    await b.publish("jobs", number)
                while True:
                    await b.publish("prices", b"x" * 1_000)

            publishing = asyncio.create_task(publish())
            for number in range(JOBS):
                assert (await jobs.receive(10)).body == number
                await prices.receive(10)
            publishing.cancel()
            assert prices.missed == 0

    run(play())


def takers_at(bus):
    return set(next(iter(bus.pubsub.sharing.shares.takers.values())))


def test_a_subscriber_that_leaves_while_the_primary_breaks_is_out_of_its_set_afterwards():
    async def play():
        async with new_world(3, seed=1, stack="views") as world:
            a, b, c = world.buses
            one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
            await a.wait_for(3)
            await asyncio.sleep(1)
            world.partition([0], [1], [2])
            await one.close()  # nobody hears that; and it is the one that deals
            await asyncio.sleep(30)
            world.heal()
            await asyncio.sleep(30)
            await a.publish("jobs", 1)
            assert (await other.receive(30)).body == 1
            assert takers_at(a) == takers_at(c) == {(int(c.me), 1)}

    run(play())


def test_a_subscriber_that_comes_back_while_the_primary_breaks_is_in_its_set_afterwards():
    async def play():
        async with new_world(3, seed=1, stack="views") as world:
            a, b, c = world.buses
            one, other = await b.subscribe("jobs", shared="w"), await c.subscribe("jobs", shared="w")
            await a.wait_for(3)
            await asyncio.sleep(1)
            key, number = one._worker.share
            await a.pubsub.sharing._carrier.group.send(Left(key, int(b.me), number))  # as if it were gone
            while one._worker.share == (key, number):  # noqa: ASYNC110 - it is found out between two messages
                await asyncio.sleep(0.0001)
            world.partition([0], [1], [2])
            await asyncio.sleep(30)
            world.heal()
            await asyncio.sleep(30)
            await other.close()
            await a.publish("jobs", 1)
            assert (await one.receive(30)).body == 1
            assert takers_at(a) == {(int(b.me), 2)}

    run(play())
