"""The longest body that a queue takes holds up nobody: small messages go on while it is sent, and while it is received.
Many bodies that are given together come, however large they are together."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import TooLarge
from pluribus.group.host.requests import Fetch
from pluribus.runtime.styles.queues.queue import BODY_BYTES_MAX, PIECE_BYTES
from tests.runtime.clients.test_client import served, url_of
from tests.runtime.styles.queues.test_queues import opened

WAIT_S = 60
PIECES = BODY_BYTES_MAX // PIECE_BYTES
PATTERN = bytes(range(256))


async def small_ones(queue, name, over):
    """Sends and receives one small message after another; returns how many until the long one was ``over``."""
    count = 0
    while not over.done():
        await queue.send(count, properties={"of": name})
        async with queue.receive(f"of = '{name}'", timeout=WAIT_S) as m:
            assert m.body == count
        count += 1
    return count


@pytest.mark.parametrize("long_on", ["keeper", "member", "client"])
def test_small_messages_go_on_while_the_longest_body_is_sent_and_received(long_on, tmp_path):
    """Small messages of the keeper, of another member, of another client, and of the very program that sends or
    receives the long one."""

    async def scenario():
        async with (
            served(f"long-bodies-{long_on}", store=tmp_path / "a.db") as keeper,
            pluribus.connect(keeper.url.text, name="member") as member,
            pluribus.connect(url_of(keeper)) as client,
            pluribus.connect(url_of(keeper)) as other,
        ):
            buses = {"keeper": keeper, "member": member, "client": client, "other": other}
            queues = {name: await bus.queue("orders") for name, bus in buses.items()}
            long = queues[long_on]
            body = PATTERN * (BODY_BYTES_MAX // len(PATTERN))
            with pytest.raises(TooLarge, match="send it in parts"):
                await long.send(body + b"x")

            async def meanwhile(over):
                return await asyncio.gather(*(small_ones(one, name, over) for name, one in queues.items()))

            sending = asyncio.create_task(long.send(body, properties={"of": "long"}))
            while_sent = await meanwhile(sending)
            await sending
            assert min(while_sent) > PIECES // 16, "a small message waits for a few pieces at most, not for the body"

            receiving = asyncio.create_task(received(long))
            while_received = await meanwhile(receiving)
            assert await receiving == body
            assert min(while_received) > 2, "that takes less time: it is read, and not written"
            assert (await long.stats()).depth == 0

    async def received(queue):
        async with queue.receive("of = 'long'", timeout=WAIT_S) as m:
            return m.body

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["member", "client", "memory"])
def test_many_large_messages_that_are_given_together_come(how, tmp_path):
    """Together they are more than one frame can have."""

    async def scenario():
        async with opened(how, tmp_path) as (bus, options):
            q = await bus.queue("parcels", **options)
            bodies = [PATTERN * (size // len(PATTERN)) for size in (1 << 20, 3 << 20, 1 << 10)] * 14
            for body in bodies:
                await q.send(body)
            assert [m.body async for m in q.browse()] == bodies
            async with q.messages(credit=100, credit_bytes=1 << 30) as messages:
                for body in bodies:
                    m = await anext(messages)
                    assert m.body == body
                    await m.ack()
            assert (await q.stats()).depth == 0

    asyncio.run(scenario())


def test_what_is_not_held_any_more_is_not_fetched(tmp_path):
    async def scenario():
        async with opened("client", tmp_path) as (bus, _):
            q = await bus.queue("parcels")
            await q.send(PATTERN * (3 << 12))
            async with q.messages() as messages:
                m = await anext(messages)
                consumer = messages._consumer
                asked = Fetch(q._line.name, consumer.number, consumer.epoch, m.number, m.assignment, 1)
                assert sum(map(len, await q._line.ask(asked))) > 1 << 20
                await m.ack()
                assert await q._line.ask(asked) == []

    asyncio.run(scenario())
