"""``pluribus queue``: every verb, as a client of a keeper."""

import asyncio
import json
import sys

import pluribus
from pluribus.cli import app
from tests.cli.test_topics import command, running
from tests.runtime.clients.test_client import served, url_of


def test_every_verb(tmp_path):
    asyncio.run(every_verb(tmp_path))


async def every_verb(tmp_path):
    async with served("cli-queue", store=tmp_path / "a.db") as keeper, pluribus.connect(url_of(keeper)) as client:
        url = url_of(keeper)

        async def told(*arguments):
            return [
                json.loads(line)
                for line in (await command("queue", *arguments, "--url", url, "--json")).split("\n")
                if line
            ]

        (sent,) = await told("send", "orders", '{"n": 1}', "text", "--property", "region=eu", "--priority", "7")
        assert sent == {"queue": "orders", "sent": 2}
        first, second = await told("browse", "orders", "--where", "region = 'eu'")
        assert (first["body"], second["body"], first["state"]) == ({"n": 1}, "text", "ready")
        (rows,) = await told("sql", "SELECT region, count(*) AS n FROM orders GROUP BY region")
        assert rows == [{"region": "eu", "n": 2}]
        assert (
            await command("queue", "sql", "SELECT priority FROM orders LIMIT 1", "--url", url, "--csv")
            == "priority\n7\n"
        )
        (received,) = await told("receive", "orders", "--timeout", "60")
        assert received["body"] == {"n": 1} and received["priority"] == 7
        (paused,) = await told("pause", "orders")
        assert paused["paused"]
        await told("pause", "orders", "--off")
        q = await client.queue("orders")
        message = await q.receive(timeout=60)
        await message.reject("no")
        (dead,) = await told("browse", "orders", "--dead")
        assert dead["reason"] == "no"
        assert await told("redrive", "orders") == [{"queue": "orders", "redriven": 1}]
        (stats,) = await told("stats", "orders", "--seconds", "0.1")
        assert stats["depth"] == 1 and stats["sent"] == 2
        assert await told("purge", "orders") == [{"queue": "orders", "purged": 1}]
        assert "depth" in await command("queue", "stats", "orders", "--url", url, "--seconds", "0.1")
        for mistyped in (("stats",), ("browse",), ("purge", "--yes"), ("redrive",), ("pause",)):
            error = await command("queue", mistyped[0], "ordesr", *mistyped[1:], "--url", url, status=2)
            assert "there is no queue 'ordesr' on this bus, only 'orders'" in " ".join(error.split())
        with running("queue", "ls", "--url", url) as process:
            assert await asyncio.to_thread(process.communicate, timeout=60) == ("orders\n", "")
        assert await told("ls") == [{"queues": ["orders"]}]
        assert await command("queue", "ls", "--url", url) == "orders\n"


def test_messages_are_transformed(tmp_path):
    asyncio.run(transformed(tmp_path))


async def transformed(tmp_path):
    (tmp_path / "prices.py").write_text(
        "import pluribus\n\n\n@pluribus.transformation('priced')\ndef priced(rows):\n"
        "    return [row | {'total': 2 * int(row['copies'])} for row in rows]\n"
    )
    (tmp_path / "orders.csv").write_bytes(b"book;copies\nDune;3\n")
    async with served("cli-transform", store=tmp_path / "a.db") as keeper:
        url = url_of(keeper)

        async def told(*arguments):
            return json.loads(await command("queue", *arguments, "--url", url, "--json"))

        assert (await told("send", "incoming", "--file", str(tmp_path / "orders.csv")))["sent"] == 1
        assert (await told("send", "incoming", "[1,\n2]", "--text"))["sent"] == 1
        code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from pluribus.cli.app import main; main()"
        moving = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, str(tmp_path), "queue", "transform", "incoming", "orders"),
            *('csv(";") > priced > json', "--functions", "prices", "--once", "--url", url, "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(moving.communicate(), 60)
        assert json.loads(out) == {"source": "incoming", "target": "orders", "transformed": 1, "failed": 1}
        orders, incoming = await keeper.queue("orders"), await keeper.queue("incoming")
        assert [one.body async for one in orders.browse()] == ['[{"book":"Dune","copies":"3","total":6}]']
        assert [one.body async for one in incoming.browse(dead=True)] == ["[1,\n2]"], "text as it stands"

        found = await told(
            "configure", "parcels", "--transform", "xml(parcel) > json", "--tries", "3", "--backoff", "0.5", "30"
        )
        assert (found["settings"]["transform"], found["settings"]["tries_max"]) == ("xml(parcel) > json", 3)
        assert (found["settings"]["backoff_us"], found["settings"]["backoff_us_max"]) == (500_000, 30_000_000)
        await told("send", "parcels", "<parcel><to>Ann</to></parcel>")
        parcels = await keeper.queue("parcels")
        assert [one.body async for one in parcels.browse()] == ['{"to":"Ann"}']
        assert "xml(parcel) > json" in await command("queue", "stats", "parcels", "--url", url, "--seconds", "0.1")


def test_mistakes_are_found_before_a_bus_is_asked(capsys):
    for arguments, sentence in (
        (["transform", "a", "b", "json >"], "the end stands where a step begins"),
        (["transform", "a", "b", "json > nobody"], "no function is registered here by that name"),
        (["transform", "a", "b", "json", "--functions", "no.such.module"], "--functions no.such.module"),
        (["send", "a"], "nothing to send"),
    ):
        assert app.run(["queue", *arguments]) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
