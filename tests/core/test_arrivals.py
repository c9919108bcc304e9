"""Readers are woken at once while datagrams are received, and by the loop otherwise; they can give up at any time."""

import asyncio
from contextvars import ContextVar

import pytest

import pluribus
from pluribus.core.frame import Frame
from pluribus.runtime.arrivals import Arrivals, Line
from tests.harness import new_bus, on_a_loop

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


async def waits(arrivals: Arrivals, woken: list[str]) -> None:
    WHO.set(asyncio.current_task().get_name())
    await arrivals.wait()
    woken.append(WHO.get())


async def waiting(arrivals: Arrivals, woken: list[str], *names: str) -> list[asyncio.Task]:
    tasks = [asyncio.create_task(waits(arrivals, woken), name=name) for name in names]
    await asyncio.sleep(0)
    assert len(arrivals._waiters) == len(names)
    return tasks


def received(line: Line, arrivals: Arrivals, woken: list[str], counts: list[int]) -> None:
    """What a bus does in its engine's call-back, where no task runs."""
    line.receiving = True
    arrivals.wake()
    line.receiving = False
    counts.append(len(woken))
    line.run()
    counts.append(len(woken))


@on_a_loop
async def test_a_reader_goes_on_within_the_call_back_and_in_its_own_context():
    line, woken, counts = Line(), [], []
    arrivals = Arrivals(line)
    tasks = await waiting(arrivals, woken, "one", "other")
    asyncio.get_running_loop().call_soon(received, line, arrivals, woken, counts)
    await asyncio.gather(*tasks)
    assert counts == [0, 2], "after the protocols have settled, and before the call-back ends"
    assert woken == ["one", "other"]


@on_a_loop
async def test_a_reader_that_is_woken_by_a_task_takes_its_turn():
    woken: list[str] = []
    arrivals = Arrivals(Line())
    (task,) = await waiting(arrivals, woken, "one")
    arrivals.wake()
    assert woken == [], "a task runs now, and there is only one at a time"
    await task
    assert woken == ["one"]


@on_a_loop
async def test_who_gives_up_is_forgotten_and_nobody_is_woken_twice():
    line, woken, counts = Line(), [], []
    arrivals = Arrivals(line)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await arrivals.wait()
    assert arrivals._waiters == []
    stays, leaves = await waiting(arrivals, woken, "stays", "leaves")
    leaves.cancel()
    asyncio.get_running_loop().call_soon(received, line, arrivals, woken, counts)
    assert isinstance((await asyncio.gather(stays, leaves, return_exceptions=True))[1], asyncio.CancelledError)
    arrivals.wake()
    await asyncio.sleep(0)
    assert woken == ["stays"]


@on_a_loop
async def test_who_waits_only_so_long_is_told_and_forgotten():
    line, counts = Line(), []
    arrivals = Arrivals(line)
    with pytest.raises(TimeoutError):
        await arrivals.wait(0)
    assert arrivals._waiters == []
    asyncio.get_running_loop().call_soon(received, line, arrivals, [], counts)
    await arrivals.wait(60)
    assert counts == [0], "what comes in time is no time-out, and is heard within the call-back"


@on_a_loop
async def test_what_came_is_read_although_a_protocol_failed():
    async with pluribus.connect(new_bus()) as one:
        group = await one.group("x")
        reading, failures = asyncio.create_task(group.receive()), list[str]()
        await asyncio.sleep(0)

        def fails(receive, datagrams):
            group._channel.inbox.append(Frame(sender=one.me, group=group._channel.number, count=1, bodies=[b"here"]))
            group._arrivals.wake()
            raise RuntimeError("a mistake")

        def comes() -> None:  # as the engine calls it: no task runs
            one._stack.run = fails
            try:
                one._receive([])
            except RuntimeError as error:
                failures.append(str(error))
            finally:
                del one._stack.run

        asyncio.get_running_loop().call_soon(comes)
        assert (await asyncio.wait_for(reading, 5)).body == b"here"
        assert failures == ["a mistake"]
