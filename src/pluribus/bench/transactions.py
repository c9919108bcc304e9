"""``pluribus bench transactions``: one receive and one send in a transaction, beside the same without one.

``UNDER_WAY`` are under way at a time, in the process with its keeper.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from ..runtime.bus import connect
from ..runtime.loop.running import run as run_on_loop
from .peers.kept import folder
from .ports import free_port
from .report import at_least, report, result

UNDER_WAY = 20
MESSAGES = 4_000
WARM = 40
"""Moves before the clock runs: code is loaded, consumers are attached."""
SHARE_MIN = 0.6
BODY = b"x" * 100


def run(*, quick: bool = False, progress: Callable[[str], None], **_: Any) -> dict[str, Any]:
    runs, count = (1, 400) if quick else (5, MESSAGES)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for attempt in range(runs):
        for inside in (False, True):
            progress(f"run {attempt + 1} of {runs}: {'in transactions' if inside else 'without'}")
            with folder() as place:
                rates[inside].append(run_on_loop(_moved(place / "bench.db", count, inside)))
    share = statistics.median(rates[True]) / statistics.median(rates[False])
    return report(
        "transactions",
        [
            result("receive and send, without a transaction", "moves/s", rates[False]),
            result("receive and send, in a transaction", "moves/s", rates[True]),
        ],
        [at_least(f"a transaction, {UNDER_WAY} under way, against none", share, SHARE_MIN)],
    )


async def _moved(path: Path, count: int, inside: bool) -> float:
    async with connect(f"inproc://bench-{free_port()}", store=path) as bus:
        source, target = await bus.queue("source"), await bus.queue("target")
        await source.send_many([BODY] * (count + WARM))
        left = WARM

        async def mover() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                if inside:
                    async with bus.transaction() as tx:
                        message = await tx.receive(source)
                        assert message is not None
                        await tx.send(target, message.body)
                    continue
                async with source.receive() as message:
                    assert message is not None
                    await target.send(message.body)

        await asyncio.gather(*(mover() for _ in range(UNDER_WAY)))
        left = count
        since = perf_counter()
        await asyncio.gather(*(mover() for _ in range(UNDER_WAY)))
        seconds = perf_counter() - since
        depths = (await source.stats()).depth, (await target.stats()).depth
        assert depths == (0, count + WARM), f"{depths} messages are in the queues, and {count + WARM} were moved"
        return count / seconds
