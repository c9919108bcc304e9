"""The faces as an editor and ``mypy --strict`` see them: right programs pass, and each typo is found."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.xdist_group("types")  # mypy runs once for all tests of this file

RIGHT = """
import asyncio

import msgspec

import pluribus
import pluribus.sync
from pluribus import DurableSubscription, Event, Subscription


class Tick(msgspec.Struct):
    price: float


async def main() -> None:
    async with pluribus.connect("inproc://types") as bus:
        mid = await bus.publish("stocks/ibm", Tick(1.0), headers={"desk": 7}, retain=True)
        print(mid[0], mid[1])
        bus.publish_soon("stocks/ibm", Tick(2.0), durable=True)
        await bus.publish_many([("stocks/ibm", Tick(3.0))], timeout=3.0)
        async with bus.subscribe("stocks/+", where="price > 1", type=Tick) as ticks:
            live: Subscription[Tick] = ticks
            async for event in live:
                told: Event[Tick] = event
                price: float = told.body.price
                print(price)
        async with bus.subscribe("stocks/+", type=Tick, durable="desk", start="earliest") as kept:
            durable: DurableSubscription[Tick] = kept
            print((await durable.receive(1.0)).body.price + 1.0)
        async with bus.subscribe("stocks/+", type=Tick, durable="desks", shared=True) as taken:
            await taken.give_back(await taken.receive(1.0), reason="later")
            print([letter.reason for letter in await taken.dead()])
        async with bus.mailbox("ann") as box:
            await box.post("hello", timeout=1.0)
            await box.acknowledge(await box.receive(1.0))
        answers = await bus.ask("alarms", "fire?", replies="majority", timeout=2.0)
        print(answers[0].body)


def scripts() -> None:
    with pluribus.sync.connect("inproc://types") as bus:
        bus.publish("stocks/ibm", Tick(1.0), durable=True, timeout=3.0)
        with bus.subscribe("stocks/+", type=Tick) as ticks:
            for event in ticks:
                print(event.body.price + 1.0)
        with bus.subscribe("stocks/+", type=Tick, durable="desk", start="earliest") as kept:
            print(kept.receive(1.0).body.price + 1.0)
            kept.commit()
        with bus.subscribe("stocks/+", type=Tick, durable="desks", shared=True) as taken:
            taken.give_back(taken.receive(1.0), reason="later")
        with bus.mailbox("ann") as box:
            print(box.post("hello", timeout=1.0)[1] + 1)
            box.acknowledge(box.receive(1.0))
        group = bus.group("alarms", order="total")
        for answer in group.ask("fire?", replies="majority", timeout=2.0):
            print(answer.body)
        print(bus.cache("prices").get("ibm"), bus.sql("select 1").rows, bus.relay("alarms").pending)
        bus.notifications("news", object()).notify("rain", timeout=1.0)


asyncio.run(main())
"""

STYLES = """
import pluribus
import pluribus.sync
from pluribus import EnrolledSlot, MessageQueue, QueueMessage, Room, Shadow, Space, Transaction


async def styles(bus: pluribus.Bus) -> None:
    orders: MessageQueue = await bus.queue("orders", tries=3, backoff=(1.0, 5.0))
    await orders.send({"n": 1}, priority=5, ttl=10.0, key="k")
    orders.send_soon("later", delay=1.0)
    async with orders.receive("n > 0", timeout=1.0) as held:
        message: QueueMessage[object] | None = held
        print(message.deliveries + 1 if message else "none")
    async with orders.messages(credit=10) as messages:
        async for one in messages:
            await one.nack(delay=2.0)
    print((await orders.stats()).depth + 1)
    space: Space = await bus.space("tuples", kind="replicated", durable=True)
    lease = await space.write(("a", 1), lease=60.0)
    print(await lease.renew(5.0), await space.take(("a", int), timeout=1.0))
    async for event in await space.notify(("a", int), hand_back="here"):
        print(event.sequence + event.missed)
    async with bus.transaction(timeout=30.0) as tx:
        acting: Transaction = tx
        got = await acting.receive(orders, timeout=1.0)
        await acting.send(orders, "done", correlation=got.id if got else "")
        await acting.publish("log", "done", headers={"by": "ann"})
        await space.take(("a", int), transaction=acting)
        await acting.write(space, ("b", 2))
    print(await bus.transaction_state(acting.id))
    here: Shadow = await bus.directory.add(object(), "meter", id=None)
    print((await here.ask("(ask-one :content degrees)", timeout=1.0)).content)
    await bus.communicator.send("meter", "(tell :content hello)", sender=here)
    async with bus.communicator.subscribe(here, "degrees") as updates:
        print((await updates.receive(1.0)).content)
    room: Room = await bus.conversation("plans", description="ours", messages_max=100)
    await room.send("hello", parent=None)
    async for entry in room:
        print(entry.body, entry.id[0] + 1)
    lobby = await bus.conversations()
    print([info.gid for info in lobby.invited], await lobby.join("plans"))
    async with await bus.slots("plan.bus", by="replica") as host:
        print(host.state, host.map.plan.name)
    slot: EnrolledSlot = await bus.enroll("a", on="s", timeout=5.0)
    sent = await slot.send("out", 1, wait="first", to=["b.in"])
    await sent.delivered(1.0)
    async for arrived in slot.port("in"):
        arrived.reply(arrived.source)
    print([shown.bus for shown in await (await bus.communications()).buses(listen_s=0.1)])
    print((await bus.access.list()).users, [one.here for one in await bus.keepers.ls()])
    await bus.durable.retain("t", age=3600.0)
    print(await bus.log("t").offsets(), (await bus.sql("select 1", rows_max=5)).rows)


def without_await(bus: pluribus.sync.Bus) -> None:
    orders: pluribus.sync.MessageQueue = bus.queue("orders", tries=3, backoff=(1.0, 5.0))
    print(orders.send({"n": 1}, priority=5, ttl=10.0, key="k")[0] + 1)
    orders.send_soon("later", delay=1.0)
    with orders.receiving("n > 0", timeout=1.0) as held:
        message: pluribus.sync.QueueMessage | None = held
        print(message.deliveries + 1 if message else "none")
    with orders.messages(credit=10) as messages:
        for one in messages:
            one.nack(delay=2.0)
    print(orders.stats().depth + 1, messages.late + 1, [seen.size + 1 for seen in orders.browse(dead=True)])
    space: pluribus.sync.Space = bus.space("tuples", kind="replicated", durable=True)
    lease = space.write(("a", 1), lease=60.0)
    print(lease.renew(5.0), lease.number + 1, space.take(("a", int), timeout=1.0))
    for event in space.notify(("a", int), hand_back="here"):
        print(event.sequence + event.missed)
    with bus.transaction(timeout=30.0) as tx:
        acting: pluribus.sync.Transaction = tx
        got = acting.receive(orders, timeout=1.0)
        acting.send(orders, "done", correlation=got.id if got else "")
        acting.publish("log", "done", headers={"by": "ann"})
        space.take(("a", int), transaction=acting)
        acting.write(space, ("b", 2))
    print(bus.transaction_state(acting.id).upper())
    here: pluribus.sync.Shadow = bus.directory.add(object(), "meter", id=None)
    print(here.ask("(ask-one :content degrees)", timeout=1.0).content)
    bus.communicator.send("meter", "(tell :content hello)", sender=here)
    with bus.communicator.subscribe(here, "degrees") as updates:
        print(updates.receive(1.0).content)
    room: pluribus.sync.Room = bus.conversation("plans", description="ours", messages_max=100)
    room.send("hello", parent=None)
    for entry in room:
        print(entry.body, entry.id[0] + 1)
    lobby = bus.conversations()
    print([info.gid for info in lobby.invited], lobby.join("plans").members, [info.gid for info in lobby])
    with bus.slots("plan.bus", by="replica") as host:
        print(host.state, host.map.plan.name)
    slot: pluribus.sync.EnrolledSlot = bus.enroll("a", on="s", timeout=5.0)
    sent = slot.send("out", 1, wait="first", to=["b.in"])
    sent.delivered(1.0)
    for arrived in slot.port("in"):
        arrived.reply(arrived.source)
    print([shown.bus for shown in bus.communications().buses(listen_s=0.1)])
    print(bus.access.list().users, [one.here for one in bus.keepers.ls()], [door.address[1] + 1 for door in bus.doors])
    bus.durable.retain("t", age=3600.0)
    print(bus.log("t").offsets()[1] + 1, bus.sql("select 1", rows_max=5).rows)
"""

WRONG = {
    "await bus.publish('t', 1, tiemout=3)": "tiemout",
    "bus.publish_soon('t', 1, tiemout=3)": "tiemout",
    "await bus.publish_many([('t', 1)], retian=True)": "retian",
    "bus.subscribe('t', wher='a > 1')": "subscribe",
    "(await bus.subscribe('t', type=Tick).receive()).body.prize": "prize",
    "(await bus.subscribe('t', type=Tick, durable='d').receive()).body.prize": "prize",
    "bus.on('t', backlgo=1)": "backlgo",
    "await bus.ask('alarms', 'fire', replys=1)": "replys",
    "await bus.group('alarms', oder='total')": "oder",
    "pluribus.sync.connect('inproc://x').publish('t', 1, tiemout=3)": "tiemout",
    "pluribus.sync.connect('inproc://x').subscribe('t', type=Tick).receive().body.prize": "prize",
    "pluribus.sync.connect('inproc://x').subscribe('t', type=Tick, durable='d').comit()": "comit",
    "pluribus.sync.connect('inproc://x', stroe='a.db')": "stroe",
    "pluribus.sync.connect('inproc://x').publsh('t', 1)": "publsh",
    "pluribus.sync.connect('inproc://x').group('g').send('x', timout=1)": "timout",
    "pluribus.sync.connect('inproc://x').group('g').sned('x')": "sned",
    "pluribus.sync.connect('inproc://x').conversation('c', storre='a.db')": "storre",
    "await bus.objects('o', oder='total')": "oder",
    "await bus.notifications('n', object(), oder='total')": "oder",
    "await (await bus.notifications('n', object())).notify('x', timout=1)": "timout",
}

OF_A_BUS = {
    "publish('t', 1, heders={})": "heders",
    "publish_many([('t', 1)], liev=False)": "liev",
    "subscribe('t', slwo='tell').close()": "subscribe",
    "matches('t', 'p', backlgo=1).close()": "backlgo",
    "mailbox('b', comit='auto').close()": "comit",
    "advertise('t', abuot='x')": "abuot",
    "wait_for(2, timout=1)": "timout",
    "wait_for_subscribers('t', 2, timout=1)": "timout",
    "group('g', saef=True)": "saef",
    "send('g', 'x', timout=1)": "timout",
    "ask('g', 'x', replys=1)": "replys",
    "objects('g', one_by_on=True)": "one_by_on",
    "cache('c', entrys_max=1)": "entrys_max",
    "replica('r', object(), durabel=True)": "durabel",
    "transformer('a', 'b', chian='json')": "chian",
    "queued_calls.answer('c', timout=1)": "timout",
    "omni(object, resluts='all')": "resluts",
    "virtual_network('n', mdoe='unicast')": "mdoe",
    "queue('q', trys=3)": "trys",
    "queues(timout=1)": "timout",
    "space('s', kynd='views')": "kynd",
    "spaces(timout=1)": "timout",
    "conversation('c', descripton='x')": "descripton",
    "conversations(stroe='a.db')": "stroe",
    "enroll('a', no='s')": "no",
    "slots('plan.bus', bye='replica')": "bye",
    "transactions(prepard=True)": "prepard",
    "resolve_transaction(1, comit=True)": "comit",
    "sql('select 1', row_max=1)": "row_max",
    "durable.retain('t', aeg=1)": "aeg",
    "log('t').fecth(0)": "fecth",
    "access.add_user('ann', pasword='x')": "pasword",
    "keepers.forse()": "forse",
    "directory.find('meter', timout=1)": "timout",
    "communicator.send('meter', '(tell)', sendr=None)": "sendr",
    "flsh()": "flsh",
}
"""Tried on a member, on a client and on a bus without ``await``."""

OF_WHAT_IT_OPENED = {
    "queue.send('x', prority=1)": "prority",
    "queue.purge(deda=True)": "deda",
    "queue.configure(trys=1)": "trys",
    "message.nack(delya=1)": "delya",
    "space.take(('a',), timout=1)": "timout",
    "space.write(('a',), leese=1)": "leese",
    "lease.renw(1)": "renw",
    "tx.send(QUEUE, 'x', prority=1)": "prority",
    "tx.publish('t', 'x', header={})": "header",
    "tx.comit()": "comit",
    "shadow.ask('(tell)', timout=1)": "timout",
    "room.send('x', parnt=None)": "parnt",
    "room.leaf()": "leaf",
    "slot.send('out', 1, wiat='all')": "wiat",
    "slot.add_route('a.o', 'b.i', ttl=1)": "ttl",
}
"""Tried on what a program holds of the styles, with ``await`` and without."""

WRONG |= {f"{on}.{call}": word for on in ("await bus", "await client", "plain") for call, word in OF_A_BUS.items()}
WRONG |= {
    f"{on}.{call.replace('QUEUE', f'{of}.queue')}": word
    for on, of in (("await held", "held"), ("plain_held", "plain_held"))
    for call, word in OF_WHAT_IT_OPENED.items()
}

FRAME = """
import msgspec

import pluribus
import pluribus.sync
import pluribus.types


class Tick(msgspec.Struct):
    price: float


class Held:
    queue: pluribus.MessageQueue
    message: pluribus.QueueMessage[object]
    space: pluribus.Space
    lease: pluribus.types.Lease
    tx: pluribus.Transaction
    shadow: pluribus.Shadow
    room: pluribus.Room
    slot: pluribus.EnrolledSlot


class PlainHeld:
    queue: pluribus.sync.MessageQueue
    message: pluribus.sync.QueueMessage
    space: pluribus.sync.Space
    lease: pluribus.sync.Lease
    tx: pluribus.sync.Transaction
    shadow: pluribus.sync.Shadow
    room: pluribus.sync.Room
    slot: pluribus.sync.EnrolledSlot


async def wrong(bus: pluribus.Bus, held: Held, plain: pluribus.sync.Bus, plain_held: PlainHeld) -> None:
    client = await pluribus.connect("client://127.0.0.1:7400/types")
{lines}
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """What mypy says of the right program, and of one with every typo, by line: one run, because loading it costs."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "right.py").write_text(RIGHT)
    (folder / "styles.py").write_text(STYLES)
    (folder / "wrong.py").write_text(FRAME.format(lines=textwrap.indent("\n".join(WRONG), "    ")))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "styles.py", "wrong.py"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert not found.stderr, found.stderr
    return found.stdout.splitlines()


@pytest.mark.timeout(600)
def test_right_programs_have_the_types_that_they_say(complaints):
    assert not [line for line in complaints if line.startswith(("right.py", "styles.py"))]


@pytest.mark.timeout(600)
def test_every_typo_is_found(complaints):
    first = FRAME.splitlines().index("{lines}") + 1
    for place, (line, word) in enumerate(WRONG.items()):
        told = [one for one in complaints if one.startswith(f"wrong.py:{first + place}:")]
        assert any(word in one for one in told), f"{line}: {told}"
