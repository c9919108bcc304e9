"""``retain(keys="last")`` as programs use it: on a keeper, from a client, on the command line."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import BadInput
from tests.runtime.clients.test_client import served, url_of


def test_only_the_last_event_of_each_key_stays(tmp_path):
    async def scenario():
        async with served("compacted", store=tmp_path / "a.db") as keeper, pluribus.connect(url_of(keeper)) as client:
            prices = [("prices", {"n": number}) for number in range(300)]
            await client.publish_many(prices, durable=True, key=[f"share {number % 3}" for number in range(300)])
            await client.publish("prices", {"n": -1}, durable=True)
            await client.durable.retain("prices", keys="last")
            (known,) = await client.durable.topics("prices")
            assert known.keys and known.end == 301

            async def bodies(bus):
                first, end = await bus.log("prices").offsets()
                found, at = [], first
                while at < end:
                    read = await bus.log("prices").read(at)
                    found += [(event.offset, event.body["n"]) for event in read.events()]
                    at = read.next
                return found

            left = [(297, 297), (298, 298), (299, 299), (300, -1)]
            async with asyncio.timeout(60):
                while await bodies(client) != left:  # noqa: ASYNC110 - the keeper tells nobody
                    await asyncio.sleep(0.05)
            assert await bodies(keeper) == left
            assert (await client.log("prices").read(where="n > 297")).events()[0].offset == 298
            async with keeper.subscribe("prices", durable="desk", start="earliest") as events:
                assert [(await events.receive(10)).body["n"] for _ in range(4)] == [297, 298, 299, -1]
                await client.publish("prices", {"n": 1_000}, durable=True, key="share 0")
                assert (await events.receive(10)).body["n"] == 1_000
            workers = keeper.subscribe("prices", durable="workers", shared=True, start="earliest")
            async with workers as events:
                got = [(await events.receive(10)).body["n"] for _ in range(4)]
                assert got[:3] == [298, 299, -1] or got == [297, 298, 299, -1]
            with pytest.raises(BadInput, match='use "last"'):
                await client.durable.retain("prices", keys="first")
            with pytest.raises(BadInput, match="its size or by its keys"):
                await client.durable.retain("prices", keys="last", size=1 << 20)

    asyncio.run(scenario())


def test_it_goes_on_when_the_keeper_is_started_again(tmp_path):
    async def scenario():
        for turn in range(2):
            async with pluribus.connect("inproc://compacted-again", store=tmp_path / "a.db") as bus:
                if not turn:
                    await bus.durable.retain("t", keys="last")
                for number in range(20):
                    await bus.publish("t", (turn, number), durable=True, key=str(number % 2))
                log = bus.log("t")

                async def left(log=log, turn=turn):
                    found = (await log.read((await log.offsets())[0])).events()
                    return [event.body for event in found] == [[turn, 18], [turn, 19]]

                async with asyncio.timeout(60):
                    while not await left():  # noqa: ASYNC110 - the keeper tells nobody
                        await asyncio.sleep(0.05)

    asyncio.run(scenario())


def test_without_await(tmp_path):
    with pluribus.sync.connect("inproc://compacted-sync", store=tmp_path / "a.db") as bus:
        bus.durable.retain("t", keys="last")
        assert [known.keys for known in bus.durable.topics("t")] == [True]
