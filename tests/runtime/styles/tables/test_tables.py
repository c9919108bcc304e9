"""Queues and durable topics as tables: from a keeper, another member, a client, in memory, without await."""

import asyncio
import json

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput, Refused, TooLarge
from tests.runtime.clients.test_client import served, url_of
from tests.runtime.styles.queues.test_queues import opened

WAIT_S = 60


class TablesParcel(msgspec.Struct):
    weight: int


pluribus.register(TablesParcel)


@pytest.mark.parametrize("how", ["keeper", "member", "client", "memory", "client-memory"])
def test_a_queue_is_a_table_everywhere(how, tmp_path):
    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            q = await bus.queue("orders", **options)
            for number in range(6):
                region = "eu" if number % 3 else "us"
                await q.send(
                    {"n": number}, properties={"region": region, "n": number}, priority=number, key=f"k{number}"
                )
            await q.send(TablesParcel(7), id="seven", correlation="c", reply_to="r", delay=1_000, ttl=2_000)
            await q.send(b"plain")
            message = await q.receive("n = 5", timeout=WAIT_S)
            await message.reject("broken")
            counted = await q.sql("SELECT region, count(*) FROM orders WHERE age_s >= 0 GROUP BY region ORDER BY 1")
            assert counted.columns == ["region", "count(*)"]
            assert counted.rows == [(None, 2), ("eu", 4), ("us", 2)]
            found = await q.sql("SELECT number, body ->> 'n', state, reason FROM orders WHERE priority = 5")
            assert found.rows == [(5, 5, "dead", "broken")] and found.copied == 1
            found = await q.sql(
                "SELECT id, body ->> 'weight' AS weight, correlation, reply_to, delay > 900, ttl > 1900, state,"
                " sent > 0 FROM orders WHERE state = 'delayed'"
            )
            assert found.rows == [("seven", 7, "c", "r", 1, 1, "delayed", 1)] and found.copied == 1
            found = await q.sql("SELECT * FROM orders WHERE region = 'us'")
            assert len(found.columns) == 18 and found.dicts()[0]["body"] == '{"n":0}' and len(found) == 2
            assert (await q.sql("SELECT body, typeof(body) FROM orders WHERE number = 7")).rows == [(b"plain", "blob")]
            assert (await q.stats()).depth == 7, "nothing was taken"

    asyncio.run(scenario())


def test_queues_and_topics_are_joined(tmp_path):
    async def scenario():
        async with served(f"tables-{tmp_path.name}", store=tmp_path / "a.db") as bus:
            orders, parcels = await bus.queue("orders"), await bus.queue("parcels")
            for number in range(4):
                await orders.send({"n": number}, key=f"k{number}", properties={"region": "eu"})
            for number in range(2):
                await parcels.send({"p": number}, key=f"k{number}")
            await bus.publish("shop/sold", {"key": "k1"}, durable=True, headers={"by": "ann"})
            await bus.publish("shop/returned", {"key": "k2"}, durable=True, headers={"by": "bob"})
            missing = await bus.sql(
                "SELECT o.key FROM orders o LEFT JOIN parcels p ON o.key = p.key WHERE p.number IS NULL ORDER BY 1"
            )
            assert missing.rows == [("k2",), ("k3",)]
            sold = await bus.sql(
                "SELECT o.number, t.offset, t.by FROM orders o JOIN topics.\"shop/sold\" t ON t.body ->> 'key' = o.key"
            )
            assert sold.rows == [(1, 0, "ann")]
            every = await bus.sql(
                'SELECT topic, count(*) FROM topics."shop/#" WHERE age_s < 1e6 GROUP BY topic ORDER BY 1'
            )
            assert every.rows == [("shop/returned", 1), ("shop/sold", 1)]

    asyncio.run(scenario())


def test_what_is_refused_says_why(tmp_path):
    async def scenario():
        async with served(f"tables-{tmp_path.name}", store=tmp_path / "a.db") as bus:
            q = await bus.queue("orders")
            await q.send("x", properties={"region": "eu"})
            for number in range(300):
                q.send_soon(number)
            await q.flush()
            for statement, error, reason in [
                ("DELETE FROM orders", BadInput, "only a SELECT"),
                ("PRAGMA table_list", BadInput, "only a SELECT"),
                ("WITH a AS (SELECT 1) INSERT INTO orders SELECT * FROM a", BadInput, "only a SELECT"),
                ("SELECT 1; SELECT 2", BadInput, "one SELECT at a time"),
                ("SELEC", BadInput, "only a SELECT"),
                ("SELECT FROM WHERE", BadInput, "cannot be read|syntax error"),
                ("SELECT regoin FROM orders", BadInput, "no property|has a property 'regoin': there are region"),
                ("SELECT x.a FROM orders", BadInput, "no such column: x.a"),
                ("SELECT nope(key) FROM orders", BadInput, "no such function"),
                ("SELECT * FROM nowhere", BadInput, "there is no queue 'nowhere'"),
                ("SELECT * FROM memory.orders", BadInput, "in memory is open here"),
                ('SELECT * FROM topics."none"', BadInput, "no durable topic"),
                ("SELECT * FROM other.orders", BadInput, "no schema 'other'"),
                ("SELECT number FROM orders", TooLarge, "more than 100 rows: add a LIMIT"),
                ("SELECT load_extension('x') FROM orders", BadInput, "only a SELECT"),
            ]:
                with pytest.raises(error, match=reason):
                    await bus.sql(statement, rows_max=100)
            with pytest.raises(Refused, match="not answered in"):
                await bus.sql(
                    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
                    timeout=0.5,
                )
            for bad in ({"rows_max": 0}, {"timeout": 0}):
                with pytest.raises(BadInput, match="give"):
                    await bus.sql("SELECT 1", **bad)

    asyncio.run(scenario())


def test_without_await_and_how_results_are_written(tmp_path):
    with pluribus.sync.connect(f"inproc://tables-{tmp_path.name}", store=tmp_path / "a.db") as bus:
        q = bus.queue("orders")
        q.send("one", properties={"region": "eu"})
        q.send(b"\x01")
        found = q.sql("SELECT number, region, body FROM orders")
        assert bus.sql("SELECT count(*) FROM queues.orders").rows == [(2,)]
    assert found.csv() == "number,region,body\n0,eu,one\n1,,01\n"
    assert json.loads(found.json())[1] == {"number": 1, "region": None, "body": "01"}
    assert found.text().splitlines() == [
        "number  region  body",
        "------  ------  ----",
        "     0  eu      one",
        "     1          01",
    ]


def test_long_bodies_are_read_in_pieces(tmp_path):
    async def scenario():
        async with (
            served(f"tables-{tmp_path.name}", store=tmp_path / "a.db") as bus,
            pluribus.connect(url_of(bus)) as far,
        ):
            q = await far.queue("orders")
            await q.send({"long": "x" * (3 << 20)})
            assert (await far.sql("SELECT length(body ->> 'long') FROM orders")).rows == [(3 << 20,)]

    asyncio.run(scenario())
