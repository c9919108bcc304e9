"""What a keeper's desk makes of questions at the borders."""

import asyncio

import pytest

import pluribus
from tests.harness import new_bus, on_a_loop


@pytest.mark.parametrize("where", [None, "n >= 0"])
@on_a_loop
async def test_who_asks_for_no_bytes_at_all_gets_one_batch(where):
    async with pluribus.connect(new_bus(), store=":memory:") as bus:
        for number in range(3):
            await bus.durable.publish("a", {"n": number})
        found = await asyncio.wait_for(bus.log("a").read(1, max_bytes=0, where=where), 5)
        assert [event.body["n"] for event in found.events()] == [1] and found.next == 2
        async with bus.durable.subscribe("a", start="earliest", max_bytes=0, where=where) as replay:
            assert [(await replay.receive(5)).body["n"] for _ in range(3)] == [0, 1, 2]
