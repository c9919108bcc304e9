"""Queues as programs use them: on a keeper, through another member, from a client, in memory, and without await."""

import asyncio
import threading
from contextlib import asynccontextmanager

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadFilter, BadInput, LeaseEnded, Refused, TooLarge
from pluribus.queues import finder
from pluribus.runtime.styles.queues import receiving
from tests.runtime.clients.test_client import served, url_of


class Order(msgspec.Struct):
    number: int


pluribus.register(Order)
WAIT_S = 60


@asynccontextmanager
async def opened(how, tmp_path):
    """A bus to use queues on, and the options of its queues."""
    if how == "memory":
        async with pluribus.connect(f"inproc://queues-{tmp_path.name}") as bus:
            yield bus, {"durable": False}
        return
    async with served(f"queues-{tmp_path.name}", store=tmp_path / "a.db") as keeper:
        if how == "keeper":
            yield keeper, {}
        elif how == "client-memory":
            async with pluribus.connect(url_of(keeper)) as bus:
                yield bus, {"durable": False}
        elif how == "member":
            async with pluribus.connect(f"inproc://queues-{tmp_path.name}") as bus:
                yield bus, {}
        else:
            async with pluribus.connect(url_of(keeper)) as bus:
                yield bus, {}


@pytest.mark.parametrize("how", ["keeper", "member", "client", "memory", "client-memory"])
def test_send_and_receive_everywhere(how, tmp_path):
    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            q = await bus.queue("orders", backoff=(0.01, 0.1), **options)
            assert await q.receive(timeout=0) is None, "empty is no error"
            await q.send("at once")
            async with q.receive(timeout=0) as m:
                assert m.body == "at once", "what is there is received without waiting"
            for body in (b"bytes", "text", {"plain": [1, 2]}, Order(7)):
                await q.send(body)
            for body in (b"bytes", "text", {"plain": [1, 2]}, Order(7)):
                async with q.receive(timeout=WAIT_S) as m:
                    assert m.body == body and m.deliveries == 1
            await q.send(b"poison")
            with pytest.raises(ZeroDivisionError):
                async with q.receive(timeout=WAIT_S):
                    raise ZeroDivisionError
            m = await q.receive(timeout=WAIT_S)
            assert m.deliveries == 2 and not m.settled
            await m.reject("it is poison")
            with pytest.raises(BadInput, match="settled already"):
                await m.ack()
            (dead,) = [one async for one in q.browse(dead=True)]
            assert (dead.body, dead.reason, dead.state) == (b"poison", "it is poison", "dead")
            assert await q.redrive() == 1
            assert (await q.stats()).depth == 1 and await q.purge() == 1
            assert (await q.stats()).depth == 0
            for number in range(500):
                q.send_soon(b"%d" % number)
            await q.flush()
            found = []
            async with q.messages(credit=64) as messages:
                async for m in messages:
                    found.append(int(m.body))
                    if len(found) == 500:
                        break
            assert found == list(range(500))
            assert (await q.stats()).depth == 0, "the last one is settled, too"

    asyncio.run(scenario())


def test_options_of_a_message(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("orders", window=60)
            await q.send("low", priority=0)
            await q.send("high", priority=9, properties={"region": "eu", "n": 1}, correlation="c", reply_to="answers")
            await q.send("once", id="x")
            await q.send("once", id="x")
            m = await q.receive(timeout=WAIT_S)
            assert (m.body, m.priority, dict(m.properties)) == ("high", 9, {"region": "eu", "n": 1})
            assert (m.correlation, m.reply_to) == ("c", "answers")
            await m.ack()
            bodies = [m.body async for m in q.browse()]
            assert bodies == ["low", "once"]
            await q.purge()
            await q.send("us", properties={"region": "us"})
            waiting = asyncio.ensure_future(_received(q, "region = 'eu'"))
            await asyncio.sleep(0)
            await q.send("eu", properties={"region": "eu"})
            assert await waiting == "eu"
            assert [m.body async for m in q.browse("region = 'us'")] == ["us"]
            await q.send("late", delay=0.05)
            await q.send("short", ttl=0.01, delay=60)
            found = [(await _received(q)), (await _received(q))]
            assert found == ["us", "late"]
            while (await q.stats()).depth:  # noqa: ASYNC110 - the keeper tells nobody
                await asyncio.sleep(0.02)
            assert (await q.stats()).state.expired == 1
            for bad in ({"priority": 10}, {"ttl": -1}, {"properties": {"a": [1]}}, {"key": "k" * 300}):
                with pytest.raises(BadInput):
                    await q.send(b"", **bad)
            with pytest.raises(BadFilter):
                q.receive("region = ")
            with pytest.raises(TooLarge, match="in parts"):
                await q.send(bytes(101 << 20))

    async def _received(q, where=None):
        async with q.receive(where, timeout=WAIT_S) as m:
            return m.body

    asyncio.run(scenario())


def test_a_long_body_travels_in_pieces(tmp_path):
    async def scenario():
        async with opened("client", tmp_path) as (bus, _):
            q = await bus.queue("long")
            body = bytes(range(256)) * 20_000
            await q.send(body)
            async with q.receive(timeout=WAIT_S) as m:
                assert m.body == body
            assert (await q.stats()).depth == 0

    asyncio.run(scenario())


def test_long_bodies_are_browsed_and_count_for_the_credit(tmp_path):
    async def scenario():
        async with opened("client", tmp_path) as (bus, _):
            q = await bus.queue("long")
            bodies = [bytes([number]) * (2 << 20) for number in range(4)] + [{"long": "x" * (2 << 20)}]
            for body in bodies:
                await q.send(body)
            assert [m.body async for m in q.browse()] == bodies
            async with q.messages(credit=32, credit_bytes=5 << 20) as messages:
                await anext(messages)
                assert (await q.stats()).state.held == 2, "two of them are within the credit"
                m = await anext(messages)
                await m.reject("too long")
            ((dead, size),) = [(m.body, m.size) async for m in q.browse(dead=True)]
            assert dead == bodies[1] and size > 2 << 20

    asyncio.run(scenario())


def test_several_messages_are_settled_together(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("orders", lease=30)
            await q.send_many(range(8))
            some = [await q.receive(timeout=WAIT_S) for _ in range(8)]
            await q.extend(some, 60)
            await q.ack(some[:2])
            await q.nack(some[2:4], delay=0)
            await q.reject(some[4:7], "no")
            while (await q.stats()).state.held > 1:  # noqa: ASYNC110 - one was asked for ahead, and goes back
                await asyncio.sleep(0.01)
            state = (await q.stats()).state
            assert (state.settled, state.ready, state.dead) == (2, 2, 3)
            assert [m.reason async for m in q.browse(dead=True)] == ["no"] * 3
            await q.extend(some[7:], 0)
            while not (await q.stats()).state.redelivered > 2:  # noqa: ASYNC110 - the keeper tells nobody
                await asyncio.sleep(0.02)
            with pytest.raises(LeaseEnded):
                await q.ack(some[7:])
            with pytest.raises(BadInput, match="settled already"):
                await q.nack(some[:1])

    asyncio.run(scenario())


def test_messages_that_an_iterator_settled_too_late_are_counted(tmp_path, caplog):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("leased", lease=0.05)
            await q.send_many([1, 2])
            async with q.messages(credit=1) as messages:
                m = await anext(messages)
                while (await q.stats()).state.held:
                    await q.pause()
                assert m.body == 1 and messages.late == 0
                await q.resume()
                again = await anext(messages)
                assert (again.body, again.deliveries) == (1, 2)
            assert messages.late >= 1 and "not in their lease" in caplog.text

    asyncio.run(scenario())


def test_who_has_received_is_no_consumer_when_another_wants_the_queue_for_itself(tmp_path, monkeypatch):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("orders")
            assert await q.receive(timeout=0) is None
            async with q.messages(exclusive=True):
                assert (await q.stats()).consumers == 1
            await q.send("x")
            m = await q.receive(timeout=WAIT_S)
            with pytest.raises(Refused, match="others receive from it"):
                async with q.messages(exclusive=True):
                    raise AssertionError("a message is in somebody's hands")
            await m.ack()
            monkeypatch.setattr(receiving, "IDLE_S", 0.05)
            other = await bus.queue("other")
            assert await other.receive(timeout=0) is None
            while (await other.stats()).consumers:  # noqa: ASYNC110 - the keeper tells nobody
                await asyncio.sleep(0.02)
            await other.send("y")
            async with other.receive(timeout=WAIT_S) as m:
                assert m.body == "y", "it comes back when it receives again"

    asyncio.run(scenario())


def test_keys_are_in_order_and_consumers_share(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("orders")
            for number in range(60):
                await q.send(number, key=f"k{number % 3}")
            found, busy = [], set()

            async def work():
                async with q.messages(credit=4) as messages:
                    async for m in messages:
                        assert m.key not in busy, "a key is at one consumer at a time"
                        busy.add(m.key)
                        await asyncio.sleep(0)
                        busy.discard(m.key)
                        found.append(m.body)

            tasks = [asyncio.ensure_future(work()) for _ in range(3)]
            while len(found) < 60:
                await asyncio.sleep(0.01)
                for task in tasks:
                    if task.done():
                        task.result()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for key in range(3):
                assert [one for one in found if one % 3 == key] == list(range(key, 60, 3))

    asyncio.run(scenario())


def test_call_backs_decorators_and_the_event_that_something_is_there(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("orders", backoff=(0.01, 0.1))
            assert not await q.arrived(timeout=0)
            heard = []
            done = asyncio.Event()

            @q.on()
            async def handle(m):
                heard.append((m.body, m.deliveries))
                if m.deliveries == 1:
                    raise ValueError("try again")
                done.set()

            await q.send("x")
            await asyncio.wait_for(done.wait(), WAIT_S)
            assert heard == [("x", 1), ("x", 2)]
            other = await bus.queue("other")
            waiting = asyncio.ensure_future(other.arrived(timeout=WAIT_S))
            await asyncio.sleep(0)
            await other.send("y")
            assert await waiting
            assert (await other.receive(timeout=WAIT_S)).deliveries == 1, "nobody had it"

    asyncio.run(scenario())


def test_full_queues_settings_pause_and_exclusive_consumers(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("small", messages_max=2, full="refuse")
            await q.send_many([b"a", b"b"])
            with pytest.raises(Refused, match="its limit"):
                await q.send(b"c")
            q.send_soon(b"d")
            with pytest.raises(Refused):
                await q.flush()
            with pytest.raises(Refused, match="count_max=2 and not 3"):
                await bus.queue("small", messages_max=3)
            await q.configure(messages_max=3, full="wait")
            await q.send(b"e")
            waiting = asyncio.ensure_future(q.send(b"f"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            async with q.receive(timeout=WAIT_S) as m:
                assert m.body == b"a"
            await waiting
            assert [m.body async for m in q.browse()] == [b"b", b"e", b"f"]
            await q.pause()
            assert await q.receive(timeout=0) is None
            await q.resume()
            alone = await bus.queue("alone")
            async with alone.messages(exclusive=True):
                with pytest.raises(Refused, match="for itself"):
                    async with alone.messages():
                        raise AssertionError("it must not be entered")
            with pytest.raises(BadInput, match="full='maybe'"):
                await bus.queue("x", full="maybe")

    asyncio.run(scenario())


def test_a_lease_that_ended_is_said(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("leased", lease=0.05)
            await q.send("x")
            m = await q.receive(timeout=WAIT_S)
            other = await q.receive(timeout=WAIT_S)
            assert other.deliveries == 2, "it was held for too long"
            await other.extend(WAIT_S)
            assert (m.number, m.deliveries) == (other.number, 1)
            with pytest.raises(LeaseEnded):
                await m.ack()
            await other.ack()
            assert (await q.stats()).depth == 0

    asyncio.run(scenario())


def test_messages_survive_a_restart_of_the_keeper(tmp_path):
    async def scenario():
        async with pluribus.connect("inproc://again", store=tmp_path / "a.db") as bus:
            q = await bus.queue("orders")
            await q.send_many([b"%03d" % number for number in range(100)])
            m = await q.receive(timeout=WAIT_S)
            assert m.body == b"000"
        async with pluribus.connect("inproc://again", store=tmp_path / "a.db") as bus:
            q = await bus.queue("orders")
            assert (await q.stats()).depth == 100
            async with q.receive(timeout=WAIT_S) as m:
                assert (m.body, m.deliveries) == (b"000", 1), "it was given back when the queue was closed"

    asyncio.run(scenario())


def test_without_await(tmp_path):
    with pluribus.sync.connect("inproc://sync-queues", store=tmp_path / "a.db") as bus:
        q = bus.queue("orders")
        q.send("x", properties={"n": 1})
        with q.receiving(timeout=WAIT_S) as m:
            assert m.body == "x" and m.properties["n"] == 1
        assert q.receive(timeout=0) is None
        q.send_many([b"a", b"b", b"c"])
        assert [one.body for one in q.browse()] == [b"a", b"b", b"c"]
        found = []
        for m in q:
            found.append(m.body)
            if len(found) == 2:
                break
        assert found == [b"a", b"b"]
        assert q.purge() >= 1
        q.send_many(["settled", "rejected", "given back"])
        for m in q.messages(credit=1, credit_bytes=1 << 20):
            if m.body == "rejected":
                m.reject("no")
            elif m.body == "given back" and m.deliveries == 1:
                m.nack(delay=0)
            elif m.deliveries == 2:
                break
        (dead,) = q.browse(dead=True)
        assert (dead.body, dead.reason) == ("rejected", "no")
        q.purge()
        q.send_many([1, 2, 3])
        q.ack([q.receive(timeout=WAIT_S) for _ in range(2)])
        q.reject([q.receive(timeout=WAIT_S)], "no")
        assert q.stats().depth == 0 and q.redrive() == 2 and q.purge() == 2
        heard, done = [], threading.Event()

        @q.on("n > 1")
        def handle(m):
            heard.append((m.body, m.key, threading.current_thread() is threading.main_thread()))
            done.set()

        q.send("no", properties={"n": 1})
        q.send("yes", properties={"n": 2}, key="k")
        assert done.wait(WAIT_S)
        assert heard == [("yes", "k", False)], "in a thread of its own, so that it may wait"


class Strict(msgspec.Struct):
    number: int

    def __post_init__(self):
        if self.number == 13:
            raise ValueError("thirteen is nobody's number")


pluribus.register(Strict)


def test_a_body_that_cannot_be_made_here_is_a_dead_letter_and_the_others_come(tmp_path):
    async def scenario():
        async with opened("keeper", tmp_path) as (bus, _):
            q = await bus.queue("strict")
            good = [Strict(number) for number in range(10, 50) if number != 13]
            bad = msgspec.convert({"number": 12}, Strict)
            bad.number = 13
            await q.send_many([*good[:3], bad, *good[3:]])
            found = []
            async with q.messages(credit=40) as messages:
                async for m in messages:
                    found.append(m.body)
                    if len(found) == len(good):
                        break
            assert found == good
            while not (await q.stats()).dead:  # noqa: ASYNC110 - the keeper tells nobody
                await asyncio.sleep(0.02)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["keeper", "memory"])
def test_a_selector_sees_all_of_a_long_queue(how, tmp_path):
    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            q = await bus.queue("long", **options)
            for number in range(3_000):
                q.send_soon(number, properties={"n": number})
            await q.flush()
            async with q.receive("n = 2999", timeout=WAIT_S) as m:
                assert m.body == 2_999
            async with q.receive("n > 2997", timeout=WAIT_S) as m:
                assert m.body == 2_998

    asyncio.run(scenario())


def test_a_client_s_messages_of_a_queue_in_memory_stay_with_it(tmp_path):
    async def scenario():
        async with opened("client-memory", tmp_path) as (bus, options):
            q = await bus.queue("held", **options)
            await q.send("x")
            m = await q.receive(timeout=WAIT_S)
            assert await q.receive(timeout=1.5) is None, "its lease does not end while its member is there"
            await m.ack()
            assert (await q.stats()).state.redelivered == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["keeper", "member", "client"])
def test_a_mistyped_name_is_told_and_makes_no_queue(how, tmp_path):
    async def scenario():
        async with opened(how, tmp_path) as (bus, _):
            assert await bus.queues() == []
            with pytest.raises(BadInput, match="no queue 'orders' on this bus, only none at all"):
                await bus.queue("orders", create=False)
            await (await bus.queue("orders")).send("here")
            await bus.queue("invoices")
            with pytest.raises(BadInput, match=r"no queue 'ordesr'.*, only 'invoices', 'orders': .*configure"):
                await bus.queue("ordesr", create=False)
            assert await bus.queues() == ["invoices", "orders"]
        async with opened("keeper", tmp_path) as (bus, _):  # opened anew, and from the disk
            q = await bus.queue("orders", create=False)
            assert (await q.stats()).state.depth == 1
            with pytest.raises(BadInput, match="durable queues"):
                await bus.queue("orders", durable=False, create=False)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["keeper", "client", "memory"])
def test_a_receive_that_does_not_wait_sees_all_of_a_long_queue(how, tmp_path, monkeypatch):
    monkeypatch.setattr(finder, "SLICE", 50)  # as a much longer queue is searched

    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            q = await bus.queue("long", **options)
            for number in range(3_000):
                q.send_soon(number, properties={"n": number})
            await q.flush()
            for wanted in (2_999, 1_500):
                async with q.receive(f"n = {wanted}", timeout=0) as m:
                    assert m.body == wanted
            assert await q.arrived("n > 2997", timeout=0)
            assert await q.receive("n = 2999", timeout=0) is None, "it is settled"
            await q.pause()
            assert await q.receive("n = 7", timeout=0) is None
            await q.resume()
            async with q.receive("n = 7", timeout=0) as m:
                assert m.body == 7

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["keeper", "client", "memory"])
def test_to_find_nothing_is_no_command_and_what_is_there_is_found(how, tmp_path):
    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            q = await bus.queue("orders", **options)
            assert await q.receive(timeout=0) is None
            commands = []
            order = q._line.order

            async def counted(given, timeout=None):
                commands.extend(given)
                return await order(given, timeout)

            q._line.order = counted
            for _ in range(20):
                assert await q.receive(timeout=0) is None
            assert not commands
            for start in range(0, 60, 20):
                await q.send_many(range(start, start + 20))
                for number in range(start, start + 20):
                    m = await q.receive(timeout=0)
                    assert m.body == number, "also the one that was asked for ahead"
                    await m.ack()
                assert await q.receive(timeout=0) is None

    asyncio.run(scenario())
