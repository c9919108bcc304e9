"""Rows of the table of promises in ``docs/queues.md`` that need no killed process; the others are in ``tests/real``."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack

import pytest

import pluribus
from pluribus.core.errors import Closed, NotPrimary, Uncertain
from pluribus.runtime.styles.queues import consumer, queue
from pluribus.store.tables import Tables
from tests.runtime.clients.test_client import served, url_of
from tests.runtime.styles.queues.test_queues import opened

WAIT_S = 60


def test_what_a_member_held_is_handed_out_when_it_has_left_the_view(tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "LEASE_S", 3_600.0)

    async def scenario():
        url = f"inproc://left-{tmp_path.name}"
        async with (
            pluribus.connect(url, name="keeper", store=tmp_path / "a.db") as keeper,
            pluribus.connect(url, name="member") as member,
        ):
            q, theirs = await keeper.queue("orders"), await member.queue("orders")
            await q.send("x")
            m = await theirs.receive(timeout=WAIT_S)
            assert m.body == "x"
            waiting = asyncio.ensure_future(theirs.receive())  # a question that is held at the keeper
            await asyncio.sleep(0)
            member.abandon()
            again = await q.receive(timeout=WAIT_S)
            assert (again.body, again.deliveries) == ("x", 2)
            await asyncio.wait([waiting])

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["keeper", "client"])
def test_while_a_disk_is_full_a_sender_waits_and_nothing_is_lost_or_there_twice(how, tmp_path, monkeypatch, caplog):
    commit, full = Tables.commit, asyncio.Event()

    def committed(self):
        if full.is_set():
            raise sqlite3.OperationalError("database or disk is full")
        commit(self)

    monkeypatch.setattr(Tables, "commit", committed)

    async def scenario():
        async with opened(how, tmp_path) as (bus, _):
            q = await bus.queue("orders")
            await q.send(1)
            full.set()
            with pytest.raises(Uncertain, match=r"did not confirm the message .* and it is still being sent: wait"):
                await q.send(2, timeout=0.5)
            waits = asyncio.create_task(q.send(3))
            while "disk is full" not in caplog.text:  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(0.02)
            assert "look at its disk" in caplog.text and not waits.done()
            full.clear()
            await asyncio.wait_for(waits, WAIT_S)
            assert await left_in(q) == [1, 2, 3]

    asyncio.run(scenario())


async def left_in(q):
    """Take everything that is there."""
    found = []
    while (m := await q.receive(timeout=0)) is not None:
        found.append(m.body)
        await m.ack()
    return found


def test_of_what_a_sender_did_not_flush_a_beginning_is_there_in_order(tmp_path):
    async def scenario():
        async with served("unflushed", store=tmp_path / "a.db") as keeper:
            q = await keeper.queue("orders")
            client = pluribus.connect(url_of(keeper))
            async with client as bus:
                theirs = await bus.queue("orders")
                for number in range(50):
                    theirs.send_soon(number)
                await theirs.flush()
                await theirs.send(50, durable=False)
                for number in range(51, 5_000):
                    theirs.send_soon(number, priority=4 if number % 2 else 5)
                await asyncio.sleep(0)
                theirs.abandon()
            async with asyncio.timeout(WAIT_S):
                found = [await left_in(q)]
                while found[-1] or len(found) < 3:  # what was under way may still come
                    await keeper.durable.topics()
                    found.append(await left_in(q))
            first = [number for some in found for number in some if number <= 50]
            assert first[:50] == list(range(50)), "what was confirmed is there"
            for priority in (4, 5):
                some = [n for part in found for n in part if n > 50 and (4 if n % 2 else 5) == priority]
                assert some == sorted(some) and len(set(some)) == len(some)

    asyncio.run(scenario())


def test_a_message_whose_only_body_is_damaged_becomes_a_dead_letter(tmp_path, monkeypatch):
    async def scenario():
        async with pluribus.connect("inproc://damaged-body", store=tmp_path / "a.db") as bus:
            q = await bus.queue("orders")
            await q.send_many([1, 2, 3])
            line = q._line
            given = line.given

            async def damaged(*arguments, **options):
                told = await given(*arguments, **options)
                for one in told.given:
                    if one.thing == 1:
                        one.bodies[:] = [None]
                return told

            monkeypatch.setattr(line, "given", damaged)
            got = [(await q.receive(timeout=WAIT_S)).body for _ in range(2)]
            assert got == [1, 3]
            while not (await q.stats()).dead:  # noqa: ASYNC110 - the keeper tells nobody
                await asyncio.sleep(0.02)
            (dead,) = [m async for m in q.browse(dead=True)]
            assert dead.reason == "its body is damaged"

    asyncio.run(scenario())


def test_what_is_in_memory_stays_while_one_member_lives_and_comes_back_from_one_that_leaves(tmp_path):
    async def scenario():
        url = f"inproc://memory-{tmp_path.name}"
        async with pluribus.connect(url, name="one") as one:
            ours = await one.queue("q", durable=False)
            async with pluribus.connect(url, name="two") as two:
                theirs = await two.queue("q", durable=False)
                await theirs.send_many([1, 2, 3])
                assert (await theirs.receive(timeout=WAIT_S)).body == 1
            got = [(await ours.receive(timeout=WAIT_S)).body for _ in range(3)]
            assert got == [1, 2, 3], "nothing is lost, and what it held comes back to its place"

    asyncio.run(scenario())


def test_a_queue_in_memory_is_gone_with_its_last_member(tmp_path):
    async def scenario():
        url = f"inproc://gone-{tmp_path.name}"
        async with pluribus.connect(url) as bus:
            await (await bus.queue("q", durable=False)).send("x")
        async with pluribus.connect(url) as bus:
            assert (await (await bus.queue("q", durable=False)).stats()).depth == 0

    asyncio.run(scenario())


def test_what_is_sent_again_with_its_id_is_there_once_whoever_sends_it(tmp_path):
    async def scenario():
        async with served("again", store=tmp_path / "a.db") as keeper:
            q = await keeper.queue("orders")
            for _ in range(3):  # a sender that crashes and sends what it is not sure of again, as another session
                async with pluribus.connect(url_of(keeper)) as bus:
                    theirs = await bus.queue("orders")
                    waiting = asyncio.ensure_future(theirs.send("once", id="order 1"))
                    await asyncio.sleep(0)
                    await asyncio.wait([waiting])
            assert await left_in(q) == ["once"]
            assert (await q.stats()).state.duplicates == 2

    asyncio.run(scenario())


def test_what_a_client_held_of_a_queue_in_memory_goes_back_when_its_member_has_left_the_view(tmp_path):
    async def scenario():
        url = f"inproc://member-of-a-client-{tmp_path.name}"
        async with pluribus.connect(url) as one, pluribus.connect(url) as two, AsyncExitStack() as stack:
            crashes = await stack.enter_async_context(pluribus.connect(url, serve="127.0.0.1:0"))
            q, _, _ = [await bus.queue("q", durable=False) for bus in (one, two, crashes)]
            client = await stack.enter_async_context(pluribus.connect(url_of(crashes)))
            theirs = await client.queue("q", durable=False)
            await q.send("x")
            assert (await theirs.receive(timeout=WAIT_S)).body == "x"
            crashes.abandon()
            again = await q.receive(timeout=WAIT_S)
            assert (again.body, again.deliveries) == ("x", 2)

    asyncio.run(scenario())


def test_what_a_client_held_of_a_queue_in_memory_with_a_lease_goes_back_while_its_member_is_there(tmp_path):
    async def scenario():
        async with served(f"memory-lease-{tmp_path.name}") as member, AsyncExitStack() as stack:
            q = await member.queue("q", durable=False, lease=0.5)
            client = await stack.enter_async_context(pluribus.connect(url_of(member)))
            theirs = await client.queue("q", durable=False)
            await q.send("x")
            held = await theirs.receive(timeout=WAIT_S)
            theirs.abandon()  # as a crash leaves it: nobody is told
            again = await q.receive(timeout=WAIT_S)
            assert (held.body, again.body, again.deliveries) == ("x", "x", 2)
            await again.ack()

    asyncio.run(scenario())


def test_what_a_client_held_goes_back_after_its_lease_when_its_member_crashes(tmp_path, monkeypatch):
    assert queue.LEASE_S == 10.0, "the page says so"
    monkeypatch.setattr(queue, "LEASE_S", 1.0)

    async def scenario():
        url = f"inproc://lease-of-a-client-{tmp_path.name}"
        async with pluribus.connect(url, store=tmp_path / "a.db") as keeper, AsyncExitStack() as stack:
            crashes = await stack.enter_async_context(pluribus.connect(url, serve="127.0.0.1:0"))
            q = await keeper.queue("orders")
            client = await stack.enter_async_context(pluribus.connect(url_of(crashes)))
            theirs = await client.queue("orders")
            await q.send("x")
            held = await theirs.receive(timeout=WAIT_S)
            crashes.abandon()
            again = await q.receive(timeout=WAIT_S)
            assert (held.body, again.body, again.deliveries) == ("x", "x", 2)
            await again.ack()

    asyncio.run(scenario())


def test_a_client_of_a_member_that_crashes_goes_on_with_another_and_settles_there(tmp_path):
    async def scenario():
        url = f"inproc://other-member-{tmp_path.name}"
        async with (
            pluribus.connect(url, store=tmp_path / "a.db", serve="127.0.0.1:0") as keeper,
            pluribus.connect(url, serve="127.0.0.1:0") as crashes,
        ):
            first, second = [url_of(bus).split("//")[1].split("/")[0] for bus in (crashes, keeper)]
            async with pluribus.connect(f"client://{first},{second}/{keeper.url.bus}") as client:
                theirs = await client.queue("orders")
                await theirs.send("x")
                held = await theirs.receive(timeout=WAIT_S)
                crashes.abandon()
                await held.ack()
            assert (await (await keeper.queue("orders")).stats()).depth == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("gives_up", ["not", "when its messages are not settled", "while it comes"])
def test_a_consumer_that_leaves_while_keepers_are_away_gives_its_messages_back_when_they_answer(
    gives_up, tmp_path, monkeypatch
):
    """Its process has another consumer at the queue, so its lease does not end."""
    monkeypatch.setattr(consumer, "LEAVE_S", 0.05)

    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("orders")
            await q.send_many(range(20))
            call, there = q._line.call, asyncio.Event()

            async def answered(command, timeout=None):
                try:
                    async with asyncio.timeout(timeout):
                        await there.wait()
                except TimeoutError:
                    raise NotPrimary("no keeper answered") from None
                return await call(command, timeout)

            async def consume():
                async with q.messages(credit=10) as messages:
                    await anext(messages)
                    if gives_up != "not":
                        monkeypatch.setattr(q._line, "call", answered)

            if gives_up == "not":
                async with q.messages(credit=10) as messages:
                    await (await anext(messages)).ack()
                    while len(messages._consumer.hands) < 9:  # noqa: ASYNC110 - it is told of them
                        await asyncio.sleep(0.01)
                    monkeypatch.setattr(q._line, "call", answered)
            elif gives_up == "while it comes":
                monkeypatch.setattr(q._line, "call", answered)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05), q.messages(credit=10):
                        raise AssertionError("it was not there yet")
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await consume()
            there.set()
            wanted = 20 if gives_up == "while it comes" else 19
            async with asyncio.timeout(8):
                for _ in range(wanted):
                    async with q.receive() as m:
                        assert m.deliveries == 1, "nobody had it"
            while (await q.stats()).consumers > 1:  # noqa: ASYNC110 - the keeper tells nobody
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_a_queue_whose_closing_is_given_up_is_closed_all_the_same(tmp_path, monkeypatch):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("orders")
            await q.send("x")
            m = await q.receive(timeout=WAIT_S)
            (receiving,) = q._consumers
            monkeypatch.setattr(q._line, "call", lambda *_: asyncio.sleep(3_600))
            acknowledging = asyncio.ensure_future(m.ack())
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await q.close()
            assert receiving.closed, "it asks for no more messages"
            with pytest.raises(Closed):
                await acknowledging

    asyncio.run(scenario())
