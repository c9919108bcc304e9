"""``pluribus bench group``: agreed views and an order, one sender, every other member receives and reads all of it."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import pluribus

from .engines import COUNTS, SIZES, batched, free_port
from .members import read_all
from .processes import Role, Together, measure
from .report import Goal, at_least, report, result

GROUP = "bench"
JOIN_S = 40.0


def run(
    *,
    quick: bool = False,
    order: str = "fifo",
    size: int = 100,
    members: int = 2,
    progress: Callable[[str], None] = lambda text: None,
    **_: Any,
) -> dict[str, Any]:
    """The rate at the slowest receiver, beside the batched limit of one sender and one receiver in the same run."""
    runs, share = (1, 10) if quick else (3, 2)
    count = COUNTS[min(SIZES, key=lambda known: abs(known - size))] // share // max(members - 1, 1)
    limits, rates = [], []
    for attempt in range(runs):
        progress(f"run {attempt + 1} of {runs}: the batched limit")
        limits.append(batched(count, size))
        progress(f"run {attempt + 1} of {runs}: {order}, {members} members")
        rates.append(_rate(order, size, members, count))
    case = f"{order}, {size} B, {members} members"
    goals: list[Goal] = []
    if (order, size, members) == ("fifo", 100, 2):
        ratio = statistics.median(rates) / statistics.median(limits)
        goals.append(at_least("fifo, 100 B, two processes: share of the batched limit", ratio, 0.5))
    results = [result(case, "messages/s", rates), result(f"batched limit, {size} B", "messages/s", limits)]
    return report("group", results, goals)


def _rate(order: str, size: int, members: int, count: int) -> float:
    url = f"multicast://bench-{free_port()}"
    receivers: list[Role] = [(_receiver, (url, order, count, members)) for _ in range(members - 1)]
    roles: list[Role] = [*receivers, (_sender, (url, order, count, size, members))]
    return float(min(measure(roles, members - 1)))


async def _joined(bus: pluribus.Bus, order: str, members: int, *, own: bool) -> pluribus.Group:
    safe = order == "safe"
    group = await bus.group(GROUP, order="total" if safe else order, safe=safe, own=own)
    await group.wait_for(members, timeout=JOIN_S)
    return group


def _receiver(together: Together, url: str, order: str, count: int, members: int) -> None:
    async def main() -> None:
        async with pluribus.connect(url, name="receiver", stack="views") as bus:
            group = await _joined(bus, order, members, own=True)
            await asyncio.to_thread(together.wait)
            started = await read_all(group, count)
            together.answer(count / (perf_counter() - started))
            await asyncio.to_thread(together.wait)  # nobody leaves before all have everything

    pluribus.run(main())


def _sender(together: Together, url: str, order: str, count: int, size: int, members: int) -> None:
    async def main() -> None:
        async with pluribus.connect(url, name="sender", stack="views") as bus:
            group = await _joined(bus, order, members, own=False)
            await asyncio.to_thread(together.wait)
            body = b"x" * size
            for _ in range(count):
                await group.send(body)
            await asyncio.to_thread(together.wait)

    pluribus.run(main())
