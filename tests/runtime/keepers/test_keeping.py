"""A member with a store comes to its end: whatever it was at, the store is free for the next."""

import asyncio

import pytest

import pluribus
from tests.harness import new_bus, on_a_loop


@on_a_loop
async def test_a_bus_whose_closing_is_cancelled_gives_its_store_back(tmp_path):
    path = tmp_path / "kept.db"
    bus = await pluribus.connect(new_bus(), store=path)
    await bus.durable.publish("a", 1)
    replay = bus.durable.subscribe("a", name="reader", start="earliest")
    await replay.receive(5)
    bus.keeping._store.write = lambda changes, done: None  # a disk that does not answer: nothing is committed any more
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bus.close(timeout=0), 0.3)
    async with pluribus.connect(new_bus(), store=path) as again:
        assert await again.log("a").offsets() == (0, 1)
