"""``pluribus bench transactions``: one receive and one send in a transaction, beside the same without a transaction;
and the cost of an access list for the sender of a queue.

``UNDER_WAY`` transactions are under way at a time, in the process with its keeper. The sender is a client in the same
process, and the list has ``RULES`` rules.
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
"""Moves before the measured time, which load code and attach consumers."""
SHARE_MIN = 0.6
BODY = b"x" * 100
RULES = 1_000
SENT = 40_000
LISTED_MIN = 0.95
"""The least share of the rate without a list."""


def run(*, quick: bool = False, progress: Callable[[str], None], **_: Any) -> dict[str, Any]:
    runs, count = (1, 400) if quick else (5, MESSAGES)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for attempt in range(runs):
        for inside in (False, True):
            progress(f"run {attempt + 1} of {runs}: {'in transactions' if inside else 'without'}")
            with folder() as place:
                rates[inside].append(run_on_loop(_moved(place / "bench.db", count, inside)))
    share = statistics.median(rates[True]) / statistics.median(rates[False])
    listed: dict[bool, list[float]] = {False: [], True: []}
    for attempt in range(runs):
        for with_list in (False, True):
            progress(
                f"run {attempt + 1} of {runs}: a client sends, {'with' if with_list else 'without'} an access list"
            )
            with folder() as place:
                sent, rules = (2_000, 50) if quick else (SENT, RULES)
                listed[with_list].append(run_on_loop(_sent(place / "bench.db", sent, rules if with_list else 0)))
    kept = statistics.median(listed[True]) / statistics.median(listed[False])
    return report(
        "transactions",
        [
            result("receive and send, without a transaction", "moves/s", rates[False]),
            result("receive and send, in a transaction", "moves/s", rates[True]),
            result("a client sends, without an access list", "messages/s", listed[False]),
            result("a client sends, with an access list", "messages/s", listed[True]),
        ],
        [
            at_least(f"a transaction, {UNDER_WAY} under way, against none", share, SHARE_MIN),
            at_least(f"a queue behind an access list of {RULES:,} rules, against none", kept, LISTED_MIN),
        ],
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


async def _sent(path: Path, count: int, rules: int) -> float:
    """Messages a second of a client, under an access list of so many rules; 0: no list."""
    name = f"bench-{free_port()}"
    async with connect(f"inproc://{name}", store=path, serve="127.0.0.1:0") as keeper:
        host, port = keeper.doors[0].address
        token = None
        if rules:
            await keeper.access.add_user("sender", roles=["clerk"])
            await keeper.access.add_rule("role:clerk", "queue:orders", "all")
            for number in range(rules - 1):
                pattern = f"queue:shop{number}/+" if number % 2 else f"topic:shop{number}/sold"
                await keeper.access.add_rule("role:clerk", pattern, "send" if number % 2 else "publish")
            token = await keeper.access.token("sender", seconds=600)
            while not (await keeper.guard.current()).listed:  # noqa: ASYNC110 - the door asks by itself
                await asyncio.sleep(0.02)
        async with connect(f"client://{host}:{port}/{name}", token=token) as client:
            queue = await client.queue("orders")
            await queue.send_many([BODY] * WARM)
            since = perf_counter()
            for at in range(count):
                queue.send_soon(BODY)
                if at % 1_000 == 0:
                    await asyncio.sleep(0)
            await queue.flush()
            seconds = perf_counter() - since
            assert (await queue.stats()).depth == count + WARM
            return count / seconds
