"""A keeper whose store cannot be read for a while: who asks waits, and the keeper goes on hearing the others."""

import asyncio

import pluribus
from pluribus.core.errors import Unavailable
from pluribus.group.keepers import ledger
from tests.harness import eventually, new_bus, on_a_loop


def away(*arguments):
    raise Unavailable("the server of this store is away")


@on_a_loop
async def test_who_replays_from_it_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "CACHE_BYTES_MAX", 0)
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db") as bus:
        for number in range(10):
            await bus.durable.publish("a", number)
        store = bus.keeping._store
        store.read = away
        asyncio.get_running_loop().call_later(0.3, lambda: delattr(store, "read"))
        async with bus.durable.subscribe("a", start="earliest") as replay:
            assert [(await replay.receive(10)).body for _ in range(10)] == list(range(10))


@on_a_loop
async def test_a_keeper_that_failed_with_a_word_hears_the_next(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, store=tmp_path / "a.db") as first:
        await first.durable.publish("t", 1)
        meeting = await first.keeping.meeting()
        hear, heard = meeting.on_words, []

        def fail_at_first(words):
            heard.append(words)
            (away if len(heard) < 3 else hear)(words)

        meeting.on_words = fail_at_first
        async with pluribus.connect(url, store=tmp_path / "b.db") as second:
            await eventually(lambda: second.keeping.keeper.desk.of_topics.topics.topic("t") is not None)
            await second.durable.publish("t", 2)
            assert await first.log("t").offsets() == (0, 2)
