"""Consumer groups on durable topics, from members, clients and without ``await``."""

import asyncio

import pytest

import pluribus
import pluribus.sync
from pluribus.core.errors import BadInput, LeaseEnded, Refused
from pluribus.runtime.styles.topics import shared
from tests.harness import eventually, new_bus, on_a_loop

PATIENCE_S = 60.0


async def fail(subscription):
    """Handle events until one of them is 0."""
    async with subscription as events:
        async for event in events:
            1 / event.body


@on_a_loop
async def test_members_share_the_events_and_each_goes_to_one():
    async with pluribus.connect(new_bus(), store=":memory:", serve="127.0.0.1:0") as bus:
        await bus.publish("jobs/0", 0, durable=True)
        client = pluribus.connect(f"client://127.0.0.1:{bus.doors[0].address[1]}/{bus.url.bus}")
        options = {"durable": "workers", "shared": True, "start": "earliest", "ahead": 4}
        async with client as far, bus.subscribe("jobs/+", **options) as one, far.subscribe("jobs/+", **options) as two:
            await bus.publish_many([(f"jobs/{n % 3}", n) for n in range(1, 200)], durable=True)
            got = {one: [], two: []}

            async def handle(events):
                async for event in events:
                    got[events].append(event.body)

            tasks = [asyncio.create_task(handle(events)) for events in (one, two)]
            async with asyncio.timeout(PATIENCE_S):
                while sum(map(len, got.values())) < 200:  # noqa: ASYNC110 - two tasks count
                    await asyncio.sleep(0.01)
            assert sorted(got[one] + got[two]) == list(range(200))
            assert got[one] and got[two]
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        (group,) = await bus.durable.groups()
        assert (group.name, group.members, group.behind) == ("workers", 0, 0)


@on_a_loop
async def test_what_a_dead_member_held_comes_to_another_one(monkeypatch):
    monkeypatch.setattr(shared, "LEASE_S", 0.5)
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("jobs", n) for n in range(6)], durable=True)
        first = bus.subscribe("jobs", durable="w", shared=True, start="earliest", ahead=3, commit="manual")
        await first.open()
        held = [await first.receive(PATIENCE_S) for _ in range(3)]
        await first.commit(held[1])
        first.abandon()
        async with bus.subscribe("jobs", durable="w", shared=True, ahead=3) as second:
            got = [await second.receive(PATIENCE_S) for _ in range(5)]
        assert sorted(event.body for event in got) == [0, 2, 3, 4, 5]
        assert {event.body for event in got if event.again} == {0, 2, 3}


@on_a_loop
async def test_a_member_whose_lease_ended_is_told_when_it_settles_and_handles_nothing_that_is_anothers(monkeypatch):
    monkeypatch.setattr(shared, "LEASE_S", 0.5)
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("jobs", n) for n in range(4)], durable=True)
        async with bus.subscribe("jobs", durable="w", shared=True, start="earliest", commit="manual") as slow:
            event = await slow.receive(PATIENCE_S)
            slow._listening.cancel()  # it does not ask any more, so its lease ends
            async with bus.subscribe("jobs", durable="w", shared=True, commit="manual") as other:
                got = [await other.receive(PATIENCE_S) for _ in range(4)]
                assert [one.body for one in got] == [0, 1, 2, 3]
                with pytest.raises(LeaseEnded, match="goes to another member"):
                    await slow.commit(event)
                with pytest.raises(TimeoutError):  # what it had fetched was taken from it
                    await slow.receive(0.05)
                await other.commit()
                assert (await other.standing()).positions[0].settled == 4


@on_a_loop
async def test_events_of_one_key_come_one_after_another():
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        for n in range(6):
            await bus.publish("jobs", n, durable=True, key="even" if n % 2 == 0 else "odd")
        options = {"durable": "w", "shared": True, "start": "earliest", "commit": "manual"}
        async with bus.subscribe("jobs", **options) as one, bus.subscribe("jobs", **options) as two:
            for due in range(3):
                got = [await one.receive(PATIENCE_S), await one.receive(PATIENCE_S)]
                assert sorted(event.body for event in got) == [2 * due, 2 * due + 1]
                assert {event.headers["key"] for event in got} == {"even", "odd"}
                if due == 0:
                    await two.close()
                await one.commit(got[1])
                await one.commit(got[0])


@on_a_loop
async def test_an_event_that_fails_too_often_is_a_dead_letter_until_it_is_redriven():
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("jobs", n) for n in range(3)], durable=True)
        options = {"durable": "w", "shared": True, "start": "earliest", "tries": 2}
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await fail(bus.subscribe("jobs", **options))
        async with bus.subscribe("jobs", **options) as events:
            assert [(await events.receive(PATIENCE_S)).body for _ in range(2)] == [1, 2]
            (dead,) = await events.dead()
            assert (dead.topic, dead.offset, dead.tries) == ("jobs", 0, 2)
            assert dead.reason.startswith("ZeroDivisionError")
            assert await events.redrive() == 1
            assert (await events.receive(PATIENCE_S)).body == 0


@on_a_loop
async def test_a_filter_a_type_and_later_topics():
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish("a/1", {"n": 1}, durable=True)
        async with bus.subscribe("a/#", "n > 1", durable="w", shared=True) as events:
            await bus.publish_many([("a/1", {"n": n}) for n in (1, 2, 3)], durable=True)
            await bus.publish("a/2", {"n": 9}, durable=True)
            got = [await events.receive(PATIENCE_S) for _ in range(3)]
            assert sorted(event.body["n"] for event in got) == [2, 3, 9]
        async with bus.subscribe("a/#", "n > 1", durable="w", shared=True) as events:
            await bus.publish("a/2", {"n": 10}, durable=True)
            assert (await events.receive(PATIENCE_S)).body == {"n": 10}


@on_a_loop
async def test_events_that_retention_removed_are_passed_over():
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("jobs", n) for n in range(5)], durable=True)
        async with bus.subscribe("jobs", durable="w", shared=True, start="earliest", ahead=1) as events:
            assert (await events.receive(PATIENCE_S)).body == 0
            await bus.durable.do(pluribus.pubsub.durable.commands.Forget("jobs", 4))
            assert (await events.receive(PATIENCE_S)).body == 4
            await bus.publish("jobs", 5, durable=True)
            assert (await events.receive(PATIENCE_S)).body == 5


@on_a_loop
async def test_what_cannot_be_shared_is_said():
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        with pytest.raises(BadInput, match="give durable=NAME"):
            bus.subscribe("jobs", shared=True)
        with pytest.raises(BadInput, match="shared= is for live events"):
            bus.subscribe("jobs", durable="w", shared="name")
        with pytest.raises(BadInput, match="tries=-1"):
            bus.subscribe("jobs", durable="w", shared=True, tries=-1)
        with pytest.raises(BadInput, match="ahead=0"):
            bus.subscribe("jobs", durable="w", shared=True, ahead=0)
        async with bus.subscribe("jobs", durable="w", shared=True):
            other = bus.subscribe("others", durable="w", shared=True)
            with pytest.raises(Refused, match="the group was made for jobs"):
                await other.open()


@on_a_loop
async def test_a_member_follows_its_keepers_through_a_restart(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="a") as bus:
        async with pluribus.connect(url, name="k", store=tmp_path / "k.db") as keeper:
            await keeper.publish("jobs", 0, durable=True)
            events = bus.subscribe("jobs", durable="w", shared=True, start="earliest", commit="manual")
            await events.open()
            assert (await events.receive(PATIENCE_S)).body == 0
            await events.commit()
        async with pluribus.connect(url, name="k", store=tmp_path / "k.db") as keeper:
            await keeper.publish("jobs", 1, durable=True)
            assert (await events.receive(PATIENCE_S)).body == 1
            await events.commit()
            await events.close()
            await eventually(lambda: not keeper.keeping.keeper.desk.groups._machines()[0][2].demands.consumers)


def test_without_await():
    with pluribus.sync.connect(new_bus(), store=":memory:") as bus:
        bus.publish("jobs", 1, durable=True, key="k")
        with bus.subscribe("jobs", durable="w", shared=True, start="earliest") as events:
            assert events.receive(PATIENCE_S).body == 1
            assert events.dead() == []


@on_a_loop
async def test_who_is_taken_over_is_told_before_it_handles_what_it_had_fetched():
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("t", n) for n in range(5)], durable=True)
        async with bus.subscribe("t", durable="one", start="earliest") as first:
            assert (await first.receive(PATIENCE_S)).body == 0  # four more were fetched with it
            async with bus.subscribe("t", durable="one") as second:
                assert (await second.receive(PATIENCE_S)).body == 0
                await eventually(lambda: first._refused is not None)
                with pytest.raises(Refused, match="another consumer took over the subscription 'one'"):
                    await first.receive(PATIENCE_S)
                assert [(await second.receive(PATIENCE_S)).body for _ in range(4)] == [1, 2, 3, 4]


@on_a_loop
async def test_who_waits_for_events_is_told_at_once_that_it_was_taken_over():
    async with pluribus.connect(new_bus(), store=":memory:") as bus, bus.subscribe("t", durable="one") as first:
        waiting = asyncio.create_task(first.receive())
        async with bus.subscribe("t", durable="one"):
            with pytest.raises(Refused, match="took over"):
                async with asyncio.timeout(PATIENCE_S):
                    await waiting


@on_a_loop
async def test_a_group_is_removed_when_it_has_no_members_and_begins_anew():
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("jobs", n) for n in range(3)], durable=True)
        options = {"durable": "w", "shared": True, "start": "earliest"}
        async with bus.subscribe("jobs", **options) as events:
            assert (await events.receive(PATIENCE_S)).body == 0
            with pytest.raises(Refused, match="1 members read in the group 'w': close them first"):
                await bus.durable.remove_group("w")
        await bus.durable.remove_group("w")
        assert await bus.durable.groups() == []
        with pytest.raises(BadInput, match="there is no consumer group 'w': there are none"):
            await bus.durable.remove_group("w")
        async with bus.subscribe("jobs", **options) as events:
            assert [(await events.receive(PATIENCE_S)).body for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("way", ["member", "client"])
@on_a_loop
async def test_many_events_are_published_with_a_key_each(way):
    async with pluribus.connect(new_bus(), store=":memory:", serve="127.0.0.1:0") as bus:
        url = f"client://127.0.0.1:{bus.doors[0].address[1]}/{bus.url.bus}"
        async with pluribus.connect(url) as client, bus.subscribe("jobs") as live:
            publisher = bus if way == "member" else client
            events, keys = [("jobs", n) for n in range(4)], ["a", None, "b", "a"]
            await publisher.publish_many(events, durable=True, key=keys)
            await publisher.publish_many(events, key="all", headers={"x": 1})
            kept = (await bus.log("jobs").read()).events()
            assert [event.headers.get("key") for event in kept] == keys
            heard = [await live.receive(PATIENCE_S) for _ in range(8)]
            assert [event.headers.get("key") for event in heard] == [*keys, *["all"] * 4]
            assert heard[4].headers["x"] == 1
            with pytest.raises(BadInput, match="1 keys for 4 events"):
                await publisher.publish_many(events, durable=True, key=["a"])
            with pytest.raises(BadInput, match="numbers begin with 1"):
                await publisher.publish("jobs", 1, durable=True, id=(7, 0))


@on_a_loop
async def test_a_member_whose_closing_is_given_up_while_no_keeper_answers_leaves_the_group(monkeypatch):
    monkeypatch.setattr(shared, "LEASE_S", 0.5)
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("jobs", n) for n in range(6)], durable=True)
        first = bus.subscribe("jobs", durable="w", shared=True, start="earliest")
        await first.receive(PATIENCE_S)
        await first.receive(PATIENCE_S)  # which settles the one before
        monkeypatch.setattr(first._line, "call", lambda *_: asyncio.sleep(3_600))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await first.close()
        assert first.closed
        async with bus.subscribe("jobs", durable="w", shared=True) as second:
            got = set()
            while not got >= {1, 2, 3, 4, 5}:  # 0 may be settled
                got.add((await second.receive(PATIENCE_S)).body)


@on_a_loop
async def test_a_subscriber_with_a_name_whose_closing_is_given_up_reads_no_more(monkeypatch):
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        await bus.publish_many([("jobs", n) for n in range(6)], durable=True)
        first = bus.subscribe("jobs", durable="desk", start="earliest")
        for _ in range(3):
            await first.receive(PATIENCE_S)
        monkeypatch.setattr(first, "_commit_now", lambda: asyncio.sleep(3_600))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await first.close()
        assert first.closed
