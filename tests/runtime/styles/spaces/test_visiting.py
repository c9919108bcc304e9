"""Spaces of the kinds *views* and *partitioned* on clients: their member takes part for them."""

import asyncio

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput, LeaseEnded, Uncertain
from pluribus.spaces import visits
from tests.harness import eventually, new_bus, on_a_loop
from tests.runtime.clients.test_client import url_of

KINDS = ("views", "partitioned")


@pluribus.register
class VisitAlarm(msgspec.Struct):
    type: str | None = None
    floor: int | None = None


@pytest.mark.parametrize("kind", KINDS)
def test_every_call(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url, serve="127.0.0.1:0") as door, pluribus.connect(url) as member:
            async with pluribus.connect(url_of(door)) as client:
                space, inside = await client.space("uk", kind=kind), await member.space("uk", kind=kind)
                assert [(one.name, one.kind) for one in await client.spaces()] == [("uk", kind)]
                waiting = asyncio.ensure_future(space.take(("Population", "Wales", int), timeout=60))
                await space.write(("Capital", "Scotland", "Edinburgh"))
                await space.write_many([("Population", "Scotland", 5168000), ("Population", "UK", 61000000)])
                await inside.write(("Population", "Wales", 2900000))
                assert await waiting == ("Population", "Wales", 2900000)
                assert await inside.take((str, "Scotland", str), timeout=60) == ("Capital", "Scotland", "Edinburgh")
                assert await space.read(("Population", str, int), "f2 > 6000000", timeout=60) == (
                    *("Population", "UK", 61000000),
                )
                assert await space.replace(("Population", "UK", int), ("Population", "UK", 1), timeout=60) == (
                    *("Population", "UK", 61000000),
                )
                await space.flush()
                await inside.flush()
                assert await space.count(("Population", ..., int)) == 2
                every = sorted([value async for value in space.read_all()])
                assert every == [("Population", "Scotland", 5168000), ("Population", "UK", 1)]
                assert sorted(await space.take_many((str, str, int), timeout=60)) == every
                assert await space.take_if_exists((str, str, int)) is None
                assert await space.read_if_exists((str, str, int)) is None
                with pytest.raises(TimeoutError, match="nothing in 'uk' matched"):
                    await space.take(("Capital", str, str), timeout=0.2)
                await space.out(VisitAlarm("Fire!", 3))
                assert await inside.rd(VisitAlarm("Fire!"), timeout=60) == VisitAlarm("Fire!", 3)
                lease = await space.write(("leased", 1), lease=1e9)
                assert lease.granted_s == 365 * 24 * 3_600 and await lease.renew(60) == 60
                await lease.cancel()
                with pytest.raises(LeaseEnded, match="has ended"):
                    await lease.renew(60)
                for call, says in (
                    (lambda: space.notify(transaction=1), "joins a transaction"),
                    (lambda: space.resume(-1), "is no number of a registration"),
                    (lambda: space.write(("a",), transaction=1), "joins a transaction"),
                    (lambda: space.read(("a",), stale=True), "a client has none"),
                    (lambda: client.space("x", kind=kind, replica=False), "for members"),
                    (lambda: client.space("uk", kind="replicated"), f"is of kind '{kind}'"),
                ):
                    with pytest.raises(BadInput, match=says):
                        await call()
            mine = await door.space("uk", kind=kind)  # what its clients had open
            assert await mine.take(VisitAlarm(), timeout=60) == VisitAlarm("Fire!", 3)

    story()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_with_a_client_and_nothing_is_taken_twice(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url, serve="127.0.0.1:0") as door:
            inside = await door.space("jobs", kind=kind)
            client = await pluribus.connect(url_of(door))
            space = await client.space("jobs", kind=kind)
            waiting = asyncio.ensure_future(space.take(("job", int)))
            way = door.style(_spaces())._crews["jobs"]
            await eventually(lambda: way.stats()["requests"] == 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await inside.write(("job", 1))
            await space.flush()
            assert await inside.take(("job", int), timeout=60) == ("job", 1)  # nobody waited for it any more
            # The member has taken it for the client, which goes before it says that it has it.
            await inside.write(("job", 2))
            taken = await client.line.ask(
                visits.VisitTake(visits.SpacePlace("jobs", kind), 7, _template(("job", int)), wait_s=10.0)
            )
            assert len(taken) == 1 and await inside.take_if_exists(("job", int)) is None
            await client.close()
            assert await inside.take(("job", int), timeout=60) == ("job", 2)

    story()


@on_a_loop
async def test_a_write_that_nobody_answered_is_uncertain_and_a_take_goes_on():
    url = new_bus()
    async with pluribus.connect(url, serve="127.0.0.1:0") as door, pluribus.connect(url_of(door)) as client:
        inside = await door.space("jobs", kind="views")
        space = await client.space("jobs", kind="views")
        taking = asyncio.ensure_future(space.take(("job", int), timeout=60))
        way = door.style(_spaces())._crews["jobs"]
        await eventually(lambda: way.stats()["requests"] == 1)

        async def stuck(*_):
            client.line._writer.transport.abort()
            await asyncio.Event().wait()

        way.write, write = stuck, way.write
        with pytest.raises(Uncertain):
            await space.write(("x", 1))
        way.write = write
        await inside.write(("job", 1))
        assert await taking == ("job", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_registrations_go_on_at_another_host(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url, serve="127.0.0.1:0") as door, pluribus.connect(url) as member:
            inside = await member.space("jobs", kind=kind)
            async with pluribus.connect(url_of(door)) as client:
                space = await client.space("jobs", kind=kind)
                registration = await space.notify((str, int), "f1 > 0", hand_back=("mine", 1), lease=3600)
                assert registration.granted_s == 3600 and await registration.renew(60) == 60
                events = aiter(registration)
                await inside.write_many([("a", 1), ("a", 0), ("b", 2)])
                first = await anext(events)
                assert first.value in (("a", 1), ("b", 2)) and first.hand_back == ("mine", 1) and first.sequence == 1
                client.line._writer.transport.abort()
                second = await anext(events)
                assert {first.value, second.value} == {("a", 1), ("b", 2)}
                assert (second.sequence, second.missed, second.gap) == (2, 0, False)
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)
                client.line._writer.transport.abort()
                await inside.write(("c", 3))
                assert (await waiting).value == ("c", 3)
            # Another process goes on: the last event was not acknowledged; the ones before perhaps, by a broken line.
            resumed = await inside.resume(registration.number)
            assert 0 < resumed.granted_s <= 60
            async for event in resumed:
                if event.value == ("c", 3):
                    break
            await resumed.cancel()
            with pytest.raises(LeaseEnded, match="has ended"):
                await inside.resume(registration.number)

    story()


@pytest.mark.parametrize("kind", KINDS)
def test_a_registration_that_no_client_learned_of_ends(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url, serve="127.0.0.1:0") as door:
            inside = await door.space("jobs", kind=kind)
            client = await pluribus.connect(url_of(door))
            asked = visits.VisitNotify(visits.SpacePlace("jobs", kind), 7, _template((str, int)))
            name = (await client.line.ask(asked)).names[0]
            way = door.style(_spaces())._crews["jobs"]
            assert not (await way.fetched(name, [], 0, True)).ended
            await client.close()

            watched = await way.fetched(name, [], 0, False, 30.0)  # answered when it is over
            assert watched.ended
            await inside.flush()

    story()


def test_without_await():
    with pluribus.sync.connect(new_bus(), serve="127.0.0.1:0") as bus:
        host, port = bus.doors[0].address
        with pluribus.sync.connect(f"client://{host}:{port}/{bus.url.bus}") as client:
            space = client.space("plain", kind="partitioned", copies=2, key=1)
            registration = space.notify(("a", int))
            space.write(("a", 1))
            assert space.take(("a", int), timeout=60) == ("a", 1)
            assert next(iter(registration)).value == ("a", 1)
            registration.cancel()


def _spaces():
    from pluribus.runtime.styles.spaces.spaces import Spaces

    return Spaces


def _template(given):
    from pluribus.spaces.templates import template_of

    return template_of(given)
