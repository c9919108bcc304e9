"""``pluribus bench spread``: every way for a message to get to all, in one table.

*On this machine*: one sender and four receivers on the loopback interface, each a process, agreed views and first-in
first-out order; the rate that every receiver has, and what a message costs the sender. The goals are for messages of
8 KiB, or of ``--size``; shorter and longer ones are reported beside them.

*Simulated* (``sim.spreading``): from 2 to 100,000 hosts on lines of 100 Mbit/s; the time until all have a message, the
steps that it took, and the bytes that the busiest host sent. ``--sweep seconds``, ``steps`` or ``bytes`` simulates this
alone, as curves over the number of hosts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from math import ceil, log, log2
from random import Random
from time import perf_counter
from typing import Any

from ..core.errors import BadInput
from ..core.tree import FLAT, balanced, median
from ..layers.spread.gossip import fanout_for
from ..sim.machinery.spreading import Spreading, by_gossip, by_multicast, by_tree
from .exchange import Case, Measured, exchange
from .report import Curve, Goal, Result, at_least, at_most, report, result
from .tree import stack_with

MULTICAST, ONE_BY_ONE = "IP multicast", "one by one"
REAL = {
    MULTICAST: "by='multicast'",
    ONE_BY_ONE: "by='unicast'",
    "tree": "by='tree'",
    "pipelined tree": "by='pipeline'",
    "gossip": "by='gossip'",
}
SIMULATED: dict[str, Callable[[int, int], Spreading]] = {
    MULTICAST: by_multicast,
    ONE_BY_ONE: lambda hosts, size: by_tree(hosts, size, FLAT),
    "tree": lambda hosts, size: by_tree(hosts, size, median()),
    "tree, k = 3": lambda hosts, size: by_tree(hosts, size, median(3)),
    "pipelined tree": lambda hosts, size: by_tree(hosts, size, balanced()),
    "gossip": lambda hosts, size: by_gossip(hosts, size, fanout_for(hosts), Random(f"{hosts}/{size}")),
}
LEAST = "log2 n"
RECEIVERS = 4
SIZE = 8_192
"""Bytes of a message, so many that most of its cost is getting it to all."""
SIZES = (1_024, 16_384)
"""Shorter and longer messages, for comparison."""
SMALL_BYTES, LARGE_BYTES = 20_480, 1 << 20
HOSTS = (16, 1_000, 100_000)
HOSTS_MAX = 100_000
SWEEPS = {"seconds": "s until all have it", "steps": "steps", "bytes": "bytes sent by the busiest host"}
SIMULATE_S, SENDER_SHARE = 60.0, 0.5

Progress = Callable[[str], None]


def run(
    *,
    quick: bool = False,
    size: int = 0,
    sweep: str = "",
    progress: Progress = lambda text: None,
    **_: Any,
) -> dict[str, Any]:
    """All spreads side by side; with ``sweep``, how one quantity grows with the number of hosts."""
    if sweep:
        return report("spread", [], [], _curves(sweep, size or SMALL_BYTES, progress))
    real, wanted = loopback(size or SIZE, quick, progress)
    simulated, took_s = table(HOSTS[:2] if quick else HOSTS, progress)
    if not quick:
        wanted.append(at_most("100,000 hosts, every spread: s to simulate", took_s, SIMULATE_S))
    return report("spread", [*real, *simulated], wanted)


def loopback(size: int, quick: bool, progress: Progress) -> tuple[list[Result], list[Goal]]:
    """Every way for messages of this size; for other sizes the two ways that are compared."""
    rows: list[Result] = []
    goals: list[Goal] = []
    for bytes_ in dict.fromkeys([size, *(() if quick else SIZES)]):
        ways = REAL if bytes_ == size else {way: REAL[way] for way in (MULTICAST, ONE_BY_ONE)}
        found = _in_turns(ways, bytes_, 1 if quick else 4 if bytes_ == size else 2, quick, progress)
        for way, measured in found.items():
            what = f"{way}, {RECEIVERS} receivers, {bytes_:,} B"
            rows.append(result(what, "messages/s", [each.rate for each in measured]))
            rows.append(result(f"{what}: sender", "µs a message", [each.sender_us for each in measured]))
        pairs = list(zip(found[MULTICAST], found[ONE_BY_ONE], strict=True))
        rates = [one.rate / other.rate for one, other in pairs]
        costs = [one.sender_us / other.sender_us for one, other in pairs]
        rows.append(result(f"multicast, {bytes_:,} B: rate over one by one", "ratio", rates))
        rows.append(result(f"multicast, {bytes_:,} B: the sender's time over one by one", "ratio", costs))
        if bytes_ == size:
            rate, cost = statistics.median(rates), statistics.median(costs)
            goals.append(at_least("multicast to four receivers: rate over one by one", rate, 1.0))
            what = "multicast to four receivers: the sender's time over one by one"
            goals.append(at_most(what, cost, SENDER_SHARE))
    return rows, goals


def _in_turns(
    ways: dict[str, str], size: int, attempts: int, quick: bool, progress: Progress
) -> dict[str, list[Measured]]:
    """Ways take turns, so that each sees the same machine."""
    found: dict[str, list[Measured]] = {way: [] for way in ways}
    for attempt in range(attempts):
        for way, options in ways.items():
            progress(f"{way} to {RECEIVERS} receivers, {size:,} B, run {attempt + 1}")
            seconds = 0.3 if quick else 1.0
            case = Case(size=size, members=RECEIVERS + 1, seconds=seconds, stack=stack_with(options))
            found[way].append(exchange(case))
    return found


def table(hosts: tuple[int, ...], progress: Progress) -> tuple[list[Result], float]:
    """A row for each way, number of hosts and size; and the seconds for simulating the largest number."""
    rows: list[Result] = []
    took_s = 0.0
    for count in hosts:
        began = perf_counter()
        for size in (SMALL_BYTES, LARGE_BYTES):
            for way, simulate in SIMULATED.items():
                progress(f"{way} to {count:,} hosts")
                found = simulate(count, size)
                what = f"simulated: {way}, {count:,} hosts, {size:,} B"
                rows.append(result(what, "ms", [found.seconds * 1e3]))
                rows.append(result(f"{what}: steps", "steps", [found.steps]))
                rows.append(result(f"{what}: busiest host", "bytes", [found.busiest_bytes]))
        took_s = perf_counter() - began
    return rows, took_s


def _curves(sweep: str, size: int, progress: Progress) -> list[Curve]:
    if sweep not in SWEEPS:
        raise BadInput(f"--sweep {sweep} of the bench spread is none of {', '.join(SWEEPS)}: choose one of them")
    counts = [2**power for power in range(1, ceil(log(HOSTS_MAX, 2)))] + [HOSTS_MAX]
    curves = []
    for way, simulate in SIMULATED.items():
        points = []
        for hosts in counts:
            progress(f"{way} to {hosts:,} hosts")
            found = simulate(hosts, size)
            value = {"seconds": found.seconds, "steps": found.steps, "bytes": found.busiest_bytes}[sweep]
            points.append([float(hosts), round(float(value), 6)])
        curves.append(Curve(way, f"hosts, {size:,} B each", SWEEPS[sweep], points))
    if sweep == "steps":  # no way in which everybody sends one copy at a time needs fewer
        least = [[float(hosts), round(log2(hosts), 6)] for hosts in counts]
        curves.append(Curve(LEAST, f"hosts, {size:,} B each", SWEEPS[sweep], least))
    return curves
