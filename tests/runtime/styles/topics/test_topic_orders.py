"""Orders chosen by the subscriber, shared subscriptions, last values, advertisements, decorated functions."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput, BadTopic
from pluribus.pubsub.event import Event
from pluribus.sim.machinery.world import run, world
from tests.harness import eventually, new_bus, on_a_loop


class Quote(msgspec.Struct, frozen=True):
    price: float


pluribus.register(Quote, "tests.runtime.Quote")


@asynccontextmanager
async def members(count):
    url = new_bus()
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(pluribus.connect(url, name=f"m{n}")) for n in range(count)]
        for bus in buses:
            await bus.pubsub.base()
        for bus in buses:
            await bus.pubsub.joined.group.wait_for(count)
        yield buses


async def taken(subscription, count):
    return [(await subscription.receive(10)).body for _ in range(count)]


@pytest.mark.parametrize("order", ["causal", "total"])
@on_a_loop
async def test_an_order_is_the_subscribers_choice_and_every_publisher_learns_of_it(order):
    async with members(3) as (a, b, c), a.subscribe("t/#") as plain:
        async with b.subscribe("t/#", guarantee=order) as one, c.subscribe("t/#", guarantee=order) as other:
            for number in range(50):
                await asyncio.gather(*(bus.publish(f"t/{place}", number) for place, bus in enumerate((a, b, c))))
            first, second = [[await events.receive(10) for _ in range(150)] for events in (one, other)]
            if order == "total":
                assert [event.id for event in first] == [event.id for event in second]
            for events in (first, second):
                for bus in (a, b, c):
                    assert [event.body for event in events if event.sender == bus.me] == list(range(50))
            assert len(await taken(plain, 150)) == 150
        assert plain.waiting == 0
        await eventually(lambda: not a.pubsub.neighbours.also("t/0"))
        before = a.pubsub.carriers[order].group._channel.out.first
        await a.publish("t/0", 1)
        await a.flush()
        assert a.pubsub.carriers[order].group._channel.out.first == before


@on_a_loop
async def test_who_comes_later_learns_what_is_wanted():
    async with (
        members(2) as (a, b),
        a.subscribe("t", guarantee="total") as events,
        pluribus.connect(a.url.text, name="late") as late,
    ):
        await late.publish("t", "hello")
        assert await taken(events, 1) == ["hello"]
        await b.publish("t", "world")
        assert await taken(events, 1) == ["world"]


@pytest.mark.parametrize("seed", range(5))
def test_who_waits_for_the_others_knows_what_they_want(seed):
    async def play():
        async with world(2, seed, stack="views") as two:
            a, b = two.buses
            two.partition([0], [1])
            await asyncio.sleep(10)
            await a.publish("t", "alone")
            events = await b.subscribe("t", guarantee="causal")
            two.heal()
            await a.wait_for(2, timeout=30)
            await a.publish("t", "together")
            assert (await events.receive(10)).body == "together"

    run(play())


@on_a_loop
async def test_last_values_are_given_to_newcomers_and_outlive_their_publisher():
    async with members(2) as (a, b):
        await a.publish("prices/ibm", {"price": 1}, retain=True)
        await a.publish("prices/ibm", {"price": 2}, retain=True)
        await a.publish("prices/sap", Quote(3.0), retain=True, headers={"unit": "eur"})
        await a.publish("prices/sap", Quote(9.0))
        await eventually(lambda: b.pubsub.retained() == ["prices/ibm", "prices/sap"])
        await a.close()
        async with pluribus.connect(b.url.text, name="late") as late:
            async with late.subscribe("prices/#") as events, late.subscribe("prices/+", where="price > 2") as dear:
                found = {event.topic: event for event in [await events.receive(5) for _ in range(2)]}
                assert found["prices/ibm"].body == {"price": 2} and found["prices/ibm"].retained
                assert found["prices/sap"].headers == {"unit": "eur"} and found["prices/sap"].sender == a.me
                assert await taken(dear, 1) == [Quote(3.0)]
                await b.publish("prices/ibm", {"price": 5})
                assert not (await events.receive(5)).retained
            async with late.subscribe("prices/ibm", retain=False) as later:
                assert later.waiting == 0
            await b.publish("prices/ibm", b"", retain=True)
            await eventually(lambda: late.pubsub.retained() == ["prices/sap"])


@on_a_loop
async def test_advertisements_are_seen_taken_back_and_gone_with_their_member():
    async with members(2) as (a, b):
        await a.advertise("stocks/+/tick", Quote, about="prices of the exchange")
        await b.advertise("stocks/+/tick", Quote)
        await b.advertise("weather/#")
        await eventually(lambda: len(a.pubsub.neighbours.adverts(a.me).get(int(b.me), ())) == 2)
        (found,) = await a.topics("stocks/ibm/#")
        assert (found.pattern, found.type, set(found.members.values())) == ("stocks/+/tick", "Quote", {"m0", "m1"})
        async with pluribus.connect(a.url.text, name="late") as late:
            assert [advert.pattern for advert in await late.topics()] == ["stocks/+/tick", "weather/#"]
        await b.unadvertise("weather/#")
        await eventually(lambda: "weather/#" not in a.pubsub.neighbours.adverts(a.me)[int(b.me)])
        with pytest.raises(BadInput, match="is not advertised"):
            await b.unadvertise("weather/#")
        with pytest.raises(BadTopic):
            await b.advertise("weather//x")
        await b.close()
        await eventually(lambda: list(a.pubsub.neighbours.adverts(a.me)) == [int(a.me)])


@on_a_loop
async def test_decorated_functions_get_bodies_or_events_by_their_annotation():
    got = []
    async with members(2) as (a, b):

        @b.on("t/#")
        async def quotes(quote: Quote):
            got.append(quote)

        @b.on("t/#", where="price > 1")
        async def events(event):
            got.append((event.topic, event.body))

        @b.on("t/#")
        async def typed(event: Event[Quote]):
            got.append(event.topic)

        for function in (quotes, events, typed):
            await function.subscription
        await a.publish("t/1", {"price": 2})
        await a.publish("t/2", Quote(1.0))
        await eventually(lambda: len(got) == 3)
        assert Quote(1.0) in got and ("t/1", {"price": 2}) in got and "t/2" in got
        await quotes.subscription.close()
        with pytest.raises(BadInput):

            @b.on("t")
            async def wrong(body: list[int] | None):
                pass
