"""Promises of the page on spaces that are easily forgotten: what is told of losses, own copies, and limits."""

import asyncio
import sys

import pytest

import pluribus
from pluribus.core.errors import BadInput, Closed, Overflow, TooLarge
from pluribus.spaces.partitioned.words import Sought
from pluribus.spaces.values import item_of, written_of
from tests.harness import eventually, new_bus, on_a_loop


@on_a_loop
async def test_a_stale_read_is_answered_from_the_own_copy_and_asks_nobody(monkeypatch):
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        mine, yours = await one.space("copy"), await other.space("copy")
        await mine.write(("x", 1))
        assert await yours.read(("x", int), timeout=60) == ("x", 1)
        monkeypatch.setattr(yours._way.line, "inspect", None)
        assert await yours.read(("x", int), stale=True) == ("x", 1)
        assert await yours.read_if_exists(("y", int), stale=True) is None


@on_a_loop
async def test_who_keeps_the_only_copy_and_dies_takes_it_along_and_all_others_are_told():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as two, pluribus.connect(url) as three:
        spaces = [await bus.space("p", kind="partitioned") for bus in (one, two, three)]
        told = [[] for _ in spaces]
        for space, lost in zip(spaces, told, strict=True):
            space.on_lost(lost.append)
        await spaces[0].write_many([(f"name {number}", number) for number in range(60)])
        there = spaces[2].stats()["tuples"]
        assert 0 < there < 60
        owned = spaces[2]._way.member.server.owned()
        for space in spaces[:2]:  # once in a while the others are told how many there are
            known = space._way.member.server.moving._counts
            await eventually(lambda known=known: sum(known.get(number, 0) for number in owned) == there)
        await spaces[2]._way.leave()  # in a hurry: it hands nothing over
        await eventually(lambda: told[0] and told[1], "nobody was told", 60)
        assert told[0] == told[1] and sum(told[0][0].values()) == there
        assert await spaces[1].count() == 60 - there


@on_a_loop
async def test_if_no_replica_is_left_the_space_is_empty_and_who_is_left_is_told():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as two:
        kept = await one.space("v", kind="views")
        worker = await two.space("v", kind="views", replica=False)
        told = []
        worker.on_lost(told.append)
        await worker.write(("x", 1))
        await worker.flush()
        await kept._way.leave()
        await eventually(lambda: told == [{}], "nobody was told", 60)
        again = await one.space("v", kind="views")
        await worker.write(("x", 2))
        assert await again.take(("x", int), timeout=60) == ("x", 2)


@on_a_loop
async def test_who_must_give_up_a_taken_tuple_is_told_and_other_kinds_have_no_such_thing():
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("v", kind="views")
        told = []
        space.on_void(told.append)
        space._way.member.void.append(item_of(("x", 1)))
        await space.write(("y", 1))
        await eventually(lambda: told == [("x", 1)])
        for kind, names in (("replicated", ("on_void", "on_lost")), ("partitioned", ("on_void",))):
            other = await bus.space(kind, kind=kind)
            for name in names if kind == "replicated" else ():
                with pytest.raises(BadInput, match=f"has no {name}"):
                    getattr(other, name)(told.append)


@pytest.mark.parametrize("kind", ["replicated", "views", "partitioned"])
def test_limits_are_told_with_the_remedy(kind):
    @on_a_loop
    async def story():
        async with pluribus.connect(new_bus()) as bus:
            space = await bus.space("limits", kind=kind)
            await space.write(tuple(range(255)))
            with pytest.raises(TooLarge, match="put some together"):
                await space.write(tuple(range(256)))
            with pytest.raises(TooLarge, match="write its name"):
                await space.write(("x", b"x" * (1 << 20)))
            await space.write(("x", b"x" * 1_000_000))
            assert await space.count(("x", bytes)) == 1 or kind == "views"
            found = await asyncio.wait_for(space.take(("x", bytes)), 60)
            assert len(found[1]) == 1_000_000

    story()


@on_a_loop
async def test_who_opens_a_space_of_the_kind_views_counts_and_lists_what_is_there():
    """And what it has written itself. ``read_all`` and ``count`` wait until the own replica has all that."""
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as two:
        first = await one.space("v", kind="views")
        await first.write_many([("x", number) for number in range(5)])
        assert await first.count(("x", int)) == 5
        await first.flush()
        second = await two.space("v", kind="views")
        assert await second.count() == 5
        assert [value async for value in second.read_all()] == [("x", number) for number in range(5)]


@pytest.mark.parametrize("kind", ["views", "partitioned"])
def test_a_listener_that_fails_is_no_end_of_the_space(kind, caplog):
    @on_a_loop
    async def story():
        async with pluribus.connect(new_bus()) as bus:
            space = await bus.space("failing", kind=kind)
            told = []
            space.on_lost(lambda ranges: ranges["nothing"])
            space.on_lost(told.append)
            if kind == "views":
                space._way.member.lost += 1
            else:
                space._way.member.lost.append({3: 1})
            await space.write(("x", 1))
            await eventually(lambda: told == [{} if kind == "views" else {3: 1}])
            assert await space.take(("x", int), timeout=60) == ("x", 1)
            assert "a listener of the space 'failing' failed on" in caplog.text

    story()


@pytest.mark.parametrize("kind", ["views", "partitioned"])
def test_of_many_writes_all_are_done_or_none_and_what_a_cancelled_take_got_comes_back(kind, monkeypatch):
    @on_a_loop
    async def story():
        async with pluribus.connect(new_bus()) as bus:
            space = await bus.space("full", kind=kind)
            member = space._way.member
            await space.write(("ready",))
            await space.flush()
            limit = "OPS_MAX" if kind == "views" else "REQUESTS_MAX"
            monkeypatch.setattr(sys.modules[type(member).__module__], limit, 3)
            writing = [asyncio.ensure_future(space.write_many([("x", 1), ("x", 2)])) for _ in range(3)]
            done = await asyncio.gather(*writing, return_exceptions=True)
            assert [isinstance(one, Overflow) for one in done] == [False, False, True]
            await space.flush()
            assert await space.count(("x", int)) == 4
            monkeypatch.setattr(sys.modules[type(member).__module__], limit, 0)
            space._way.put_back([(item_of(("y", 1)), 0)])
            await space.flush()
            monkeypatch.undo()
            assert await space.take(("y", int), timeout=60) == ("y", 1)

    story()


@on_a_loop
async def test_a_read_of_a_partitioned_space_ends_with_its_time_although_nobody_answers(monkeypatch):
    async with pluribus.connect(new_bus()) as bus:
        space = await bus.space("mute", kind="partitioned")
        await space.write(("y", 1))
        monkeypatch.setattr(space._way.member.server, "seek", lambda sender, word, now: None)
        with pytest.raises(TimeoutError, match="nothing in 'mute' matched"):
            await asyncio.wait_for(space.read(("y", int), timeout=0.1), 30)
        monkeypatch.undo()
        assert await space.read(("y", int), timeout=30) == ("y", 1)


@pytest.mark.parametrize("take", ["cancelled", "waiting", "of many"])
def test_closing_waits_for_what_a_take_gets_that_nobody_waits_for(take, monkeypatch):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url) as one, pluribus.connect(url) as two:
            kept = await one.space("p", kind="partitioned")
            worker = await two.space("p", kind="partitioned", replica=False)
            await kept.write(("x", 1))
            await worker.write(("y", 1))
            server = kept._way.member.server
            send = server.send

            def late(member, word):
                wait_s = 0.5 if isinstance(word, Sought) and (take != "of many" or word.item is None) else 0.0
                asyncio.get_running_loop().call_later(wait_s, lambda: (send(member, word), kept._way._woken.set()))

            monkeypatch.setattr(server, "send", late)
            taking = asyncio.ensure_future(worker.take_many(("x", int), 5 if take == "of many" else 1))
            await eventually(
                lambda: server.states and not any(("x", 1) in values(one) for one in server.states.values())
            )
            if take == "cancelled":
                taking.cancel()
                await asyncio.wait({taking})
            await worker.close()
            monkeypatch.undo()
            if take != "cancelled":
                with pytest.raises(Closed, match="open it again"):
                    await taking
            assert await kept.take(("x", int), timeout=60) == ("x", 1)

    def values(state):
        return [written_of(item) for item, _ in state.tuples.values()]

    story()


@pytest.mark.parametrize("kind", ["replicated", "views", "partitioned"])
def test_a_take_that_waits_when_its_space_is_closed_stands_in_line_no_more(kind):
    @on_a_loop
    async def story():
        url = new_bus()
        async with pluribus.connect(url) as one, pluribus.connect(url) as two:
            mine, yours = await one.space("line", kind=kind), await two.space("line", kind=kind)
            await mine.write(("ready",))
            assert await yours.take(("ready",), timeout=60) == ("ready",)
            waiting = [asyncio.ensure_future(mine.take(("x", int))) for _ in range(2)]
            if kind == "replicated":
                await eventually(lambda: yours.stats()["waiting"] == 2)
            await mine.close()
            for one_of_them in waiting:
                with pytest.raises(Closed, match="open it again"):
                    await one_of_them
            await yours.write(("x", 1))
            assert await yours.take(("x", int), timeout=60) == ("x", 1)

    story()
