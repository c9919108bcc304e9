"""Durable topics on a bus: a keeper in the process, keepers elsewhere, publishers and subscribers that come and go."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest

import pluribus
from pluribus.core.errors import (
    BadFilter,
    BadInput,
    BadTopic,
    Closed,
    NoMembers,
    Overflow,
    Refused,
    TooLarge,
    Uncertain,
)
from pluribus.pubsub.durable import commands
from pluribus.pubsub.durable.commands import DONE, REFUSED, Outcome
from pluribus.pubsub.durable.requests import Find, Follow
from pluribus.runtime.group import member_line
from pluribus.runtime.styles.topics.publisher import Publisher
from pluribus.wire.bodies import BYTES


class Tick(msgspec.Struct):
    name: str
    price: float


pluribus.register(Tick, "tests.durable.Tick")


@pytest.fixture
def store(tmp_path):
    return tmp_path / "kept.db"


def connect(bus, **options):
    return pluribus.connect(f"inproc://{bus}", **options)


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


def test_what_was_published_is_there_after_a_restart(store):
    async def first():
        async with connect("restart", store=store) as bus:
            ids = await bus.durable.publish_many([("a/b", b"%d" % n) for n in range(100)])
            assert ids == [(ids[0][0], n) for n in range(1, 101)]
            assert await bus.log("a/b").offsets() == (0, 100)

    async def second():
        async with connect("restart", store=store) as bus:
            found = await bus.log("a/b").read()
            assert [event.body for event in found.events()] == [b"%d" % n for n in range(100)]
            assert found.next == 100
            await bus.durable.publish("a/b", "text")
            assert (await bus.log("a/b").read(99)).events()[-1].body == "text"

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.parametrize("where", [None, "name = 'none'"])
def test_who_reads_all_the_time_lets_others_have_their_turns(store, where):
    async def scenario():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async with connect("turns", store=store) as bus:
            await bus.durable.publish_many([("a", bytes(1_000))] * 500)
            log, task = bus.log("a"), asyncio.create_task(other())
            await asyncio.sleep(0)
            before = turns
            for _ in range(20):
                await log.read(0, 500, where=where)
            assert turns - before >= 8
            task.cancel()

    asyncio.run(scenario())


def test_events_keep_what_was_published_with_them(store):
    async def scenario():
        async with connect("envelope", store=store) as bus:
            first = await bus.durable.publish("t", Tick("ibm", 5.0), headers={"from": "desk"})
            second = await bus.durable.publish("t", Tick("ibm", 6.0), parent=first)
            events = (await bus.log("t").read()).events()
            assert [event.body for event in events] == [Tick("ibm", 5.0), Tick("ibm", 6.0)]
            assert [event.id for event in events] == [first, second]
            assert [event.offset for event in events] == [0, 1]
            assert events[0].headers == {"from": "desk"} and events[1].headers == {}
            assert events[0].parent is None and events[1].parent == first
            assert all(event.sender == bus.me and event.topic == "t" for event in events)
            assert abs(events[0].time - datetime.now(UTC).timestamp()) < 60

    asyncio.run(scenario())


def test_the_keeper_filters_and_leaves_columns_out(store):
    async def scenario():
        async with connect("filters", store=store) as bus:
            await bus.durable.publish_many([("t", Tick("ibm", float(n))) for n in range(1_000)])
            found = await bus.log("t").read(where="price >= 990 AND price <> 995")
            assert [event.offset for event in found.events()] == [*range(990, 995), *range(996, 1_000)]
            assert found.next == 1_000
            bare = await bus.log("t").read(5, 8, columns=["time"])
            assert [int(batch.head.bodies_bytes) for batch in bare] == [0] * len(bare)
            assert [int(offset) for batch in bare for offset in batch.offsets] == [5, 6, 7]
            with pytest.raises(BadFilter, match="price"):
                await bus.log("t").read(where="price > ")

    asyncio.run(scenario())


def test_a_subscription_goes_on_where_it_was(store):
    async def scenario():
        async with connect("goes-on", store=store) as bus:
            await bus.durable.publish_many([("a/x", n) for n in range(50)])
            async with bus.durable.subscribe("a/+", name="desk", start="earliest") as events:
                first = [(await events.receive(5)).body for _ in range(20)]
            await bus.durable.publish_many([("a/y", n) for n in range(100, 105)])
            async with bus.durable.subscribe("a/+", name="desk", start="earliest") as events:
                rest = [(await events.receive(5)).body for _ in range(35)]
                with pytest.raises(TimeoutError):
                    await events.receive(0.05)
                await bus.durable.publish("a/x", "late")
                assert (await events.receive(5)).body == "late"
            assert first == list(range(20))
            assert sorted(rest) == [*range(20, 50), *range(100, 105)]

    asyncio.run(scenario())


def test_what_was_not_handled_comes_again(store):
    async def scenario():
        async with connect("again", store=store) as bus:
            await bus.durable.publish_many([("t", n) for n in range(5)])

            async def fail():
                async with bus.durable.subscribe("t", name="desk", start="earliest") as events:
                    async for event in events:
                        1 / (3 - event.body)

            with pytest.raises(ZeroDivisionError):
                await fail()
            async with bus.durable.subscribe("t", name="desk") as events:
                assert (await events.receive(5)).body == 3

    asyncio.run(scenario())


def test_a_second_subscriber_of_a_name_takes_over(store):
    async def scenario():
        async with connect("takes-over", store=store) as bus:
            await bus.durable.publish_many([("t", n) for n in range(5)])
            first = bus.durable.subscribe("t", name="desk", start="earliest", commit="manual")
            event = await first.receive(5)
            second = bus.durable.subscribe("t", name="desk", start="earliest", commit="manual")
            assert (await second.receive(5)).body == 0
            with pytest.raises(Refused, match="another consumer took over"):
                await first.commit(event)
            await second.commit()
            third = bus.durable.subscribe("t", name="desk")
            assert (await third.receive(5)).body == 1

    asyncio.run(scenario())


def test_starts_by_offset_and_by_time(store):
    async def scenario():
        async with connect("starts", store=store) as bus:
            await bus.durable.publish_many([("t", n) for n in range(5)])
            moment = (await bus.log("t").read()).events()[-1].time + 0.001
            await asyncio.sleep(0.01)
            await bus.durable.publish("t", "later")
            for start, wanted in ((2, 2), (moment, "later"), (datetime.fromtimestamp(moment, UTC), "later")):
                async with bus.durable.subscribe("t", name=f"desk {start}", start=start) as events:
                    assert (await events.receive(5)).body == wanted
                async with bus.durable.subscribe("t", start=start) as replay:
                    assert (await replay.receive(5)).body == wanted
            assert await bus.log("t").offset_at(moment) == 5

    asyncio.run(scenario())


def test_a_mailbox_keeps_what_its_owner_did_not_acknowledge(store):
    async def scenario():
        async with connect("mailbox", store=store) as bus:
            async with bus.mailbox("ann", topics="alarms/#"):
                pass
            await bus.durable.publish("alarms/fire", "smoke")
            await bus.mailbox("ann").post("a letter")
            async with bus.mailbox("ann", topics="alarms/#") as box:
                got = [await box.receive(5), await box.receive(5)]
                assert sorted(event.body for event in got) == ["a letter", "smoke"]
                await box.acknowledge(next(event for event in got if event.body == "smoke"))
            async with bus.mailbox("ann", topics="alarms/#") as box:
                assert (await box.receive(5)).body == "a letter"
                with pytest.raises(TimeoutError):
                    await box.receive(0.05)

    asyncio.run(scenario())


def test_removed_offsets_bad_topics_and_events_over_the_limit_are_refused(store):
    async def scenario():
        async with connect("refused", store=store) as bus:
            await bus.durable.publish_many([("t", n) for n in range(5)])
            await bus.durable.do(pluribus.pubsub.durable.commands.Forget("t", 3))
            with pytest.raises(BadInput, match="offset 1 of 't' was removed by retention: the first that is kept is 3"):
                await bus.log("t").read(1)
            with pytest.raises(BadInput, match="a level is empty"):
                await bus.durable.publish("a//b", 1)
            with pytest.raises(BadInput, match="under one topic"):
                await bus.durable.publish("a/#", 1)
            with pytest.raises(TooLarge, match="the limit is"):
                await bus.durable.publish("t", bytes(4 << 20))
            assert (await bus.durable.publish("t", 9))[1] > 0

    asyncio.run(scenario())


def test_publishing_again_with_the_id_is_harmless(store):
    async def scenario():
        async with connect("ids", store=store) as bus:
            id = await bus.durable.publish("t", 1)
            assert await bus.durable.publish("t", 1, id=id) == id
            assert await bus.durable.publish("t", 2, id=(77, 1)) == (77, 1)
            assert await bus.durable.publish("t", 2, id=(77, 1)) == (77, 1)
            with pytest.raises(Refused, match="sequence 2 of this publisher is next"):
                await bus.durable.publish("t", 4, id=(77, 3))
            assert [event.body for event in (await bus.log("t").read()).events()] == [1, 2]

    asyncio.run(scenario())


def test_who_gives_up_waiting_takes_nothing_from_others(store):
    async def scenario():
        async with connect("waiting", store=store) as bus:
            await bus.durable.publish("t", 0)
            impatient, patient = (asyncio.create_task(bus.durable.publish("t", n)) for n in (1, 2))
            await asyncio.sleep(0)
            impatient.cancel()
            assert await patient == (patient.result()[0], 3)
            with pytest.raises(asyncio.CancelledError):
                await impatient
            assert [event.body for event in (await bus.log("t").read()).events()] == [0, 1, 2]

    asyncio.run(scenario())


def test_what_the_own_keeper_refuses_is_said_and_the_next_session_goes_on(store, monkeypatch):
    async def scenario():
        async with connect("refusing", store=store) as bus:
            await bus.durable.publish("t", 0)
            keeper = bus.keeping.keeper.keeper

            def refuse(commands, done, machine=0):
                raise BadInput("not these")

            with monkeypatch.context() as patch:
                patch.setattr(keeper, "submit_many", refuse)
                with pytest.raises(BadInput, match="not these"):
                    await bus.durable.publish("t", 1)
            attempts = []

            def fail_twice(commands, done, machine=0, submit=keeper.submit_many):
                attempts.append(commands)
                if len(attempts) <= 2:
                    done(-1, Uncertain("perhaps, perhaps not"))
                else:
                    submit(commands, done, machine)

            monkeypatch.setattr(keeper, "submit_many", fail_twice)
            await bus.durable.publish("t", 2)
            assert len(attempts) == 3 and attempts[0] == attempts[2], "the same bytes again"
            assert [event.body for event in (await bus.log("t").read()).events()] == [0, 2]

    asyncio.run(scenario())


def test_the_bus_publishes_and_subscribes_durably(store):
    async def scenario():
        async with connect("faces", store=store) as bus, bus.subscribe("t/#") as live:
            await bus.publish("t/a", 1, durable=True)
            await bus.publish_many([("t/a", 2), ("t/b", "text")], durable=True)
            bus.publish_soon("t/a", 3, durable=True)
            await bus.flush()
            assert [(await live.receive(5)).body for _ in range(4)] == [1, 2, "text", 3]
            async with bus.subscribe("t/a", durable="desk", start="earliest") as kept:
                assert [(await kept.receive(5)).body for _ in range(3)] == [1, 2, 3]
            async with bus.subscribe("t/+", type=str, start="earliest") as texts:
                assert (await texts.receive(5)).body == "text"

    asyncio.run(scenario())


def test_without_await(store):
    with pluribus.sync.connect("inproc://sync-kept", store=store) as bus:
        bus.publish_many([("t", n) for n in range(10)], durable=True)
        assert bus.log("t").offsets() == (0, 10)
        assert [event.body for event in bus.log("t").read(8).events()] == [8, 9]
        with bus.subscribe("t", durable="desk", start="earliest") as events:
            assert [events.receive(5).body for _ in range(10)] == list(range(10))


def test_soon_and_flush(store):
    async def scenario():
        async with connect("soon", store=store) as bus:
            ids = [bus.durable.publish_soon(f"t/{n % 3}", n) for n in range(300)]
            await bus.durable.flush()
            assert len(set(ids)) == 300
            assert sum(known.end for known in await bus.durable.topics("t/+")) == 300

    asyncio.run(scenario())


def test_a_time_out_is_for_all_that_is_published_at_once():
    async def scenario():
        async with connect("nobody-at-all") as bus:
            loop = asyncio.get_running_loop()
            started = loop.time()
            bus.durable._kept = True  # there was a keeper once
            with pytest.raises(Uncertain, match=r"all in 0\.3 s"):
                await bus.durable.publish_many([(f"t/{n}", n) for n in range(100)], timeout=0.3)
            assert loop.time() - started < 10, "and not for each of the hundred"

    asyncio.run(scenario())


def test_a_busy_topic_does_not_keep_back_a_quiet_one(store):
    async def scenario():
        async with connect("fair", store=store) as bus:
            for _ in range(20):
                await bus.durable.publish_many([("a", bytes(1_000))] * 100)
            await bus.durable.publish("b", b"quiet")
            offsets, answers = {}, 0
            while "b" not in offsets:
                found = await bus.durable.ask(Follow(["#"], offsets, 50_000))
                offsets, answers = {name: at for name, at in found.offsets.items() if at}, answers + 1
            assert answers <= 2 and offsets["a"] < 2_000

    asyncio.run(scenario())


def test_retention_removes_what_is_old_or_too_much(store):
    async def scenario():
        async with connect("retention", store=store) as bus:
            for _ in range(4):
                await bus.durable.publish_many([("t", bytes(100))] * 1_100)
            await bus.durable.retain("t", size=200_000)
            async with asyncio.timeout(20):
                while (await bus.log("t").offsets())[0] == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            first, end = await bus.log("t").offsets()
            assert 0 < first < end == 4_400
            (known,) = await bus.durable.topics("t")
            assert 200_000 <= known.kept_bytes < 400_000
            with pytest.raises(BadInput, match=f"the first that is kept is {first}"):
                await bus.log("t").read(0)
            assert (await bus.log("t").read(first)).events()[0].offset == first
            with pytest.raises(BadInput, match="use 0 for no limit"):
                await bus.durable.retain("t", age=-1)

    asyncio.run(scenario())


@asynccontextmanager
async def three(name, tmp_path):
    """Three voters, started one after another."""
    buses = []
    try:
        for number in range(3):
            bus = await connect(name, store=tmp_path / f"{number}.db", votes=True, name=f"keeper-{number}")
            buses.append(bus)
        await until(lambda: all(len(bus.keeping.keeper.keeper.voters) == 3 for bus in buses))
        yield buses
    finally:
        for bus in buses:
            await bus.close(timeout=0)


def test_three_voters_and_a_member_without_a_store(tmp_path):
    async def scenario():
        async with three("three", tmp_path) as keepers, connect("three") as bus:
            await bus.durable.publish_many([("t", n) for n in range(500)])
            assert await bus.log("t").offsets() == (0, 500)
            leader = next(bus for bus in keepers if bus.keeping.keeper.keeper.leads)
            publishing = asyncio.create_task(bus.durable.publish_many([("t", n) for n in range(500, 600)]))
            leader.abandon()
            await asyncio.wait_for(publishing, 30)
            found = (await bus.log("t").read()).events()
            assert [event.body for event in found] == list(range(600))

    asyncio.run(scenario())


def test_a_member_with_a_store_learns_beside_a_voter(tmp_path):
    async def scenario():
        async with connect("learner", store=tmp_path / "a.db") as first:
            await first.durable.publish_many([("t", n) for n in range(50)])
            async with connect("learner", store=tmp_path / "b.db") as second:
                await until(lambda: second.keeping.keeper.desk.of_topics.topics.topic("t") is not None)
                assert [event.body for event in (await second.log("t").read()).events()] == list(range(50))
                await second.durable.publish("t", "from the learner")
                assert second.keeping.keeper.keeper.voters == (first.keeping.keeper.keeper.id,)
                assert await first.log("t").offsets() == (0, 51)

    asyncio.run(scenario())


def test_what_was_published_soon_and_given_up_is_told_to_who_flushes_later(store):
    async def scenario():
        async with connect("told-later", store=store) as bus:
            await bus.durable.publish("a", b"1")
            lost = bus.durable.publish_soon("a", b"2")
            bus.durable._publishers["a"]._give_up("no keeper confirmed it")
            with pytest.raises(Uncertain) as uncertain:
                await bus.flush()
            assert uncertain.value.id == lost
            await bus.flush()  # it is told once

    asyncio.run(scenario())


def test_nothing_is_published_soon_on_a_bus_that_is_closed(store):
    async def scenario():
        async with connect("closed-soon", store=store) as bus:
            await bus.durable.publish("a", b"1")
        with pytest.raises(Closed):
            bus.durable.publish_soon("a", b"2")

    asyncio.run(scenario())


def test_what_was_published_soon_is_on_disk_when_the_bus_is_closed(store):
    async def scenario():
        async with connect("closing", store=store) as bus:
            await bus.durable.publish("a", b"1")
            bus.publish_soon("a", b"2", durable=True)
        async with connect("closing", store=store) as bus:
            assert await bus.log("a").offsets() == (0, 2)
            bus.keeping.ask_now = lambda put, answered: True  # never
            lost = bus.durable.publish_soon("a", b"3")
            with pytest.raises(Uncertain) as uncertain:
                await bus.close(timeout=0.2)
            assert bus.closed and uncertain.value.id == lost

    asyncio.run(scenario())


def test_committing_commits_everything_that_was_read_also_when_nothing_more_came(store):
    async def scenario():
        async with connect("commit-all", store=store) as bus:
            async with bus.subscribe("t/#", durable="all", start="earliest", commit="manual") as events:
                for topic in ("t/a", "t/b"):
                    await bus.durable.publish(topic, topic)
                    assert (await events.receive(5)).body == topic
                with pytest.raises(TimeoutError):
                    await events.receive(0.05)
                await events.commit()
            async with bus.subscribe("t/#", durable="all", commit="manual") as events:
                assert events.offsets == {"t/a": 1, "t/b": 1}

    asyncio.run(scenario())


def test_a_commit_that_failed_goes_with_the_next(store):
    async def scenario():
        async with connect("commit-again", store=store) as bus:
            async with bus.subscribe("t/#", durable="again", start="earliest", commit="manual") as events:
                await bus.durable.publish("t/a", 1)
                event, do = await events.receive(5), bus.durable.do
                bus.durable.do = lambda command: _fails()
                with pytest.raises(NoMembers):
                    await events.commit(event)
                bus.durable.do = do
                await bus.durable.publish("t/b", 2)
                await events.commit(await events.receive(5))
            async with bus.subscribe("t/#", durable="again", commit="manual") as events:
                assert events.offsets == {"t/a": 1, "t/b": 1}

    async def _fails():
        raise NoMembers("no keeper is there")

    asyncio.run(scenario())


def test_two_who_read_one_subscription_get_an_event_each(store):
    async def scenario():
        async with connect("two-readers", store=store) as bus, bus.subscribe("t", durable="two") as events:
            readers = [asyncio.create_task(events.receive(5)), asyncio.create_task(events.receive_many(1, 5))]
            await asyncio.sleep(0.05)
            await bus.durable.publish("t", 1)
            await asyncio.sleep(0.05)
            await bus.durable.publish("t", 2)
            one, (other,) = await asyncio.gather(*readers)
            assert {one.body, other.body} == {1, 2}

    asyncio.run(scenario())


def test_a_publisher_goes_on_after_a_refusal_that_came_behind_a_lost_answer():
    async def scenario():
        asked = []

        def ask_now(put, answered):
            asked.append(answered)
            return True

        numbers = iter(range(1, 9))
        publisher = Publisher("t", 1, lambda: next(numbers), None, ask_now, lambda: 0.0, lambda: None)
        for body in (b"first", b"second"):
            publisher.add(BYTES, body)
            publisher._turn_ends()
        asked[1]([], Closed("the keeper is gone"))
        asked[0]([Outcome(REFUSED, 1, "too many topics")], None)
        publisher.add(BYTES, b"third")
        await until(lambda: len(asked) == 3, 5)
        asked[2]([Outcome(DONE, 0)], None)
        await publisher.flush()
        assert publisher.idle

    asyncio.run(scenario())


def test_a_mailbox_with_topics_that_are_none_is_refused_and_keepers_go_on(store):
    async def scenario():
        async with connect("no-topics", store=store) as bus:
            await bus.durable.publish("a", 1)
            for name, topics in (("x", "bad//topic"), ("x", ["a", "#/b"]), ("", ()), ("+", ()), ("x//y", ())):
                with pytest.raises(BadTopic):
                    bus.mailbox(name, topics)
            with pytest.raises(Refused, match="a level is empty"):  # as a client of another release might ask
                await bus.durable.do(commands.Attach("x", 1, ["bad//topic"]))
            await bus.durable.publish("a", 2)
            assert await bus.log("a").offsets() == (0, 2)

    asyncio.run(scenario())


def test_who_asks_before_its_own_keeper_is_there_asks_that(store):
    async def scenario():
        async with connect("just-begun") as bus:
            await bus.keeping.meeting()
            publishing = asyncio.create_task(bus.durable.publish("a", 1, timeout=10))
            await asyncio.sleep(0.05)
            await bus.keeping.keep(store)
            await publishing
            assert await bus.log("a").offsets() == (0, 1)

    asyncio.run(scenario())


def test_a_question_that_cannot_be_sent_or_is_not_answered_does_not_wait_for_ever(store, monkeypatch):
    async def scenario():
        async with connect("too-much", store=store), connect("too-much") as bus:
            await bus.durable.publish("a", 1)
            meeting = await bus.keeping.meeting()
            (member,) = meeting.keepers
            with monkeypatch.context() as patched:
                patched.setattr(member_line, "OUTBOX_BYTES_MAX", 5)
                with pytest.raises(Overflow):
                    await asyncio.wait_for(meeting.ask(member, Find("a")), 5)
            with monkeypatch.context() as patched:
                patched.setattr(member_line, "ANSWER_S", 0.1)
                patched.setattr(meeting.line, "take", lambda *word: None)
                with pytest.raises(Closed):
                    await asyncio.wait_for(meeting.ask(member, Find("a")), 5)
            assert await bus.log("a").offsets() == (0, 1)

    asyncio.run(scenario())
