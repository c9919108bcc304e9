"""Receiving: iteration that may be left and taken up again, single messages, handlers, and views."""

import asyncio
import threading
import time

import pytest

import pluribus
from pluribus.core.errors import Closed
from pluribus.core.view import View
from tests.harness import eventually, new_bus, on_a_loop, two, two_in_a_group


@on_a_loop
async def test_leaving_an_iteration_loses_nothing():
    async with two_in_a_group(own=False) as (one, other):
        for number in range(1_000):
            await one.send(b"%d" % number)
        got: list[bytes] = []
        while len(got) < 1_000:
            stop_after = len(got) + 7
            async for message in other:
                got.append(message.body)
                if len(got) >= stop_after:
                    break
            got.append((await other.receive(5)).body)
        assert got[:1_000] == [b"%d" % number for number in range(1_000)]


@on_a_loop
async def test_a_cancelled_receive_loses_nothing():
    async with two_in_a_group(own=False) as (one, other):
        got: list[bytes] = []
        for number in range(200):
            waiting = asyncio.create_task(other.receive())
            await asyncio.sleep(0)
            await one.send(b"%d" % number)
            if number % 2:
                await asyncio.sleep(0)
                waiting.cancel()
            try:
                got.append((await waiting).body)
            except asyncio.CancelledError:
                got.append((await other.receive(5)).body)
        assert got == [b"%d" % number for number in range(200)]


@on_a_loop
async def test_several_readers_share_the_messages():
    async with two_in_a_group(own=False) as (one, other):
        got: list[bytes] = []

        async def read() -> None:
            async for message in other:
                got.append(message.body)
                await asyncio.sleep(0)

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for number in range(300):
            await one.send(b"%d" % number)
        await eventually(lambda: len(got) == 300)
        assert sorted(got) == sorted(b"%d" % number for number in range(300))
        await other.close()
        await asyncio.gather(*readers)


@on_a_loop
async def test_who_waited_beside_another_reader_reads_on_in_what_that_one_took():
    async with two_in_a_group(own=False) as (one, other):
        bodies = [b"%d" % number for number in range(10)]
        waiting = [asyncio.create_task(other.receive()) for _ in range(3)]
        await asyncio.sleep(0)
        await one.send_many(bodies)
        got = [message.body for message in await asyncio.gather(*waiting)]
        got += [(await other.receive(5)).body for _ in bodies[3:]]
        assert got == bodies


@on_a_loop
async def test_a_reader_that_waited_takes_nothing_away_from_a_slower_one():
    async with two_in_a_group(own=False) as (one, other):
        bodies = [b"%d" % number for number in range(10)]
        waiting = [asyncio.create_task(other.receive()) for _ in range(3)]
        await asyncio.sleep(0)
        await one.send_many(bodies[:-1])
        await eventually(waiting[1].done)
        await one.send(bodies[-1])
        got = [message.body for message in await asyncio.gather(*waiting)]
        got += [(await other.receive(5)).body for _ in bodies[3:]]
        assert got == bodies


@on_a_loop
async def test_receive_times_out_and_the_next_message_is_not_lost():
    async with two_in_a_group(own=False) as (one, other):
        with pytest.raises(TimeoutError):
            await other.receive(timeout=0.01)
        with pytest.raises(TimeoutError):
            await other.receive(timeout=0)
        await one.send(b"later")
        assert (await other.receive(5)).body == b"later"


@on_a_loop
async def test_a_message_that_is_there_needs_no_time():
    async with two_in_a_group(own=False) as (one, other):
        await one.send(b"a")
        await one.send(b"b")
        await eventually(lambda: other._channel.inbox)
        assert [(await other.receive(timeout=0)).body for _ in range(2)] == [b"a", b"b"]


@on_a_loop
async def test_a_busy_reader_gives_the_loop_its_turns():
    async with two_in_a_group(own=False) as (one, other):
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def send() -> None:
            while True:
                await one.send(bytes(50))

        sending = asyncio.create_task(send())
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(others())
        began, count = loop.time(), 0
        async for _ in other:
            count += 1
            if loop.time() - began > 0.3:
                break
        assert turns > 10 and count > 1_000
        task.cancel()
        sending.cancel()


@on_a_loop
async def test_a_plain_handler_runs_in_a_thread():
    async with two_in_a_group(own=False) as (one, other):
        threads: set[int] = set()
        bodies: list[bytes] = []

        def plain(message: pluribus.Message) -> None:
            threads.add(threading.get_ident())
            bodies.append(message.body)

        handling = asyncio.create_task(other.handle(plain))
        for number in range(20):
            await one.send(b"%d" % number)
        await eventually(lambda: len(bodies) == 20)
        assert threading.get_ident() not in threads
        await other.close()
        await handling
        assert bodies == [b"%d" % number for number in range(20)]


@on_a_loop
async def test_a_coroutine_handles_one_message_after_another_on_the_loop():
    async with two_in_a_group(own=False) as (one, other):
        story: list[str] = []

        async def handler(message: pluribus.Message) -> None:
            assert threading.current_thread() is threading.main_thread()
            story.append(f"{message.body} begins")
            await asyncio.sleep(0)
            story.append(f"{message.body} ends")

        handling = asyncio.create_task(other.handle(handler))
        for body in ("a", "b"):
            await one.send(body)
        await eventually(lambda: len(story) == 4)
        assert story == ["a begins", "a ends", "b begins", "b ends"]
        await other.close()
        await handling


# --- views ----------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_views_tell_who_comes_and_goes():
    url = new_bus()
    async with pluribus.connect(url, name="a") as a:
        group = await a.group("x")
        seen: list[set[str]] = []

        async def watch() -> None:
            async for view in group.views():
                seen.append(set(view.names.values()))
                assert group.me in view and view.names[group.me] == "a"

        watching = asyncio.create_task(watch())
        async with pluribus.connect(url, name="b") as b:
            await b.group("x")
            await eventually(lambda: {"a", "b"} in seen)
        await eventually(lambda: seen[-1] == {"a"})
        assert seen[0] == {"a"}
        await group.close()
        await watching


@on_a_loop
async def test_waiting_for_members_times_out():
    async with pluribus.connect(new_bus()) as bus:
        group = await bus.group("x")
        assert (await group.wait_for(1)).members == (bus.me,)
        with pytest.raises(TimeoutError):
            await group.wait_for(2, timeout=0.05)


@on_a_loop
async def test_everybody_on_the_bus_is_known_by_name():
    async with two() as (a, b):
        await eventually(lambda: len(a.members) == len(b.members) == 2)
        assert a.members == b.members == {a.me: "a", b.me: "b"}
        a.validate()
        b.validate()


@on_a_loop
async def test_one_who_left_a_group_and_joined_again_is_heard():
    async with two_in_a_group(own=False) as (one, other):
        await one.send(b"before")
        assert (await other.receive(5)).body == b"before"
        bus_url = f"inproc://{one._dispatch.node.bus}"
        await one.close()
        with pytest.raises(Closed):
            await one.receive(1)
        await eventually(lambda: len(other.view) == 1)
        async with pluribus.connect(bus_url, name="c", stack="best-effort") as c:
            third = await c.group("x", own=False)
            await third.wait_for(2)
            await third.send(b"from c")
            assert (await other.receive(5)).body == b"from c"
            await third.close()
            again = await c.group("x", own=False)
            await again.wait_for(2)
            await again.send(b"again")
            assert (await other.receive(5)).body == b"again"


@on_a_loop
async def test_a_view_that_comes_in_the_moment_in_which_the_time_is_over_is_no_time_out():
    async with pluribus.connect(new_bus()) as bus:
        group = await bus.group("x")
        waiting = asyncio.create_task(group.wait_for(2, timeout=0.01))
        await asyncio.sleep(0)

        def comes() -> None:
            group._channel.view = View(9, (bus.me, 7))

        asyncio.get_running_loop().call_later(0.011, comes)
        time.sleep(0.05)  # noqa: ASYNC251 - both are due in the same turn, the time-out first
        assert (await waiting).number == 9
        with pytest.raises(TimeoutError):
            await group.wait_for(3, timeout=0.01)
