"""``pluribus transactions``: every verb, from another process than the keeper's."""

import asyncio
import json

from tests.cli.test_topics import command
from tests.runtime.clients.test_client import served, url_of


def test_every_verb(tmp_path):
    asyncio.run(every_verb(tmp_path))


async def every_verb(tmp_path):
    async with served("cli-transactions", store=tmp_path / "a.db") as keeper:
        url = url_of(keeper)

        async def told(*arguments):
            return json.loads(await command("transactions", *arguments, "--url", url, "--json"))

        q = await keeper.queue("q")
        ids = []
        for body in ("committed", "aborted"):
            async with keeper.transaction() as tx:
                await tx.send(q, body)
                await tx.prepare()
            ids.append(tx.id)
        listed = (await told("list"))["transactions"]
        assert [(one["id"], one["state"], one["machines"]) for one in listed] == [
            (id, "prepared", ["queue.q"]) for id in ids
        ]
        assert await told("commit", str(ids[0])) == {"transaction": ids[0], "state": "committed"}
        assert await told("abort", str(ids[1])) == {"transaction": ids[1], "state": "aborted"}
        assert await told("state", str(ids[1])) == {"transaction": ids[1], "state": "aborted"}
        assert await command("transactions", "list", "--url", url) == ""
        assert [one.body async for one in q.browse()] == ["committed"]
