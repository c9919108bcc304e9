"""``pluribus queue``: every verb, from another process than the keeper's."""

import asyncio
import json

import pluribus
from tests.cli.test_topics import command
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
