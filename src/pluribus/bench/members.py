"""Members of a group as benchmark processes: they use the public API as a user would, and nothing else.

Members of an in-process bus are two tasks of one process; everywhere else each is a process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import pluribus

from .limits import ANSWER_S
from .processes import Together

GROUP = "bench"
WARM_ROUNDS = 100

Start = Callable[[], Awaitable[object]]
"""The start line: returns when all members are there. A member that waits at it still answers the others."""


def _start_of(together: Together) -> Start:
    return lambda: asyncio.to_thread(together.wait)


async def read_all(group: pluribus.Group, count: int) -> float:
    """Read so many messages, with body, sender and id; returns the time of the first one, which starts the clock."""
    await group.receive()
    got, started = 1, perf_counter()
    async for message in group:
        message.body  # noqa: B018 - reading them is part of what is measured
        message.sender  # noqa: B018
        message.id  # noqa: B018
        got += 1
        if got == count:
            break
    return started


def receiver(together: Together, url: str, count: int) -> None:
    async def main() -> None:
        together.answer(await _receive(url, count, _start_of(together)))

    pluribus.run(main())


def sender(together: Together, url: str, count: int, size: int) -> None:
    pluribus.run(_send(url, count, size, _start_of(together)))


def both(together: Together, url: str, count: int, size: int) -> None:
    async def main() -> None:
        together.wait()
        line = asyncio.Barrier(2)
        answer, _ = await asyncio.gather(_receive(url, count, line.wait), _send(url, count, size, line.wait))
        together.answer(answer)

    pluribus.run(main())


def echo(together: Together, url: str, stack: str) -> None:
    pluribus.run(_echo(url, stack, _start_of(together)))


def ping(together: Together, url: str, rounds: int, size: int, pace_s: float, stack: str) -> None:
    async def main() -> None:
        together.answer(await _ping(url, rounds, size, pace_s, stack, _start_of(together)))

    pluribus.run(main())


def echo_and_ping(together: Together, url: str, rounds: int, size: int, pace_s: float, stack: str) -> None:
    async def main() -> None:
        together.wait()
        line = asyncio.Barrier(2)
        echoing = asyncio.create_task(_echo(url, stack, line.wait))
        together.answer(await _ping(url, rounds, size, pace_s, stack, line.wait))
        echoing.cancel()

    pluribus.run(main())


async def _receive(url: str, count: int, start: Start) -> tuple[float, int]:
    """Messages a second, from the first to the last, reading body, sender and id of each; and how many were lost."""
    async with pluribus.connect(url, name="receiver", stack="best-effort") as bus:
        group = await bus.group(GROUP)
        await group.wait_for(2, timeout=30)
        await start()
        started = await read_all(group, count)
        seconds = perf_counter() - started
        return count / seconds, int(bus.stats()["window"]["lost"])


async def _send(url: str, count: int, size: int, start: Start) -> None:
    async with pluribus.connect(url, name="sender", stack="best-effort") as bus:
        group = await bus.group(GROUP, own=False)
        await group.wait_for(2, timeout=30)
        await start()
        body = b"x" * size
        for _ in range(count):
            await group.send(body)
        while len(group.view) > 1:  # noqa: ASYNC110 - stay until the receiver has everything and leaves
            await asyncio.sleep(0.01)


async def _echo(url: str, stack: str, start: Start) -> None:
    async with pluribus.connect(url, name="echo", stack=stack) as bus:
        group = await bus.group(GROUP, own=False)
        await group.wait_for(2, timeout=30)
        await start()
        async for message in group:
            await group.send(message.body)


async def _ping(url: str, rounds: int, size: int, pace_s: float, stack: str, start: Start) -> list[float]:
    """The times of round trips in µs, one at a time at a steady pace, after a few that warm up."""
    async with pluribus.connect(url, name="ping", stack=stack) as bus:
        group = await bus.group(GROUP, own=False)
        await group.wait_for(2, timeout=30)
        await start()
        body, trips = b"x" * size, []
        for _ in range(WARM_ROUNDS + rounds):
            started = perf_counter()
            await group.send(body)
            await group.receive(timeout=ANSWER_S)
            trips.append((perf_counter() - started) * 1e6)
            await asyncio.sleep(max(0.0, pace_s - (perf_counter() - started)))
        return trips[WARM_ROUNDS:]
