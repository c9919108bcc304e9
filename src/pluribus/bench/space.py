"""``pluribus bench space``: tuple spaces, beside a list of Redis.

*Reads* from the member's own copy of a replicated space, at a thousand tuples and at very many. *Write and take*
between two processes, in memory, one at a time and a hundred at a time, beside ``LPUSH`` and ``BRPOP``. *Counted*: how
the requests to a partitioned space spread over twice the servers; the rate is bound by the busiest one.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections.abc import Callable
from itertools import pairwise
from random import Random
from time import perf_counter
from typing import Any

from ..runtime.bus import connect
from ..runtime.loop.running import run as run_loop
from ..spaces.partitioned.ranges import placement, range_of
from ..spaces.values import item_of
from .report import Goal, Result, at_least, report, result

FEW, MANY = 1_000, 1_000_000
QUICK_MANY = 20_000
READS = 50_000
READS_WANTED = 100_000
SLOWER_MAX = 1.25
ONE_BY_ONE = 5_000
AT_ONCE = 100
BATCHES = 500
REDIS_ONE = 0.8
REDIS_MANY = 0.25
SERVERS = (2, 4, 8, 16)
REQUESTS = 100_000
TWICE = 1.7

Progress = Callable[[str], None]


def run(*, quick: bool = False, peers: str = "", progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    """Measure, and compare with the goals."""
    runs = 1 if quick else 3
    many = QUICK_MANY if quick else MANY
    rows: list[Result] = []
    goals: list[Goal] = []
    progress("reads of the own copy")
    rates = run_loop(reads(FEW, many, runs, 2_000 if quick else READS))
    for count, found in rates.items():
        rows.append(result(f"read(stale=True), {count:,} tuples", "reads/s", found))
    few, large = statistics.median(rates[FEW]), statistics.median(rates[many])
    goals.append(at_least("read(stale=True): reads/s", large, READS_WANTED))
    goals.append(
        Goal(f"read at {many:,} against {FEW:,} tuples: slower", few / large, SLOWER_MAX, few / large <= SLOWER_MAX)
    )
    singles, batches = (200, 20) if quick else (ONE_BY_ONE, BATCHES)
    ours: dict[int, list[float]] = {}
    for at_once, rounds in ((1, singles), (AT_ONCE, batches)):
        progress(f"write and take, {at_once} at a time")
        ours[at_once] = [run_loop(between(rounds, at_once)) for _ in range(runs)]
        rows.append(result(f"write and take, two processes, {at_once} at a time", "tuples/s", ours[at_once]))
    if peers:
        rows_of_redis, goals_of_redis = beside_redis(ours, singles, batches, runs, progress)
        rows += rows_of_redis
        goals += goals_of_redis
    for servers, twice in pairwise(SERVERS):
        before, after = counted(servers), counted(twice)
        rows.append(result(f"partitioned, {servers} servers", "requests for each of the busiest", [before]))
        goals.append(at_least(f"partitioned, {twice} servers over {servers}: rate, counted", after / before, TWICE))
    return report("space", rows, goals)


async def reads(few: int, many: int, runs: int, count: int) -> dict[int, list[float]]:
    """Reads a second of tuples by their names, from the member's own copy."""
    found: dict[int, list[float]] = {}
    async with connect(f"inproc://bench-space-{os.getpid()}") as bus:
        for size in (few, many):
            space = await bus.space(f"reads {size}")
            for at in range(0, size, 10_000):
                await space.write_many([(f"name {number}", number) for number in range(at, min(at + 10_000, size))])
            templates = [(f"name {number * 7919 % size}", int) for number in range(count)]
            await space.read(templates[0], stale=True)
            for _ in range(runs):
                began = perf_counter()
                for template in templates:
                    await space.read(template, stale=True)
                found.setdefault(size, []).append(count / (perf_counter() - began))
    return found


async def between(rounds: int, at_once: int) -> float:
    """Tuples a second from this process to another process, which takes them."""
    url = f"multicast://bench-space-{os.getpid()}-{perf_counter():.6f}"
    async with connect(url, name="writer") as bus:
        space = await bus.space("between")
        arguments = [sys.executable, "-m", __name__, url, str(rounds * at_once), str(at_once)]
        taker = await asyncio.create_subprocess_exec(*arguments)
        await space.take(("ready",), timeout=60)
        began = perf_counter()
        for number in range(rounds):
            if at_once == 1:
                await space.write(("x", number))
            else:
                await space.write_many([("x", number)] * at_once)
        await space.take(("done",), timeout=600)
        took_s = perf_counter() - began
        await taker.wait()
    return rounds * at_once / took_s


async def taking(url: str, count: int, at_once: int) -> None:
    """Run the other process."""
    async with connect(url, name="taker") as bus:
        space = await bus.space("between")
        await space.write(("ready",))
        while count:
            if at_once == 1:
                await space.take(("x", int))
                count -= 1
            else:
                count -= len(await space.take_many(("x", int), at_once))
        await space.write(("done",))
        await space.flush()


def beside_redis(
    ours: dict[int, list[float]], singles: int, batches: int, runs: int, progress: Progress
) -> tuple[list[Result], list[Goal]]:
    from .peers.redis_list import listed

    rows: list[Result] = []
    goals: list[Goal] = []
    for at_once, rounds, wanted in ((1, singles, REDIS_ONE), (AT_ONCE, batches, REDIS_MANY)):
        progress(f"Redis, {at_once} at a time")
        found = [listed(rounds, at_once) for _ in range(runs)]
        how = "LPUSH and BRPOP" if at_once == 1 else f"LPUSH and LPOP pipelined by {at_once}"
        rows.append(result(f"Redis, two processes, {how}", "items/s", found))
        ratio = statistics.median(ours[at_once]) / statistics.median(found)
        goals.append(at_least(f"of Redis, {at_once} at a time", ratio, wanted))
    return rows, goals


def counted(servers: int) -> float:
    """For requests with many names: all requests divided by those that the busiest of so many servers gets."""
    random = Random(servers)
    members = [random.getrandbits(62) for _ in range(servers)]
    owners = [placed[0] for placed in placement(members, 1)]
    served = dict.fromkeys(members, 0)
    for number in range(REQUESTS):
        served[owners[range_of(item_of((f"name {number}", number)), 0)]] += 1
    return REQUESTS / max(served.values())


if __name__ == "__main__":
    run_loop(taking(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
