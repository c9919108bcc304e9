"""``pluribus bench conversations``: a joiner gets a long history, and what orders cost on a network that loses.

The history is synchronised between members of one process, on the engine in memory: the time until the joiner has
everything, and how often the group has sent each message. Delay of the orders is measured in the simulator, on the same
lossy links with the same seeds: from sending to delivery, in virtual time.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ..conversations.words import Entry
from ..runtime.bus import Bus, connect
from ..runtime.loop.running import run as run_on_a_loop
from ..runtime.styles.conversations.room import Room
from ..sim.machinery.network import Link
from ..sim.machinery.world import run as run_a_world
from ..sim.machinery.world import world
from .report import Goal, Result, at_most, report, result

MESSAGES = 100_000
MEMBERS = 4
SYNC_S_MAX = 10.0
SENT_MAX = 1.2
ORDERS = ("semantic", "causal", "total")
SEEDS = 5
LOSS = 0.05


def run(*, quick: bool = False, progress: Callable[[str], None] = lambda text: None, **_: Any) -> dict[str, Any]:
    count, runs, seeds = (MESSAGES // 20, 1, 2) if quick else (MESSAGES, 3, SEEDS)
    results: list[Result] = []
    goals: list[Goal] = []
    seconds, copies = [], []
    for number in range(runs):
        progress(f"a joiner gets {count:,} messages")
        took, sent = run_on_a_loop(joined(count, f"inproc://bench-conversations-{number}"))
        seconds.append(took)
        copies.append(sent)
    results.append(result(f"a joiner gets {count:,} messages", "s", seconds))
    results.append(result("how often the group sends each", "times", copies))
    goals.append(at_most(f"seconds until a joiner has {count:,} messages", results[0].value, SYNC_S_MAX))
    goals.append(at_most("times that the group sends each message", results[1].value, SENT_MAX))
    medians: dict[str, float] = {}
    for order in ORDERS:
        progress(f"{order} order on a network that loses")
        delays = [run_a_world(delay_ms(order, seed)) for seed in range(seeds)]
        medians[order] = statistics.median(delays)
        results.append(result(f"{order} order, {LOSS:.0%} lost: mean delay", "ms", delays))
    goals += [
        at_most(f"delay of semantic order, compared with {order}", medians["semantic"] / medians[order], 1.0)
        for order in ORDERS[1:]
    ]
    return report("conversations", results, goals)


async def joined(count: int, url: str) -> tuple[float, float]:
    """Seconds until a joiner has everything, and how many messages the group sent for each message that the joiner
    got."""
    buses: list[Bus] = [await connect(url, name=f"m{number}", stack="views") for number in range(MEMBERS + 1)]
    try:
        rooms: list[Room] = [await bus.conversation("long") for bus in buses[:MEMBERS]]
        for number in range(count):
            parent = (7, number - 1) if number % 3 else None
            entry = Entry((7, number), parent, "somebody", float(number), "a message of some forty characters, so.")
            for room in rooms:
                room._history.add(entry, 0.0)
            if number % 100 == 0:
                await asyncio.sleep(0)
        began = perf_counter()
        late = await buses[MEMBERS].conversation("long")
        whole = asyncio.Event()
        stop = late.on_messages(lambda _: whole.set() if len(late._history) >= count else None)
        await whole.wait()
        stop()
        took = perf_counter() - began
        return took, sum(room.stats()["answered"] for room in rooms) / count
    finally:
        for bus in buses:
            await bus.close(timeout=0)


async def delay_ms(order: str, seed: int) -> float:
    """The mean time from sending to delivery at another member; a third of the messages answer another one."""
    async with world(members=4, seed=seed, stack="views") as played:
        groups = [await bus.group("talk", order=order) for bus in played.buses]
        for group in groups:
            await group.wait_for(4)
        await asyncio.sleep(3)
        played.set_link(Link(loss=LOSS))
        sent_at: dict[tuple[int, int], float] = {}
        delays: list[float] = []
        last: list[tuple[int, int]] = []

        async def read(group: Any) -> None:
            async for message in group:
                if message.id in sent_at and message.id[0] != group.me:
                    delays.append(played.now - sent_at[message.id])
                    last.append(message.id)

        readers = [asyncio.create_task(read(group)) for group in groups]
        for number in range(300):
            group = groups[number % len(groups)]
            parent = last[-1] if order == "semantic" and last and number % 3 == 0 else None
            at = played.now
            sent_at[await group.send(b"a message", parent=parent)] = at
            await asyncio.sleep(0.002)
        await asyncio.sleep(5)
        for reader in readers:
            reader.cancel()
        return statistics.fmean(delays) * 1_000
