"""Software buses on real buses: occupants, ports, questions, moves, with a router, without one, and centralised."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import pluribus
from pluribus.core.errors import (
    BadBody,
    BadInput,
    Expired,
    NoMembers,
    Overflow,
    Refused,
    RemoteError,
    TooLarge,
    Uncertain,
)
from pluribus.runtime.styles.slots.buses import Slots
from pluribus.slots.check import plan_of
from pluribus.slots.keys import verifier
from tests.harness import eventually, on_a_loop
from tests.slots.plans import FIGURE_2, SHEET

BEST_EFFORT = "best-effort"


@asynccontextmanager
async def members(count, name, stack=BEST_EFFORT, scheme="inproc"):
    async with AsyncExitStack() as open_ones:
        yield [
            await open_ones.enter_async_context(pluribus.connect(f"{scheme}://{name}", name=f"m{n}", stack=stack))
            for n in range(count)
        ]


async def reading(slot, port="in", into=None):
    into = [] if into is None else into

    async def read():
        async for message in slot.port(port):
            into.append(message.body)

    task = asyncio.create_task(read())
    return into, task


MODES = [("router", BEST_EFFORT), ("router", "views"), ("replica", "views"), ("central", BEST_EFFORT)]


@pytest.mark.parametrize(("by", "stack"), MODES)
@on_a_loop
async def test_figure_2(by, stack):
    async with members(4, f"figure2-{by}-{stack}", stack) as (one, two, three, four):
        host = await one.slots(plan_of(FIGURE_2), by=by)
        async with host:
            assert host.state == "waiting" and host.name == "figure2"
            producer = await one.enroll("producer")
            await host.running(timeout=5)
            consumers = [await bus.enroll(f"consumer{n}") for n, bus in enumerate((two, three, four), 1)]
            read = [await reading(slot) for slot in consumers]
            for n in range(10):
                await producer.send("red", {"n": n})
            await producer.send("green", "only two")
            await eventually(lambda: [len(into) for into, _ in read] == [10, 1, 10])
            assert read[1][0] == ["only two"]
            with pytest.raises(Refused, match="has its 1 occupants"):
                await two.enroll("consumer2")
            await eventually(lambda: producer.queued == 0)
            for _, task in read:
                task.cancel()


@pytest.mark.parametrize(("by", "stack"), MODES[1:3])
@on_a_loop
async def test_questions_are_answered_to_the_one_who_asked(by, stack):
    async with members(3, f"ask-{by}", stack) as (one, two, three):
        plan = SHEET.replace("slot sheet 1..4", "slot sheet 1..4").replace("invoked", "transient")
        await one.slots(plan_of(plan), by=by)
        sheets = [await two.enroll("sheet"), await three.enroll("sheet")]
        late = [asyncio.create_task(sheet.ask("query", f"from {n}", timeout=10)) for n, sheet in enumerate(sheets)]
        await asyncio.sleep(0.2)
        database = await one.enroll("database")

        async def answer(message):
            if message.body == "wrong":
                raise ValueError("no such table")
            if message.body == "strange":
                return "text, and the plan says data"
            return {"rows": message.body.upper()}

        answering = asyncio.create_task(database.port("query").handle(answer))
        assert await asyncio.gather(*late) == [{"rows": "FROM 0"}, {"rows": "FROM 1"}]
        with pytest.raises(RemoteError, match="no such table"):
            await sheets[0].ask("query", "wrong")
        with pytest.raises(RemoteError, match="an answer on port 'query' takes 'data' and this is 'text'"):
            await sheets[0].ask("query", "strange")
        with pytest.raises(BadBody, match="takes 'text'"):
            await sheets[0].ask("query", b"bytes")
        answering.cancel()


@on_a_loop
async def test_waits_bounds_and_reports():
    plan = "bus w\nslot p { out o }\nslot c 0..2 { in in }\np.o -> c.in capacity 3 ttl 400 ms"
    async with members(3, "waits") as (one, two, three):
        await one.slots(plan_of(plan))
        producer = await one.enroll("p")
        reports = []
        producer.on_expired(reports.append)
        with pytest.raises(Expired, match=r"c\.in"):
            await producer.send("o", 1, wait="first")
        assert reports[0].missing == ("c.in",) and producer.expired_count == 1
        with pytest.raises(Uncertain, match="and queued"):
            await producer.send("o", 2, wait="all", timeout=0.05)
        await producer.send("o", 3), await producer.send("o", 4)
        with pytest.raises(Overflow, match="holds its 3"):
            await producer.send("o", 5)
        await eventually(lambda: producer.queued == 0)
        quick, slow = await two.enroll("c"), await three.enroll("c")
        into, task = await reading(quick)
        sent = await producer.send("o", 6, wait="first")
        assert sent.count == 2 and sent.acknowledged == 1 and not sent.done
        with pytest.raises(Expired):
            await sent.delivered()
        assert into == [6] and slow.state == "enrolled"
        with pytest.raises(BadInput, match="use 'first', 'all'"):
            await producer.send("o", 7, wait="some")
        task.cancel()


@on_a_loop
async def test_what_is_withheld_comes_again_and_routes_change():
    async with members(3, "routes") as (one, two, _):
        await one.slots(plan_of(FIGURE_2))
        producer, consumer = await one.enroll("producer"), await two.enroll("consumer2")
        await producer.send("green", "again")
        port = consumer.port("in")
        message = await port.receive(timeout=5)
        message.withhold()
        message = await port.receive(timeout=5)
        assert message.body == "again" and message.source == "producer.green"
        message.acknowledge()
        await eventually(lambda: producer.queued == 0)
        await producer.del_route("producer.green", "consumer2.in")
        sent = await producer.send("green", "to nobody")
        assert sent.count == 0
        await producer.add_route("producer.green", "consumer2.in", capacity=7, ttl_s=9)
        assert (await producer.send("green", "back")).ttl_s == 9
        assert (await port.receive(timeout=5)).body == "back"
        with pytest.raises(Refused, match="has no port 'pink'"):
            await producer.add_route("producer.pink", "consumer2.in")
        with pytest.raises(BadInput, match=r"write SLOT\.PORT"):
            await producer.add_route("producer", "consumer2.in")


@pytest.mark.parametrize(("by", "stack"), MODES[1:3])
@on_a_loop
async def test_a_consumer_moves_under_load_and_nothing_is_lost_or_doubled(by, stack):
    plan = "bus m\nslot p { out o }\nslot c { in in }\np.o -> c.in"
    async with members(3, f"moves-{by}", stack) as (one, two, three):
        await one.slots(plan_of(plan), by=by)
        producer, consumer = await one.enroll("p"), await two.enroll("c")
        into, task = await reading(consumer)

        async def produce():
            for n in range(100):
                await producer.send("o", n)
                await asyncio.sleep(0.002)

        producing = asyncio.create_task(produce())
        await eventually(lambda: len(into) > 20)
        carry = await consumer.move()
        await task
        await asyncio.sleep(0.05)
        again = await three.enroll("c", carry=carry)
        _, task = await reading(again, into=into)
        await producing
        await eventually(lambda: len(into) >= 100)
        await eventually(lambda: producer.queued == 0)
        assert sorted(into) == list(range(100))
        task.cancel()


@on_a_loop
async def test_a_router_moves_and_its_map_is_on_disk(tmp_path):
    async with members(3, "router-moves") as (one, two, three):
        plan = plan_of("bus r\nslot producer { out red }\nslot consumer2 { in in }")
        host = await one.slots(plan, store=tmp_path / "map.db")
        producer, consumer = await two.enroll("producer"), await three.enroll("consumer2")
        into, task = await reading(consumer)
        await producer.add_route("producer.red", "consumer2.in")
        await producer.send("red", 1)
        state = await host.move()
        sending = asyncio.create_task(producer.send("red", 2))
        await asyncio.sleep(0.1)
        host = await three.slots(state)
        await asyncio.wait_for(sending, 1)
        await host.close()
        host = await one.slots(plan, store=tmp_path / "map.db")
        assert [str(found) for found in host.map.connections.values()][-1] == "producer.red -> consumer2.in"
        await producer.send("red", 3)
        await eventually(lambda: sorted(into) == [1, 2, 3])
        assert producer.state == consumer.state == "enrolled"
        task.cancel()


@on_a_loop
async def test_keys():
    plan = f'bus k\nrole chief "{verifier("open", b"s" * 16, 5)}"\nslot a {{ enrol chief out o }}\nslot b {{ in in }}'
    for by, stack in MODES[1:3]:
        async with members(2, f"keys-{by}", stack) as (one, two):
            await one.slots(plan_of(plan), by=by)
            for key in (None, "wrong"):
                with pytest.raises(Refused, match="is for chief"):
                    await two.enroll("a", key=key)
            assert (await two.enroll("a", key="open")).state == "enrolled"


@on_a_loop
async def test_a_large_message():
    plan = plan_of("bus large slot p { out o } slot c { in in } p.o -> c.in")
    async with members(2, "large-best-effort") as (one, _):
        await one.slots(plan)
        with pytest.raises(TooLarge, match="which cuts it"):
            await (await one.enroll("p")).send("o", b"x" * 1_000_000)
    async with members(2, "large-views", "views") as (one, two):
        await one.slots(plan)
        producer, consumer = await one.enroll("p"), await two.enroll("c")
        into, task = await reading(consumer)
        await producer.send("o", b"x" * 1_000_000, wait="all", timeout=20)
        assert into == [b"x" * 1_000_000]
        task.cancel()


@on_a_loop
async def test_nobody_answers():
    async with members(1, "nobody") as (one,):
        with pytest.raises(NoMembers, match=r"start one with bus\.slots"):
            await one.enroll("a", timeout=0.2)
        with pytest.raises(BadInput, match="agreed views"):
            await one.slots(plan_of(FIGURE_2), by="replica")
        with pytest.raises(BadInput, match="use by="):
            await one.slots(plan_of(FIGURE_2), by="magic")


@on_a_loop
async def test_a_map_without_a_router_survives_a_minority():
    plan = "bus s\nslot c 0..many { in in }\nslot p 0..many { out o }\np.o -> c.in"
    async with members(5, "minority", "views") as buses:
        host = await buses[0].slots(plan_of(plan), by="replica")
        slots = [await bus.enroll("c" if n else "p", on="s") for n, bus in enumerate(buses[1:])]
        assert host.state == "running"
        buses[0].abandon(), buses[4].abandon()
        replica = buses[1]._style(Slots).replicas["s"]
        await eventually(lambda: len(replica.map.seats) == 3)
        read = [await reading(slot) for slot in slots[1:3]]
        await slots[0].send("o", "still here", wait="all", timeout=10)
        assert [into for into, _ in read] == [["still here"]] * 2
        for _, task in read:
            task.cancel()
