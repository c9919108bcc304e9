"""A crowd on real engines: members find each other through one of them, and hear each other."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import pluribus
from pluribus.bench.ports import free_port
from tests.harness import eventually, on_a_loop


@pytest.mark.parametrize("engine", ["udp", "inproc", "multicast"])
@on_a_loop
async def test_members_of_a_crowd_hear_each_other(engine: str):
    port = free_port()
    url = f"udp://127.0.0.1:{port}/crowd" if engine == "udp" else f"{engine}://crowd-{port}"
    async with AsyncExitStack() as stack:
        buses = [
            await stack.enter_async_context(pluribus.connect(url, name=f"m{number}", stack="crowd"))
            for number in range(5)
        ]
        groups = [await bus.group("x") for bus in buses]
        await eventually(lambda: all(len(group.view) == 5 for group in groups), "all know all")
        await groups[3].send("hello")
        for group in groups:
            message = await group.receive(timeout=5)
            assert message.body == "hello" and message.sender == buses[3].me
        await buses[4].close()
        await groups[0].send("again")
        for group in groups[:4]:
            assert (await group.receive(timeout=5)).body == "again"
        await groups[0].send("only you", to=buses[1].me)
        assert (await groups[1].receive(timeout=5)).body == "only you"


@on_a_loop
async def test_a_sender_that_is_too_fast_waits():
    async with pluribus.connect(f"inproc://crowd-{free_port()}", stack="crowd") as bus:
        group = await bus.group("x", own=False)
        started = asyncio.get_running_loop().time()
        for _ in range(60):
            await group.send(bytes(50_000))
        assert asyncio.get_running_loop().time() > started
        assert bus.stats()["crowd"]["lost"] == 0
        bus.validate()
