"""The notification bus: everybody is told, in one order; joiners are given the cache; hooks hear of members."""

import asyncio
import threading
from typing import Any

import pytest

import pluribus
from pluribus.core.errors import BadInput, GroupMismatch
from pluribus.runtime.bus import VIEWS
from tests.harness import eventually, new_bus, on_a_loop, two


class Consumer:
    def __init__(self) -> None:
        self.told: list[Any] = []
        self.people: list[tuple[str, str]] = []
        self.over = False

    async def notified(self, message: pluribus.Message) -> None:
        if message.body == "fail":
            raise ValueError("on purpose")
        self.told.append(message.body)

    def joined(self, member: int, name: str) -> None:
        self.people.append(("joined", name))

    def left(self, member: int, name: str) -> None:
        self.people.append(("left", name))
        raise RuntimeError("a hook that fails harms nobody")

    def ended(self) -> None:
        self.over = True


class Caching(Consumer):
    def get_cache(self) -> list[Any]:
        return self.told

    def put_cache(self, cache: list[Any]) -> None:
        self.told = ["given", *cache]


@pytest.mark.parametrize("stack", ["best-effort", "views"])
@on_a_loop
async def test_everybody_is_told_and_hears_of_the_others(stack: str):
    async with two(stack=stack) as (a, b):
        consumers = [Consumer(), Consumer()]
        one, other = await asyncio.gather(
            *[bus.notifications("news", consumer) for bus, consumer in zip((a, b), consumers, strict=True)]
        )
        await one.wait_for(2)
        await other.wait_for(2)
        await one.notify("first")
        await other.notify({"second": 2})
        for consumer in consumers:
            await eventually(lambda consumer=consumer: len(consumer.told) == 2)
        assert sorted(map(str, consumers[0].told)) == sorted(map(str, consumers[1].told))
        await eventually(lambda: consumers[0].people == [("joined", "b")])
        await other.close()
        assert other.closed and consumers[1].over and "news" in repr(other)
        await eventually(lambda: consumers[0].people == [("joined", "b"), ("left", "b")])


@on_a_loop
async def test_all_consumers_are_told_in_the_same_order():
    async with two(stack="views") as (a, b):
        consumers = [Consumer(), Consumer()]
        buses = await asyncio.gather(
            *[bus.notifications("news", consumer) for bus, consumer in zip((a, b), consumers, strict=True)]
        )
        for notifications in buses:
            await notifications.wait_for(2)
        await asyncio.gather(*[notifications.notify(n) for n in range(100) for notifications in buses])
        await eventually(lambda: all(len(consumer.told) == 200 for consumer in consumers))
        assert consumers[0].told == consumers[1].told


@on_a_loop
async def test_a_joiner_is_given_the_cache_before_its_first_notification():
    async with two(stack="views") as (a, b):
        first, second = Caching(), Caching()
        one = await a.notifications("news", first)
        for number in range(10):
            await one.notify(number)
        other = await b.notifications("news", second)
        assert second.told[0] == "given"
        for number in range(10, 20):
            await other.notify(number)
        await eventually(lambda: len(first.told) == 20 and len(second.told) == 21)
        assert first.told == list(range(20)) == second.told[1:]


@on_a_loop
async def test_a_consumer_that_fails_is_told_the_next_one(caplog: pytest.LogCaptureFixture):
    async with pluribus.connect(new_bus(), stack="views") as bus:
        consumer = Consumer()
        notifications = await bus.notifications("news", consumer)
        await notifications.notify("fail")
        await notifications.notify("go on")
        await eventually(lambda: consumer.told == ["go on"])
        assert "on purpose" in caplog.text


class Fussy(Caching):
    """Does not take every cache."""

    def put_cache(self, cache: list[Any]) -> None:
        super().put_cache(cache)
        if "too much" in cache:
            raise ValueError("on purpose")


def test_a_consumer_that_cannot_take_a_cache_leaves():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            consumers = [Fussy() for _ in world.buses]
            found = [await b.notifications("news", c) for b, c in zip(world.buses, consumers, strict=True)]
            await found[0].wait_for(3)
            world.partition([2], [0, 1])
            await asyncio.sleep(10)
            await found[0].notify("too much")
            world.heal()
            await eventually(lambda: found[2].closed and consumers[2].over, within_s=30)
            await eventually(lambda: len(found[0].view) == 2)
            await found[2].close()

    pluribus.sim.run(main())


@on_a_loop
async def test_a_plain_consumer_works_in_a_thread_one_by_one():
    threads: list[int] = []

    class Plain:
        def notified(self, message: pluribus.Message) -> None:
            threads.append(threading.get_ident())

    async with pluribus.connect(new_bus(), stack="views") as bus:
        notifications = await bus.notifications("news", Plain())
        await notifications.notify(1)
        await notifications.notify(2)
        await eventually(lambda: len(threads) == 2)
        assert threading.get_ident() not in threads


@on_a_loop
async def test_a_consumer_may_leave_when_told_to():
    async with pluribus.connect(new_bus(), stack="views") as bus:

        class Mortal:
            async def notified(self, message: pluribus.Message) -> None:
                await notifications.close()

        notifications = await bus.notifications("news", Mortal())
        await notifications.notify("leave")
        await eventually(lambda: notifications.closed)


@on_a_loop
async def test_what_is_no_consumer_is_refused():
    class Half(Consumer):
        def get_cache(self) -> None: ...

    async with pluribus.connect(new_bus(), stack="views") as bus:
        with pytest.raises(BadInput, match="notified"):
            await bus.notifications("news", object())
        with pytest.raises(BadInput, match="get_cache and put_cache"):
            await bus.notifications("news", Half())
        await bus.notifications("news", Consumer())
        with pytest.raises(GroupMismatch, match="one reader"):
            await bus.notifications("news", Consumer())
    async with pluribus.connect(new_bus(), stack="best-effort") as bus:
        with pytest.raises(BadInput, match="agreed views"):
            await bus.notifications("news", Caching())
