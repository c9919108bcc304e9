"""The three kinds of spaces through one face, on real buses."""

import asyncio

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadBody, BadInput, Closed, LeaseEnded, Undelivered
from pluribus.runtime.styles.spaces import replicated
from pluribus.runtime.styles.spaces.spaces import Spaces
from pluribus.spaces import machine, words
from pluribus.spaces.values import item_of
from tests.harness import eventually, new_bus, on_a_loop

KINDS = ("replicated", "views", "partitioned")


@pluribus.register
class FaceAlarm(msgspec.Struct):
    type: str | None = None
    floor: int | None = None


@pluribus.register
class FaceFire(FaceAlarm):
    heat: int | None = None


@pytest.mark.parametrize("kind", KINDS)
def test_the_chapter(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url) as one, pluribus.connect(url) as other:
            mine, yours = await one.space("uk", kind=kind), await other.space("uk", kind=kind)
            waiting = asyncio.ensure_future(yours.take(("Population", "Wales", int), timeout=60))
            await mine.write(("Capital", "Scotland", "Edinburgh"))
            await mine.write_many([("Population", "Scotland", 5168000), ("Population", "UK", 61000000)])
            await mine.write(("Population", "Wales", 2900000))
            assert await waiting == ("Population", "Wales", 2900000)
            assert await yours.read(("Population", "Scotland", int), timeout=60) == ("Population", "Scotland", 5168000)
            assert await yours.take((str, "Scotland", str), timeout=60) == ("Capital", "Scotland", "Edinburgh")
            assert await mine.take_if_exists((str, "France", str)) is None
            found = await mine.take(("Population", str, int), "f2 > 6000000", timeout=60)
            assert found == ("Population", "UK", 61000000)
            with pytest.raises(TimeoutError, match="nothing in 'uk' matched"):
                await mine.take(("Capital", str, str), timeout=0.2)
            await mine.flush()
            await yours.flush()
            assert await mine.count() == 1
            assert [value async for value in mine.read_all()] == [("Population", "Scotland", 5168000)]
            assert await mine.in_(("Population", ..., ...), timeout=60) == ("Population", "Scotland", 5168000)
            await mine.out(FaceFire("Fire!", 3, 200))
            assert await yours.rd(FaceAlarm("Fire!"), timeout=60) == FaceFire("Fire!", 3, 200)
            listed = await other.spaces()
            assert [(one.name, one.kind, one.durable) for one in listed] == [("uk", kind, False)]

    story()


@on_a_loop
async def test_a_durable_space_survives_and_is_used_from_members_and_clients(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, store=tmp_path / "kept.db", serve="127.0.0.1:0") as keeper:
        space = await keeper.space("jobs", durable=True)
        await space.write_many([("job", number) for number in range(5)])
        async with pluribus.connect(url) as member:
            other = await member.space("jobs", durable=True)
            assert await other.take(("job", int), "f1 >= 3", timeout=30) == ("job", 3)
            assert await other.replace(("job", 4), ("done", 4), timeout=30) == ("job", 4)
    async with pluribus.connect(url, store=tmp_path / "kept.db") as keeper:
        space = await keeper.space("jobs", durable=True)
        assert sorted([value async for value in space.read_all()]) == [("done", 4), *[("job", n) for n in range(3)]]


@on_a_loop
async def test_leases_and_events():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        mine, yours = await one.space("leases"), await other.space("leases")
        registration = await yours.notify(("a", int), hand_back="mine", lease=3600)
        short = await mine.write(("a", 1), lease=0.3)
        long = await mine.write(("a", 2), lease=3600)
        events = aiter(registration)
        first, second = await anext(events), await anext(events)
        assert [first.value, second.value] == [("a", 1), ("a", 2)] and first.hand_back == "mine"
        assert (first.sequence, second.missed) == (1, 0)
        assert short.granted_s == 0.3 and await long.renew(7200) == 7200
        kept = mine._way._machine().kept
        await eventually(lambda: len(kept) == 1)
        with pytest.raises(LeaseEnded, match="has ended"):
            await short.renew(10)
        await long.cancel()
        with pytest.raises(LeaseEnded):
            await long.cancel()
        assert await mine.count() == 0
        await registration.cancel()
        with pytest.raises(LeaseEnded):
            await anext(events)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_events_of_spaces_that_members_hold(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url) as one, pluribus.connect(url) as other:
            mine, yours = await one.space("events", kind=kind), await other.space("events", kind=kind)
            every = await yours.notify(hand_back="all")
            some = await yours.notify(("a", int), "f1 > 1", lease=3600)
            assert (every.granted_s, some.granted_s) == (None, 3600)
            lease = await mine.write(("a", 1), lease=60)
            await lease.renew(120)  # which is no event
            await mine.write(("a", 2))
            await mine.replace(("a", 2), ("a", 3), timeout=60)
            all_events, some_events = aiter(every), aiter(some)
            told = [await anext(all_events) for _ in range(3)]
            assert {event.value for event in told} == {("a", 1), ("a", 2), ("a", 3)} and told[0].hand_back == "all"
            assert [event.sequence for event in told] == [1, 2, 3]
            assert {(await anext(some_events)).value for _ in range(2)} == {("a", 2), ("a", 3)}
            assert await some.renew(60) == 60
            with pytest.raises(BadInput, match="give a number"):
                await some.renew(None)
            with pytest.raises(BadInput, match="joins a transaction"):
                await mine.notify(("a", int), transaction=7)
            await yours.close()  # the registration goes on where it was
            resumed = await mine.resume(some.number)
            await mine.write(("a", 4))
            async for event in resumed:
                if event.value == ("a", 4):
                    break
            await resumed.cancel()
            with pytest.raises(LeaseEnded, match="has ended"):
                await anext(aiter(resumed))
            for over in (resumed.cancel(), resumed.renew(60), mine.resume(some.number), mine.resume(12345)):
                with pytest.raises(LeaseEnded, match="has ended"):
                    await over
            short = await mine.notify(("b", int), lease=0.2)
            with pytest.raises(LeaseEnded, match="has ended"):
                await anext(aiter(short))
            waiting = asyncio.ensure_future(mine.notify(("c", int)))
            await asyncio.sleep(0)
            waiting.cancel()  # nobody has its number: it ends
            await asyncio.gather(waiting, return_exceptions=True)
            await mine.flush()
            known = _registrations_of(mine)
            await eventually(lambda: len(known()) == 1)

    story()


def _registrations_of(space):
    """The names of the registrations that are known to the one member that is left."""
    member = space._way.member
    if space.kind == "views":
        return lambda: set(member.replica.listeners.known)
    return lambda: {name for state in member.server.states.values() for name in state.watches.known}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_leases_and_replacing(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url) as one, pluribus.connect(url) as other:
            mine, yours = await one.space("leases", kind=kind), await other.space("leases", kind=kind)
            long = await mine.write(("a", 1), lease=1e9)
            assert long.granted_s == 365 * 24 * 3_600  # shorter than asked for
            assert await long.renew(3_600) == 3_600
            short = await mine.write(("b", 1), lease=3_600)
            assert await short.renew(0.1) == 0.1
            await mine.flush()
            left = [1, 1] if kind == "views" else [0, 1]
            await eventually(lambda: sorted(one.stats()["tuples"] for one in (mine, yours)) == left)
            with pytest.raises(LeaseEnded, match="has ended"):
                await short.renew(10)
            assert await yours.replace(("a", int), ("c", 2), timeout=60) == ("a", 1)
            assert await mine.take(("c", int), timeout=60) == ("c", 2)
            with pytest.raises(LeaseEnded, match="has ended"):
                await long.cancel()
            again = await yours.write(("d", 1))
            await again.cancel()
            await yours.flush()
            assert await mine.read_if_exists(("d", int)) is None

    story()


@on_a_loop
async def test_a_cancelled_take_leaves_the_tuple():
    async with pluribus.connect(new_bus()) as bus:
        for kind in KINDS:
            space = await bus.space(kind, kind=kind)
            waiting = asyncio.ensure_future(space.take(("x", int)))
            await asyncio.sleep(0.3)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await space.write(("x", 1))
            assert await space.take(("x", int), timeout=30) == ("x", 1)


def tuples_of(member):
    """Of a member of a space that its members make: each with when its lease ends."""
    if hasattr(member, "replica"):
        return list(member.replica.tuples.values())
    return [one for number in member.server.owned() for one in member.server.states[number].tuples.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_take_that_is_cancelled_when_it_got_something_gives_it_back(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url) as one, pluribus.connect(url) as other:
            mine, yours = await one.space("c", kind=kind), await other.space("c", kind=kind)
            await mine.write_many([("x", number) for number in range(4)], lease=3_600)
            await mine.flush()
            for count in range(12):  # somewhere on the way
                taking = asyncio.ensure_future(yours.take_many(("x", int), 4))
                for _ in range(count):
                    await asyncio.sleep(0)
                taking.cancel()
                (found,) = await asyncio.gather(taking, return_exceptions=True)
                if isinstance(found, list):
                    await yours.write_many(found, lease=3_600)
            await yours.flush()
            if kind != "replicated":  # whatever came back still has an end
                tuples = [one for space in (mine, yours) for one in tuples_of(space._way.member)]
                assert len(tuples) >= 4 and all(until for _, until in tuples)
            found = [await mine.take(("x", int), timeout=60) for _ in range(4)]
            assert sorted(found) == [("x", number) for number in range(4)]
            assert await mine.take_if_exists(("x", int)) is None
            # What is replaced is there once, whether the call that replaced it was cancelled or not.
            await mine.write(("y", 0))
            await mine.flush()
            for count in range(12):
                replacing = asyncio.ensure_future(yours.replace(("y", int), ("y", count)))
                for _ in range(count):
                    await asyncio.sleep(0)
                replacing.cancel()
                await asyncio.gather(replacing, return_exceptions=True)
            await yours.flush()
            await mine.take(("y", int), timeout=60)
            assert await mine.take_if_exists(("y", int)) is None

    story()


@on_a_loop
async def test_what_a_cancelled_take_got_keeps_its_lease_and_its_transaction(tmp_path):
    async with pluribus.connect(new_bus(), store=tmp_path / "a.db") as bus:
        space = await bus.space("c", durable=True)
        await space.write(("x", 1), lease=3_600)
        way = space._way
        call, done = way.call, asyncio.Event()

        async def slow(command):
            outcome = await call(command)
            if isinstance(command, words.Take):
                done.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return outcome

        way.call = slow
        taking = asyncio.ensure_future(space.take(("x", int)))
        await done.wait()
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        way.call = call
        await space.flush()
        (kept,) = way._machine().kept.values()
        assert kept.item == item_of(("x", 1)) and kept.until_us
        for commits in (True, False):
            done.clear()
            tx = bus.transaction()
            await tx.__aenter__()
            way.call = slow
            taking = asyncio.ensure_future(space.take(("x", int), transaction=tx))
            await done.wait()
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            way.call = call
            assert await space.count() == 0 and await space.count(("x", int), transaction=tx) == 1
            assert [value async for value in space.read_all(transaction=tx)] == [("x", 1)]
            await (tx.commit() if commits else tx.abort())
            assert [value async for value in space.read_all()] == [("x", 1)]


@on_a_loop
async def test_what_a_cancelled_take_got_is_put_back_when_a_full_space_has_room_again(monkeypatch, caplog):
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("full")
        await space.write(("x", 1))
        way = space._way
        call = way.call

        async def filled(command):
            outcome = await call(command)
            if isinstance(command, words.Take):  # somebody else fills the space before it is back
                await call(words.Write([item_of(("y", 1))]))
                monkeypatch.setattr(machine, "TUPLES_MAX", 1)
                taken.set()
                await asyncio.sleep(0)
            return outcome

        taken = asyncio.Event()
        way.call = filled
        taking = asyncio.ensure_future(space.take(("x", int)))
        await taken.wait()
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        way.call = call
        await eventually(lambda: "are not back yet" in caplog.text)
        assert await space.take(("y", int)) == ("y", 1)
        assert await space.take(("x", int), timeout=30) == ("x", 1)


@on_a_loop
async def test_closing_a_full_space_says_what_did_not_come_back(monkeypatch):
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("full")
        monkeypatch.setattr(machine, "TUPLES_MAX", 0)
        monkeypatch.setattr(replicated, "UNDO_S", 0.2)
        way = space._way
        way._undo(way._put_back(words.Write([item_of(("x", 1))])))
        with pytest.raises(Undelivered, match="are not back"):
            await space.close()


@on_a_loop
async def test_two_spaces_of_one_program_share_its_part(tmp_path):
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        first = await one.space("p", kind="partitioned", copies=2, replica=False)
        second = await one.space("p", kind="partitioned", copies=2)
        third = await other.space("p", kind="partitioned", copies=2)
        await first.write(("x", 1))
        await first.close()
        assert await second.take(("x", int), timeout=60) == ("x", 1)
        await second.write(("x", 2))
        with pytest.raises(BadInput, match="copies=2, key=0, not copies=1, key=0"):
            await one.space("p", kind="partitioned")
        await second.close()
        assert await third.take(("x", int), timeout=60) == ("x", 2)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_space_that_was_left_in_a_hurry_is_opened_again_as_another_worker(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url) as one, pluribus.connect(url) as other:
            copies = 2 if kind == "partitioned" else 1
            space = await one.space("p", kind=kind, copies=copies)
            inside = await other.space("p", kind=kind, copies=copies)
            await inside.write(("x", 1))
            await inside.flush()
            epoch = space._way._roster.machine.epoch
            await space._way.leave()  # its entry is in the roster still
            again = (await one.space("p", kind=kind, copies=copies))._way
            assert again._is_another(epoch) and not again._is_another(again.member.epoch)
            again.member.epoch, entered = None, again.member.epoch
            again._roster.machine.epoch, now = epoch, again._roster.machine.epoch
            again._follow()
            assert again.member.epoch is None, "it is not that worker"
            again.member.epoch, again._roster.machine.epoch = entered, now
            await inside.write(("x", 2))
            assert await inside.take(("x", 2), timeout=60) == ("x", 2)
            assert not any(task.done() for task in again._tasks)

    story()


@pytest.mark.parametrize("kind", KINDS[1:])
@on_a_loop
async def test_an_answer_in_the_very_next_turn_of_the_loop_finds_its_caller(kind):
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("jobs", kind=kind)
        (way,) = bus.style(Spaces)._crews.values()
        for number in range(3):
            # The task that drives the protocol is awake: it answers its own words before the caller's next step.
            way._woken.set()
            await space.write_many([("job", number), ("job", number)])
        way._woken.set()
        assert await space.read(("job", int)) == ("job", 0)
        way._woken.set()
        assert await space.count() == 6


@on_a_loop
async def test_durable_spaces_are_listed_after_a_restart(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, store=tmp_path / "kept.db") as bus:
        await bus.space("jobs", durable=True)
        await bus.space("loose")
    async with pluribus.connect(url, store=tmp_path / "kept.db") as bus:
        assert [(one.name, one.durable) for one in await bus.spaces()] == [("jobs", True)]


@on_a_loop
async def test_of_two_that_open_a_space_as_different_kinds_one_is_refused():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        opening = one.space("a", kind="views"), other.space("a", kind="partitioned")
        found = await asyncio.gather(*opening, return_exceptions=True)
        assert sorted(isinstance(each, BadInput) for each in found) == [False, True], found


@on_a_loop
async def test_takes_are_served_in_their_order():
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("order")
        waiting = []
        for number in range(5):
            waiting.append(asyncio.ensure_future(space.take(("x", int))))
            await eventually(lambda number=number: space.stats()["waiting"] > number)
        for number in range(5):
            await space.write(("x", number))
        assert [await one for one in waiting] == [("x", number) for number in range(5)]


@on_a_loop
async def test_bad_input():
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("bad")
        views = await bus.space("views", kind="views")
        partitioned = await bus.space("partitioned", kind="partitioned")
        for call, error, says in (
            (lambda: space.write((object(),)), BadBody, "cannot travel"),
            (lambda: space.take(()), BadInput, "no fields"),
            (lambda: space.write(("a",), lease=-1), BadInput, "cannot be granted"),
            (lambda: space.take_many(("a",), 0), BadInput, "from 1 to"),
            (lambda: bus.space("x", kind="central"), BadInput, "no kind 'central'"),
            (
                lambda: bus.space("x", kind="views", durable=True),
                BadInput,
                "only a space of kind 'replicated' is durable",
            ),
            (lambda: bus.space("bad", kind="partitioned"), BadInput, "is of kind 'replicated'"),
            (lambda: bus.space("x", copies=2), BadInput, "of the kind 'partitioned'"),
            (lambda: bus.space("x", kind="views", key=1), BadInput, "of the kind 'partitioned'"),
            (lambda: bus.space("x", replica=False), BadInput, "leave it out"),
            (lambda: bus.space("x", kind="partitioned", copies=17), BadInput, "1 to 16 copies"),
            (lambda: space.read(("a",), stale=True, transaction=5), BadInput, "leave one of them out"),
            (lambda: partitioned.read(("a",), stale=True), BadInput, "has none of"),
            (lambda: partitioned.count(transaction=5), BadInput, "joins a transaction"),
            (lambda: space.count(transaction=5), pluribus.errors.TransactionEnded, "has ended"),
            (lambda: views.resume(1 << 127), BadInput, "is no number of a registration"),
            (lambda: views.write(("a",), transaction=1), BadInput, "joins a transaction"),
            (lambda: space.take(("a",), transaction=5), pluribus.errors.TransactionEnded, "has ended"),
        ):
            with pytest.raises(error, match=says):
                await call()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_outside_the_primary_calls_wait(kind, monkeypatch):
    @on_a_loop
    async def story():
        async with pluribus.connect(new_bus()) as bus:
            space = await bus.space("cut", kind=kind)
            await space.write_many([("x", 1), ("z", 1)])
            await space.flush()
            monkeypatch.setattr(type(bus), "primary", property(lambda self: False))
            calls = [space.read(("z", int)), space.take(("x", int)), space.count(), space.read_if_exists(("z", int))]
            waiting = [asyncio.ensure_future(call) for call in calls]
            with pytest.raises(TimeoutError, match="nothing in 'cut' matched"):
                await space.take(("x", int), timeout=0.2)
            written = asyncio.ensure_future(space.write(("y", 1)))
            await asyncio.sleep(0.2)
            assert not any(one.done() for one in waiting) and written.done() == (kind == "views")
            if kind == "views":
                assert await space.read(("x", int), stale=True) == ("x", 1)
            monkeypatch.undo()
            await written
            read, taken, count, found = await asyncio.gather(*waiting)
            assert (read, taken, found) == (("z", 1), ("x", 1), ("z", 1)) and count in (1, 2, 3)
            assert await space.take(("y", int), timeout=30) == ("y", 1)

    story()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_nobody_waits_for_ever_if_the_protocol_fails(kind):
    @on_a_loop
    async def story():
        async with pluribus.connect(new_bus()) as bus:
            space = await bus.space("broken", kind=kind)
            waiting = asyncio.ensure_future(space.take(("x", int)))
            await asyncio.sleep(0)

            def broken(now):
                raise KeyError("a mistake")

            space._way.member.tick = broken
            with pytest.raises(Closed, match="open it again"):
                await waiting

    story()
