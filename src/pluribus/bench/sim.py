"""``pluribus bench sim``: the bare kernel's events a second, and frames and timers a second through a full stack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ..sim import world
from ..sim.machinery.kernel import Kernel
from ..sim.machinery.world import run as run_world
from .report import at_least, report, result


def run(*, quick: bool = False, progress: Callable[[str], None] = lambda text: None, **_: Any) -> dict[str, Any]:
    runs, share = (1, 5) if quick else (3, 1)
    progress("bare kernel")
    kernel = [kernel_rate(500_000 // share) for _ in range(runs)]
    progress("full stack")
    stack = [stack_rate(1_000 // share) for _ in range(runs)]
    results = [result("bare kernel", "events/s", kernel), result("full stack and codec", "frames and timers/s", stack)]
    return report(
        "sim",
        results,
        [
            at_least("bare kernel, events/s", results[0].value, 500_000),
            at_least("full stack, frames and timers/s", results[1].value, 20_000),
        ],
    )


def kernel_rate(events: int) -> float:
    """Events a second of a thousand chains, in which each event schedules the next: a heap of realistic depth."""
    kernel = Kernel()

    def next_event() -> None:
        kernel.after(0.001, next_event)

    for number in range(1_000):
        kernel.at(number / 1e6, next_event)
    started = perf_counter()
    while kernel.events < events:
        kernel.run(kernel.now + 0.01)
    return kernel.events / (perf_counter() - started)


def stack_rate(rounds: int) -> float:
    """Events a second of five members that all send small batches; every event is a datagram or a timer that passes
    every layer."""

    async def main() -> float:
        async with world(members=5, seed=1) as cluster:
            groups = [await bus.group("bench", own=False) for bus in cluster.buses]
            for group in groups:
                await group.wait_for(5)
            readers = [asyncio.create_task(_read(group)) for group in groups]
            before, started = cluster.kernel.events, perf_counter()
            for _ in range(rounds):
                for group in groups:
                    await group.send(b"x" * 100)
                await asyncio.sleep(0.001)
            rate = (cluster.kernel.events - before) / (perf_counter() - started)
            for reader in readers:
                reader.cancel()
            return rate

    return run_world(main())


async def _read(group: Any) -> None:
    async for _ in group:
        pass
