"""Messages of many megabytes through ``await send`` and ``receive``, on real loops and sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from time import perf_counter

import pytest

from pluribus import Group, connect
from pluribus.bench.ports import free_port
from pluribus.core.errors import BadInput, Closed, Overflow, TooLarge
from pluribus.core.limits import BODY_BYTES_MAX, WINDOW_BYTES_MAX
from pluribus.runtime.bus import VIEWS
from tests.harness import eventually, new_bus, on_a_loop, two_in_a_group

MEGABYTE = 1 << 20


@asynccontextmanager
async def members(count: int, order: str = "fifo", url: str = "", *, own: bool = False) -> AsyncIterator[list[Group]]:
    """So many members of group x, all in its view. Who hears itself must read, or its own window closes."""
    url = url or new_bus()
    async with connect(url, stack=VIEWS, name="first") as first:
        others = [await connect(url, stack=VIEWS, name=f"other-{number}") for number in range(count - 1)]
        try:
            groups = [await bus.group("x", order=order, own=own) for bus in (first, *others)]
            for group in groups:
                await group.wait_for(count)
            yield groups
        finally:
            for bus in others:
                await bus.close()


@on_a_loop
async def test_small_messages_of_another_group_flow_while_forty_megabytes_pass():
    url = f"udp://127.0.0.1:{free_port()}/large"
    body = Random(1).randbytes(MEGABYTE) * 40
    async with connect(url, stack=VIEWS, name="a") as a, connect(url, stack=VIEWS, name="b") as b:
        big, to = await a.group("big", own=False), await b.group("big")
        small, other = await a.group("small", own=False), await b.group("small")
        await asyncio.gather(big.wait_for(2), to.wait_for(2), small.wait_for(2), other.wait_for(2))
        started = perf_counter()
        sending = asyncio.create_task(big.send(body))
        receiving = asyncio.create_task(to.receive(25))
        waits = []
        while not receiving.done():
            before = perf_counter()
            await small.send(b"tick")
            assert (await other.receive(10)).body == b"tick"
            waits.append(perf_counter() - before)
        message = await receiving
        assert message.body == body
        assert message.id == await sending
        assert len(waits) > 20, "they went through all the time"
        assert sorted(waits)[len(waits) // 2] < 0.1
        assert perf_counter() - started < 25


@on_a_loop
async def test_small_messages_of_the_same_group_go_between_the_pieces():
    async with members(2) as (one, other):
        sending = asyncio.create_task(one.send(bytes(20 * MEGABYTE)))
        await asyncio.sleep(0)
        sent = [await one.send(b"small %d" % number) for number in range(20)]
        got = [await other.receive(10) for _ in range(20)]
        assert [message.id for message in got] == sent
        assert not sending.done()
        last = await other.receive(10)
        assert last.id == await sending > sent[-1] and len(last.body) == 20 * MEGABYTE


@pytest.mark.parametrize("order", ["fifo", "causal", "total", "semantic"])
def test_large_messages_in_every_order(order: str):
    @on_a_loop
    async def main() -> None:
        async with members(2, order, own=True) as (one, other):
            texts = ["ä" * 200_000, "b" * 300_000]
            sent = [await one.send(texts[0])]
            sent.append(await other.send(texts[1], parent=sent[0] if order == "semantic" else None))
            for group in (one, other):
                got = [await group.receive(10) for _ in range(2)]
                assert sorted(message.body for message in got) == sorted(texts)
                assert sorted(message.id for message in got) == sorted(sent)
                if order == "semantic":
                    assert [message.id for message in got] == sent and got[1].parent == sent[0]

    main()


@on_a_loop
async def test_many_large_messages_at_once_in_both_directions():
    async with members(2, own=True) as groups:
        bodies = [bytes([number]) * 400_000 for number in range(20)]

        async def read(group: Group) -> None:
            got = [(await group.receive(10)).body for _ in range(40)]
            assert sorted(got) == sorted(bodies * 2)

        await asyncio.gather(*map(read, groups), *(group.send(body) for group in groups for body in bodies))


@on_a_loop
async def test_a_large_message_to_one_member():
    async with members(3) as (one, other, third):
        sent = await one.send(bytes(MEGABYTE), to=other.me)
        assert (await other.receive(10)).id == sent
        await one.send(b"to all")
        assert (await third.receive(10)).body == b"to all"


@on_a_loop
async def test_who_joins_while_it_is_sent_gets_it_too():
    url = new_bus()
    body = Random(2).randbytes(MEGABYTE) * 30
    async with members(2, url=url) as (one, other):
        sending = asyncio.create_task(one.send(body))  # it cannot end: nobody reads
        await eventually(lambda: other._channel.pieces.size > 0, "it is on its way")
        async with connect(url, stack=VIEWS, name="late") as bus:
            late = await bus.group("x")
            got = await asyncio.gather(other.receive(20), late.receive(20))
            assert [message.id for message in got] == [await sending] * 2
            assert all(message.body == body for message in got)


@on_a_loop
async def test_a_reader_that_does_not_read_makes_the_sender_wait_and_a_timeout_gives_up():
    async with members(2) as (one, other):
        with pytest.raises(Overflow, match="has no room"):
            await one.send(bytes(20 * MEGABYTE), timeout=0.3)
        assert other._channel.pieces.size < 2 * WINDOW_BYTES_MAX < 20 * MEGABYTE
        _, got = await asyncio.gather(one.send(b"after"), _drain(other, b"after"))
        assert got == [b"after"]
        await eventually(lambda: not other._channel.pieces, "what was given up is dropped")


async def _drain(group: Group, until: bytes) -> list[bytes]:
    got: list[bytes] = []
    while not got or got[-1] != until:
        got.append((await group.receive(10)).body)
    return got


@on_a_loop
async def test_a_cancelled_send_leaves_nothing_behind():
    async with members(2) as (one, other):
        sending = asyncio.create_task(one.send(bytes(20 * MEGABYTE)))
        await eventually(lambda: other._channel.pieces.size > 0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.gather(one.send(b"after"), _drain(other, b"after"))
        assert not other._channel.pieces and one._channel.out.large == 0


@on_a_loop
async def test_closing_ends_a_send():
    async with members(2) as (one, _):
        sending = asyncio.create_task(one.send(bytes(20 * MEGABYTE)))
        await asyncio.sleep(0.01)
        await one.close()
        with pytest.raises(Closed):
            await sending


@on_a_loop
async def test_what_is_too_large_is_refused():
    async with members(2) as (one, other):
        with pytest.raises(TooLarge, match="send it in parts"):
            await one.send(bytes(BODY_BYTES_MAX + 1))
        with pytest.raises(BadInput, match="not a member"):
            await one.send(bytes(MEGABYTE), to=5)
    async with two_in_a_group() as (one, other):
        with pytest.raises(TooLarge, match="does not cut messages"):
            await one.send(bytes(MEGABYTE))
        assert not other._channel.inbox


@on_a_loop
async def test_a_body_that_fits_the_batch_but_not_the_path_is_cut():
    """On a short path a batch is longer than a frame; a body may not be."""
    stack = VIEWS.replace("fragment", "fragment(path_bytes=1000)")
    url = new_bus()
    async with connect(url, stack=stack) as a, connect(url, stack=stack) as b:
        one, other = await a.group("x"), await b.group("x")
        await asyncio.gather(one.wait_for(2), other.wait_for(2))
        await asyncio.gather(one.send(b"first"), one.send(bytes(5_000)), one.send(b"last"))
        got = [(await other.receive(10)).body for _ in range(3)]
        assert sorted(got, key=len) == [b"last", b"first", bytes(5_000)]
        assert a.stats()["fragment"]["cut"] == 0, "no frame was too long"
