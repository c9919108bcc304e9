"""Semantic order on a network that loses and reorders: nothing waits but an answer for its question."""

import asyncio

import pytest

from pluribus.sim import world
from pluribus.sim.machinery.network import Link
from pluribus.sim.machinery.world import run


async def told(stack: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """A says three things, the second of which is late on its way to C; B answers the third and the second. What C has
    heard before the late one could come, and what in the end."""
    async with world(members=3, seed=1, stack=stack) as played:
        groups = [await bus.group("talk", order="semantic") for bus in played.buses]
        for group in groups:
            await group.wait_for(3)
        await asyncio.sleep(3)
        a, b, c = groups
        for group in groups[:2]:  # so that streams have begun
            await group.send("hello")
            await asyncio.sleep(0.1)
        heard: list[tuple[str, bool]] = []

        async def read() -> None:
            async for message in c:
                heard.append((message.body, message.orphan))

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.1)
        heard.clear()
        await a.send("first")
        await asyncio.sleep(0.001)
        played.set_link(Link(latency_s=0.1, jitter_s=0.0, reorder=1.0), 0, 2)
        late = await a.send("late")
        await asyncio.sleep(0.001)
        played.set_link(Link(), 0, 2)
        played.set_link(Link(loss=1.0), 2, 0)  # C cannot ask for it
        third = await a.send("third")
        await asyncio.sleep(0.003)
        await b.send("answer to third", parent=third)
        await b.send("answer to late", parent=late)
        await asyncio.sleep(0.003)
        early = heard.copy()
        played.set_link(Link(), 2, 0)
        await asyncio.sleep(3)
        reading.cancel()
        return early, heard


@pytest.mark.parametrize("stack", ["adhoc", "views"])
def test_nothing_waits_for_an_unrelated_message_that_is_late(stack):
    early, heard = run(told(stack))
    assert early == [("first", False), ("third", False), ("answer to third", False)]
    assert heard[3:] == [("late", False), ("answer to late", False)]
