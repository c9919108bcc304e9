"""The outbox with a real PostgreSQL: processes are killed at every step that docs/outbox.md has a row for."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import psycopg
import pytest

import pluribus
from pluribus import outbox
from pluribus.cli import app
from pluribus.core.errors import BadInput, LeaseEnded, PluribusError
from pluribus.outbox.tables import waiting
from tests.outbox.shop import HOLD_S

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120
ORDERS = 4
"""That the shop writes before each kill."""


def documented_steps() -> list[str]:
    text = (ROOT / "docs" / "outbox.md").read_text(encoding="utf-8")
    table = text.partition("| who dies | what holds |\n|---|---|\n")[2].partition("\n\n")[0]
    return re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE)


def documented_programs() -> list[str]:
    """What stands indented in the document: the shop's program, and that of whoever handles its messages."""
    text = (ROOT / "docs" / "outbox.md").read_text(encoding="utf-8")
    found = re.findall(r"^(?:    .*\n(?:\n(?=    ))?)+", text, flags=re.MULTILINE)
    return [textwrap.dedent(one) for one in found]


def test_the_programs_of_the_document(dsn, tmp_path):
    async def scenario():
        shop, handler = documented_programs()
        async with shop_bus(tmp_path) as (bus, _):
            with psycopg.connect(dsn, autocommit=True) as db:
                db.execute("DROP TABLE orders; CREATE TABLE orders (number bigint, book text)")
                db.execute("DROP TABLE IF EXISTS labels; CREATE TABLE labels (number bigint)")
                names = {"db": db, "number": 7, "book": "Dune", "customer": 1, "parcels": await bus.queue("parcels")}
                exec(shop, names)
                await forwarded(bus, dsn)
                exec(f"async def handle():\n{textwrap.indent(handler, '    ')}", names)
                await names["handle"]()
                assert db.execute("SELECT * FROM orders").fetchall() == [(7, "Dune")]
                assert db.execute("SELECT * FROM labels").fetchall() == [(7,)]
                db.execute("DROP TABLE labels; DROP TABLE orders")

    asyncio.run(scenario())


@pytest.fixture
def dsn(postgres_server):
    """The server, with empty tables of the shop and its outbox."""
    with psycopg.connect(postgres_server) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {outbox.SCHEMA} CASCADE; DROP TABLE IF EXISTS orders, parcels")
        db.execute("CREATE TABLE orders (number bigint); CREATE TABLE parcels (number bigint)")
        outbox.create(db)
        outbox.create(db)  # twice is harmless
    return postgres_server


@asynccontextmanager
async def shop_bus(tmp_path):
    """A bus with its keeper, and the URL of its clients. The queue remembers no identities, so it hides nothing."""
    name = f"outbox-{os.getpid()}"
    async with pluribus.connect(f"inproc://{name}", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        host, port = bus.doors[0].address
        await bus.queue("parcels", window=0, tries=1_000, backoff=(0.01, 0.01), lease=3)
        yield bus, f"client://{host}:{port}/{name}"


def column(dsn, statement):
    with psycopg.connect(dsn) as db:
        return [one for (one,) in db.execute(statement)]


async def play(role, url, dsn, step, *numbers):
    """A process of the shop; whether it died at its step."""
    command = [sys.executable, "-m", "tests.outbox.shop", role, url, dsn, step, *map(str, numbers)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=subprocess.PIPE)
    async with asyncio.timeout(WAIT_S):
        _, said = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said.decode()
    return process.returncode == -signal.SIGKILL


async def forwarded(bus, dsn, forwarder=outbox.Forwarder):
    async with asyncio.timeout(WAIT_S):
        while waiting_now(dsn):
            with suppress(PluribusError, TimeoutError):  # the transaction of a dead forwarder has not ended
                await forwarder(bus, dsn, hold=HOLD_S).run(once=True)


def waiting_now(dsn):
    with psycopg.connect(dsn) as db:
        return waiting(db)


async def handled(bus, dsn, count):
    parcels = await bus.queue("parcels")
    async with asyncio.timeout(WAIT_S), await psycopg.AsyncConnection.connect(dsn, autocommit=True) as db:
        while (await parcels.stats()).depth or len(column(dsn, "SELECT number FROM parcels")) < count:
            with suppress(LeaseEnded):  # the machine was slow, and the message comes again
                async with parcels.receive(timeout=1) as parcel:
                    if parcel is None:
                        continue
                    async with db.transaction():
                        if await outbox.first_async(db, parcel, "store"):
                            await db.execute("INSERT INTO parcels VALUES (%s)", (parcel.body["order"],))


def check_once(orders, parcels):
    """Every order that was committed has one parcel, and nothing else has one."""
    twice = [one for one, count in Counter(parcels).items() if count > 1]
    assert not twice, f"forwarded or handled twice: {twice}"
    assert sorted(orders) == sorted(parcels), f"lost or invented: {set(orders) ^ set(parcels)}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_is_killed_at_every_step(dsn, tmp_path):
    asyncio.run(killed_at_every_step(dsn, tmp_path))


async def killed_at_every_step(dsn, tmp_path):
    steps = documented_steps()
    assert len(steps) == len(set(steps)) >= 12
    number = 0
    async with shop_bus(tmp_path) as (bus, url):
        for step in steps:
            shop_dies = step.startswith("the shop")
            died = await play("shop", url, dsn, step if shop_dies else "", number, number + ORDERS)
            number += ORDERS
            if step in ("the forwarder, named", "the forwarder, begun"):  # what happens once in the life of a lane
                with psycopg.connect(dsn) as db:
                    db.execute(f"DELETE FROM {outbox.SCHEMA}.lanes")
            if step.startswith("the forwarder"):
                died = await play("forward", url, dsn, step)
            await forwarded(bus, dsn)
            orders = column(dsn, "SELECT number FROM orders")
            assert (await (await bus.queue("parcels")).stats()).state.sent == len(orders), f"after {step}"
            if step.startswith("the consumer"):
                died = await play("store", url, dsn, step, len(orders))
            assert died, f"no process ever was at: {step}"
            await handled(bus, dsn, len(orders))
            check_once(orders, column(dsn, "SELECT number FROM parcels"))
            if step == "the shop, before its commit":
                assert number - 1 not in orders


class Twice(outbox.Forwarder):
    """A mistake: the place on the bus does not change together with what is sent."""

    async def _send(self, name, tag, place, rows):
        queue = await self._bus.queue(name)
        async with self._bus.transaction() as tx:
            from pluribus.runtime.styles.queues.options import message_of

            for id, options, body in rows:
                await tx.pass_on(queue, message_of(options["kind"], body, 4, None, None, None, "", id, "", ""))
        raise PluribusError("dead before the place is written")


def test_an_outbox_that_forwards_twice_is_found(dsn, tmp_path):
    async def played():
        async with shop_bus(tmp_path) as (bus, _):
            with psycopg.connect(dsn) as db:
                outbox.send(db, "parcels", {"order": 1})
            with pytest.raises(PluribusError, match="dead before"):
                await Twice(bus, dsn).run(once=True)
            await forwarded(bus, dsn)
            parcels = await bus.queue("parcels")
            return [one.body["order"] async for one in parcels.browse()]

    with pytest.raises(AssertionError, match="twice"):
        check_once([1], asyncio.run(played()))


@pluribus.register
class OutboxParcel(msgspec.Struct):
    order: int


def test_bodies_and_options_arrive_as_they_were_sent(dsn, tmp_path):
    asyncio.run(bodies_and_options(dsn, tmp_path))


async def bodies_and_options(dsn, tmp_path):
    long = bytes(range(256)) * (5 << 10)  # more than one transaction carries in itself
    bodies = [b"bytes", "text", {"a": [1, None]}, OutboxParcel(7), long]
    async with shop_bus(tmp_path) as (bus, _):
        running = asyncio.create_task(outbox.Forwarder(bus, dsn).run())
        async with await psycopg.AsyncConnection.connect(dsn) as db:
            for body in bodies:
                options = {"priority": 0, "key": "k", "correlation": "c", "reply_to": "r", "properties": {"x": 1.5}}
                await outbox.send_async(db, "parcels", body, id=f"id {len(body) if body is long else body}", **options)
            await outbox.send_async(db, "other", "elsewhere")
        parcels, other = await bus.queue("parcels"), await bus.queue("other")
        async with other.receive(timeout=WAIT_S) as m:
            assert m.body == "elsewhere" and m.id
        for body in bodies:
            async with parcels.receive("x = 1.5", timeout=WAIT_S) as m:
                assert m.body == body
                assert (m.priority, m.key, m.correlation, m.reply_to) == (0, "k", "c", "r")
                assert m.id.startswith("id ")
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def test_a_full_queue_holds_up_its_own_messages_alone(dsn, tmp_path):
    asyncio.run(full_queue(dsn, tmp_path))


async def full_queue(dsn, tmp_path):
    async with shop_bus(tmp_path) as (bus, _):
        narrow, parcels = await bus.queue("narrow", messages_max=1, full="refuse"), await bus.queue("parcels")
        await narrow.send("in the way")
        with psycopg.connect(dsn) as db:
            outbox.send(db, "narrow", "waits")
            outbox.send(db, "parcels", "passes")
        with pytest.raises(PluribusError, match="1 messages, its limit"):
            await outbox.Forwarder(bus, dsn).run(once=True)
        assert (await parcels.stats()).depth == 1
        assert [one["queue"] for one in waiting_now(dsn)] == ["narrow"]
        async with narrow.receive(timeout=WAIT_S) as m:
            assert m.body == "in the way"
        await outbox.Forwarder(bus, dsn).run(once=True)
        async with narrow.receive(timeout=WAIT_S) as m:
            assert m.body == "waits"


def test_another_bus_is_noticed(dsn, tmp_path):
    asyncio.run(another_bus(dsn, tmp_path))


async def another_bus(dsn, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        async with shop_bus(tmp_path / folder) as (bus, _):
            with psycopg.connect(dsn) as db:
                outbox.send(db, "parcels", folder)
            if folder == "two":
                with pytest.raises(PluribusError, match="of another bus"):
                    await outbox.Forwarder(bus, dsn).run(once=True)
            assert await outbox.Forwarder(bus, dsn, anew=folder == "two").run(once=True) == 1


def test_bad_input_is_told_before_the_commit(dsn):
    with psycopg.connect(dsn) as db:
        with pytest.raises(BadInput, match="priorit"):
            outbox.send(db, "parcels", 1, priority=10)
        with pytest.raises(BadInput, match="schema"):
            outbox.send(db, "parcels", 1, schema="a; DROP TABLE orders")
        with pytest.raises(BadInput, match="seconds above 0"):
            outbox.forget(db, 0)
        assert not waiting(db)


def test_what_was_handled_is_forgotten_in_the_end(dsn):
    class Handled:
        id = "m1"

    with psycopg.connect(dsn) as db:
        assert outbox.first(db, Handled, "store") and not outbox.first(db, Handled, "store")
        assert outbox.first(db, Handled, "another")
        db.execute(f"UPDATE {outbox.SCHEMA}.handled SET at = now() - interval '2 days' WHERE consumer = 'store'")
        assert outbox.forget(db, 86_400) == 1
        assert outbox.first(db, Handled, "store")


def test_the_command_line(dsn, tmp_path, capsys):
    assert app.run(["outbox", "create", dsn]) == 0
    with psycopg.connect(dsn) as db:
        outbox.send(db, "parcels", 1)
    assert app.run(["outbox", "status", dsn, "--json"]) == 0
    assert '"messages": 1' in capsys.readouterr().out.replace('":1', '": 1')
    assert app.run(["outbox", "status", "host=127.0.0.1 port=1 connect_timeout=1"]) == 2
    assert "cannot be opened" in capsys.readouterr().err

    async def forwarding():
        async with shop_bus(tmp_path) as (_, url):
            command = [sys.executable, "-m", "pluribus", "outbox", "forward", dsn, "--url", url, "--once"]
            process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            async with asyncio.timeout(WAIT_S):
                return (await process.communicate())[0].decode()

    assert asyncio.run(forwarding()) == "1 forwarded\n"
    assert app.run(["outbox", "status", dsn]) == 0
    assert capsys.readouterr().out == "nothing waits\n"
