"""The replicated cache: written anywhere, read everywhere, given to joiners, the same on all members under faults."""

import asyncio
import dataclasses

import pytest

import pluribus
from pluribus import sync
from pluribus.core.errors import BadInput, Closed, NotPrimary, PluribusError, Uncertain
from pluribus.runtime.bus import VIEWS, Bus
from pluribus.sim.machinery.chaos import torment
from tests.harness import eventually, new_bus, on_a_loop, two


@pluribus.register
@dataclasses.dataclass(frozen=True)
class Session:
    user: str


@on_a_loop
async def test_what_one_member_writes_the_others_read():
    async with two(stack="views") as (a, b):
        one = await a.cache("sessions", entries_max=3)
        await one.put("ann", Session("ann"))
        assert one["ann"] == one.get("ann") == Session("ann") and "ann" in one and len(one) == 1
        other = await b.cache("sessions")
        assert other["ann"] == Session("ann"), "who joins has what was there"
        assert other.stats()["entries_max"] == 3
        await other.put("bob", Session("bob"))
        await eventually(lambda: "bob" in one)
        for number in range(3):
            await one.put(number, number)
        assert list(one) == [0, 1, 2] and "ann" not in one
        await eventually(lambda: list(other) == [0, 1, 2])
        await other.remove(1)
        await other.remove("never there")
        await eventually(lambda: list(one) == [0, 2])
        await one.clear()
        await eventually(lambda: len(other) == 0)
        with pytest.raises(KeyError):
            _ = other["ann"]
        with pytest.raises(BadInput):
            one.get(1.5)
        assert other.get("ann", "nobody") == "nobody" and "0 entries" in repr(other)
        await other.close()
        assert other.closed and not one.closed


@on_a_loop
async def test_values_larger_than_a_frame():
    async with two(stack="views") as (a, b):
        one, other = await asyncio.gather(a.cache("x"), b.cache("x"))
        await one.wait_for(2)
        await one.put("large", bytes(500_000))
        assert len(one["large"]) == 500_000
        await eventually(lambda: len(other.get("large", b"")) == 500_000)


@on_a_loop
async def test_leaving_the_bus_ends_what_waits():
    async with pluribus.connect(new_bus(), stack="views") as bus:
        cache = await bus.cache("x")
        cache._notifications._notified = _never
        writing = asyncio.create_task(cache.put("a", 1))
        await eventually(lambda: cache._consumer.waiting)
        await bus.close()
    with pytest.raises(Closed):
        await writing


def test_a_change_that_is_applied_in_the_very_moment_of_the_time_out_is_certain():
    async def main() -> None:
        async with pluribus.sim.world(members=1, seed=1, stack=VIEWS) as world:
            cache = await world.buses[0].cache("x")
            cache._notifications._notified = _never
            waiting, loop = cache._consumer.waiting, asyncio.get_running_loop()
            loop.call_later(1, lambda: [waiter.set_result(None) for waiter in waiting.values()])
            await cache.put("a", 1, timeout=1)

    pluribus.sim.run(main())


async def _never(message: pluribus.Message) -> None:
    """A consumer that applies nothing."""


def test_who_is_cut_off_writes_nothing_and_comes_back_with_what_the_others_have():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            caches = await asyncio.gather(*[bus.cache("x") for bus in world.buses])
            await caches[0].wait_for(3)
            await caches[0].put("before", 1)
            world.partition([0], [1, 2])
            writing = asyncio.create_task(caches[0].put("lost?", 1, timeout=None))
            await asyncio.sleep(10)
            with pytest.raises(NotPrimary):
                await caches[0].put("alone", 1, timeout=1)
            await caches[1].put("meanwhile", 2)
            assert "meanwhile" not in caches[0]
            world.heal()
            await asyncio.sleep(10)
            with pytest.raises(Uncertain):
                await writing
            assert caches[0]["meanwhile"] == 2 and "alone" not in caches[1]
            await caches[0].put("after", 3)
            await asyncio.sleep(1)
            assert [dict.fromkeys(cache) for cache in caches] == [dict.fromkeys(caches[0])] * 3

    pluribus.sim.run(main())


@pytest.mark.parametrize("seed", range(8))
def test_members_agree_after_all_faults(seed: int):
    async def main() -> None:
        async with pluribus.sim.world(members=2 + seed % 4, seed=seed, stack=VIEWS) as world:
            caches: dict[int, object] = {}

            async def live(number: int, bus: Bus) -> None:
                try:
                    cache = caches[number] = await bus.cache("x", entries_max=20)
                    while not calm and not bus.closed:
                        await asyncio.sleep(world.random.random())
                        key = world.random.randrange(30)
                        try:
                            await cache.put(key, f"{bus.name}/{world.now:.3f}", timeout=5)
                        except PluribusError:
                            if bus.closed:
                                raise
                except PluribusError:
                    assert bus.closed

            async def begin(number: int, bus: Bus) -> None:
                asyncio.create_task(live(number, bus))  # noqa: RUF006 - it ends with the calm

            calm = False
            for number, host in enumerate(world.hosts):
                await begin(number, host.bus)
            await torment(world, 15, begin)
            await asyncio.sleep(15)
            if not any(bus.primary for bus in world.buses):
                world.buses[0].force_primary()
            await asyncio.sleep(15)
            calm = True
            await asyncio.sleep(10)
            contents = [list(cache._consumer.entries.values.items()) for cache in caches.values()]
            assert len(contents) == len(world.hosts) and contents[0]
            assert all(found == contents[0] for found in contents)

    pluribus.sim.run(main())


def test_a_cache_without_a_loop():
    url = new_bus()
    with sync.connect(url, name="a", stack="views") as a, sync.connect(url, name="b", stack="views") as b:
        one = a.cache("x")
        one.put("key", [1, 2])
        other = b.cache("x")
        assert other["key"] == other.get("key") == [1, 2] and list(other) == ["key"]
        assert "key" in other and len(other) == 1 and other.stats()["entries"] == 1
        told: list[object] = []

        class Consumer:
            def notified(self, message: pluribus.Message) -> None:
                told.append(message.body)

        with a.notifications("news", Consumer()) as news:
            news.notify("hello", wait="stable")
            news.wait_for(1)
        assert told == ["hello"] and news.closed
