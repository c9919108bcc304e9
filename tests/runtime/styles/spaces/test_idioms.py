"""The idioms, Bauhaus Linda and JavaSpaces' names, on real buses; spaces without ``await``."""

import asyncio

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.javaspaces import FOREVER, JavaSpace
from pluribus.spaces.bauhaus import Bauhaus, Multiset
from pluribus.spaces.idioms import Bag, Barrier, Counter, Semaphore, Service, geography
from tests.harness import eventually, new_bus, on_a_loop


@pluribus.register
class IdiomEntry(msgspec.Struct):
    name: str | None = None
    number: int | None = None


@on_a_loop
async def test_counter_semaphore_barrier_and_geography():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        spaces = [await bus.space("idioms") for bus in (one, other)]
        counters = [Counter(space, "c") for space in spaces]
        await counters[0].start(64)
        counts = await asyncio.gather(*[counters[number % 2].add() for number in range(10)])
        assert sorted(counts) == list(range(64, 74)) and await counters[1].value() == 74
        semaphores = [Semaphore(space, "s") for space in spaces]
        await semaphores[0].start(2)
        inside = most = 0

        async def enter(number):
            nonlocal inside, most
            async with semaphores[number % 2].held(60):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.01)
                inside -= 1

        await asyncio.gather(*map(enter, range(6)))
        assert most == 2
        barriers = [Barrier(space, "b", 3) for space in (*spaces, spaces[0])]
        await barriers[0].start()
        assert await asyncio.gather(*[barrier.wait(60) for barrier in barriers]) == [0, 0, 0]
        assert await asyncio.gather(*[barrier.wait(60) for barrier in barriers]) == [1, 1, 1]
        found = await geography(await one.space("uk"))
        assert found["capital"] == ("Capital", "Scotland", "Edinburgh")
        assert found["population"] == ("Population", "Scotland", 5_168_000)
        assert found["any population"][1] in ("UK", "Wales")


@pytest.mark.parametrize("kind", ["replicated", "views", "partitioned"])
def test_what_everybody_needs_is_not_lost_with_a_process_that_dies(kind):
    @on_a_loop
    async def story():
        async with pluribus.connect(new_bus()) as bus:
            space = await bus.space("idioms", kind=kind)
            counter, house = Counter(space, "c"), Bauhaus(space, "house")
            await counter.start()
            await house.start()
            for count in range(0, 40, 3):  # it ends somewhere on the way
                for doing in (counter.add(), house.out("x")):
                    task = asyncio.ensure_future(doing)
                    for _ in range(count):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            await space.flush()
            async with asyncio.timeout(60):
                before = await counter.value()
                assert before <= 14 and await counter.add() == before
                await house.out("y")
                assert await house.rd("y") == "y"
            assert await space.count(("counter", ..., ...)) == 1

    story()


@on_a_loop
async def test_remote_calls_and_master_and_workers():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        mine, theirs = await one.space("work"), await other.space("work")
        service = Service(mine, "halve")
        await service.start()

        async def halve(number):
            if number % 2:
                raise ValueError(f"{number} is odd")
            return number // 2

        serving = asyncio.create_task(Service(theirs, "halve").serve(halve))
        assert await asyncio.gather(service.call(4, timeout=60), service.call(10, timeout=60)) == [2, 5]
        with pytest.raises(RuntimeError, match="halve: ValueError: 3 is odd"):
            await service.call(3, timeout=60)
        await service.stop()
        await asyncio.wait_for(serving, 60)
        bag = Bag(mine, "squares")

        async def square(number):
            return number * number

        workers = [asyncio.create_task(Bag(space, "squares").work(square)) for space in (mine, theirs, theirs)]
        assert await bag.put(range(12)) == 12
        assert sorted(await bag.collect(12, 60)) == [(number, number * number) for number in range(12)]
        await bag.poison(3)
        assert sum(await asyncio.wait_for(asyncio.gather(*workers), 60)) == 12


@on_a_loop
async def test_bauhaus():
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("bauhaus")
        one, other = Bauhaus(space, "house"), Bauhaus(space, "house")
        await one.start()
        waiting = asyncio.create_task(other.in_(Multiset("fred", int)))
        await one.out("loose")
        await one.out(Multiset("sid", 1964, Multiset("car")))
        await one.out(Multiset(1958, "fred", "more"))
        assert await asyncio.wait_for(waiting, 60) == Multiset("more", "fred", 1958)
        assert await one.rd("loose") == "loose"
        await one.down(Multiset("sid"))
        await one.out("inside")
        assert one.depth == 1 and await one.here() == Multiset("inside", 1964, "sid", Multiset("car"))
        await other.move("loose", Multiset("sid"))
        assert (await one.here()).includes(Multiset("loose", Multiset("car")))
        assert await one.in_(Multiset("car")) == Multiset("car")
        one.up()
        with pytest.raises(BadInput, match="outermost"):
            one.up()
        with pytest.raises(TimeoutError):
            await one.in_("nothing", timeout=0.2)
        assert await one.here() == Multiset(Multiset("loose", "inside", 1964, "sid"))


@on_a_loop
async def test_the_api_of_figure_6_23():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        mine, theirs = await JavaSpace.find(one, "js"), await JavaSpace.find(other, "js")
        heard = []
        registration = await theirs.notify(IdiomEntry("a"), None, heard.append, 60_000, "back")
        lease = await mine.write(IdiomEntry("a", 1), None, 60_000)
        assert lease.granted_s == 60
        assert await theirs.read(IdiomEntry("a"), None, FOREVER) == IdiomEntry("a", 1)
        assert await theirs.take_if_exists(IdiomEntry("b"), None, 0) is None
        assert await theirs.read(IdiomEntry("b"), None, 50) is None
        assert await theirs.take(IdiomEntry(None, 1), None, FOREVER) == IdiomEntry("a", 1)
        assert await mine.read_if_exists(IdiomEntry(), None, 0) is None
        await eventually(lambda: heard)
        assert (heard[0].sequence_number, heard[0].hand_back) == (1, "back")
        assert await registration.renew(5_000) == 5_000
        await registration.cancel()
        with pytest.raises(BadInput, match="holds entries"):
            await mine.write(("a",), None, FOREVER)


def test_without_await():
    with pluribus.sync.connect(new_bus()) as bus:
        space = bus.space("plain")
        events = space.notify(("a", int))
        lease = space.write(("a", 1), 3600)
        assert lease.granted_s == 3600 and lease.renew(60) == 60
        assert space.read(("a", int), timeout=30) == ("a", 1)
        assert next(iter(events)).value == ("a", 1)
        assert list(space.read_all()) == [("a", 1)] and space.count() == 1
        assert space.take(("a", int), timeout=30) == ("a", 1)
        assert space.take_if_exists(("a", int)) is None
