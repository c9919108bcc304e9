"""Members of a group as benchmark processes: they use the public API as a user would, and nothing else."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pluribus

from .processes import Together

GROUP = "bench"


def receiver(together: Together, url: str, count: int) -> None:
    """Answers messages a second, from the first to the last, reading body, sender and id of each."""

    async def main() -> None:
        async with pluribus.connect(url, name="receiver") as bus:
            group = await bus.group(GROUP)
            await group.wait_for(2, timeout=30)
            await asyncio.to_thread(together.wait)  # a member that waits still answers the other
            got, started = 0, 0.0
            async for message in group:
                if not got:
                    started = perf_counter()
                got += 1
                message.body, message.sender, message.id  # noqa: B018 - reading them is part of what is measured
                if got == count:
                    break
            seconds = perf_counter() - started
            lost = bus.stats()["window"]["lost"]
            together.answer((count / seconds, lost))

    pluribus.run(main())


def sender(together: Together, url: str, count: int, size: int) -> None:
    async def main() -> None:
        async with pluribus.connect(url, name="sender") as bus:
            group = await bus.group(GROUP, own=False)
            await group.wait_for(2, timeout=30)
            await asyncio.to_thread(together.wait)  # a member that waits still answers the other
            body = b"x" * size
            for _ in range(count):
                await group.send(body)
            while len(group.view) > 1:  # noqa: ASYNC110 - stay until the receiver has everything and leaves
                await asyncio.sleep(0.01)

    pluribus.run(main())


def echo(together: Together, url: str) -> None:
    async def main() -> None:
        async with pluribus.connect(url, name="echo") as bus:
            group = await bus.group(GROUP, own=False)
            await group.wait_for(2, timeout=30)
            await asyncio.to_thread(together.wait)  # a member that waits still answers the other
            async for message in group:
                await group.send(message.body)

    pluribus.run(main())


def ping(together: Together, url: str, rounds: int, size: int, pace_s: float) -> None:
    """Answers the round trips in µs, one at a time at a steady pace."""

    async def main() -> None:
        async with pluribus.connect(url, name="ping") as bus:
            group = await bus.group(GROUP, own=False)
            await group.wait_for(2, timeout=30)
            await asyncio.to_thread(together.wait)  # a member that waits still answers the other
            body, trips = b"x" * size, []
            for _ in range(rounds):
                started = perf_counter()
                await group.send(body)
                await group.receive()
                trips.append((perf_counter() - started) * 1e6)
                await asyncio.sleep(max(0.0, pace_s - (perf_counter() - started)))
            together.answer(trips)

    pluribus.run(main())
