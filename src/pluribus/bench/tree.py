"""``pluribus bench tree``: the source's experiment again, on as many network namespaces as it had hosts.

Every host is in a network namespace of its own, joined by a bridge; each line carries 100 Mbit/s in either direction.
One member sends a message to all; the time ends when the last of them has read it, by the machine's one clock. Sending
one by one is a fair rival: it streams, and waits for no acknowledgement between two copies, so only its line limits it.
With 16 hosts the tree can therefore be faster by at most 15 copies on that line against 4, the pipelined tree by 15
against 2.

One machine plays all hosts, so a host does little beside its task. As many processes as there are cores share the
hosts, each host with a namespace, a socket and a stack of its own: sixteen processes on two cores would measure how
long a processor takes to go from one to another, at every step of the tree and once for one by one. They have a higher
priority than other processes of the machine. Packets of a datagram are joined by the kernel (``packet=60000``: they
travel as fragments), because eight hosts that are woken for each packet of eight lines keep two cores busier than the
lines; members send few heartbeats; and no process collects garbage between messages.

Every way sends a message in three pieces or more (``path=``), so that a hop passes on the first piece while the second
is on its way to it. This makes no difference one by one; in a tree it hides the cost of every hop but the last.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import statistics
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from time import monotonic
from typing import Any

import msgspec

import pluribus

from ..runtime.bus import VIEWS
from . import namespaces
from .processes import Role, Together, measure
from .report import Goal, Result, at_least, report, result

GROUP = "bench"
LARGE_BYTES = 1 << 20
MBIT_S = 100
PORT = 7_700
ONE_BY_ONE = "one by one"
PIPELINED = "pipelined tree of degree 2"
WAYS = {
    ONE_BY_ONE: "by='unicast'",
    **{f"tree, k = {k}": f"by='tree', k={k}" for k in (1, 2, 3, 4)},
    PIPELINED: "by='pipeline'",
}
TREE_RATIO, PIPELINED_RATIO = 3.3, 5.0
PAPER_BYTES, PAPER_HOSTS = 20_480, 16
JOIN_S = 40.0
PIECES, PIECE_OVERHEAD_BYTES, PATH_BYTES_MAX = 3, 600, 32_768
PAUSE_S = 0.12
"""Seconds between two messages, so that all words about the one before have been sent."""
CALM = "detector(beat_s=2.0, silence_s=10.0)"
"""A detector with few heartbeats: sixteen members that send heartbeats to each other keep two cores busy."""


class Plan(msgspec.Struct):
    """The plan of all hosts: for each way, so many rounds of messages of each size."""

    hosts: int
    ways: dict[str, str]
    rounds: dict[int, int]
    packet_bytes: int = 60_000


class Host(msgspec.Struct, frozen=True):
    """One host; the first one sends."""

    number: int
    namespace: str
    address: str


def run(
    *,
    quick: bool = False,
    hosts: int = PAPER_HOSTS,
    size: int = PAPER_BYTES,
    progress: Callable[[str], None] = lambda text: None,
    **_: Any,
) -> dict[str, Any]:
    """Measure the milliseconds until all have a message, by every way, and how many times faster than one by one that
    is."""
    rounds = {size: 5 if quick else 12}
    if size != LARGE_BYTES:
        rounds[LARGE_BYTES] = 1 if quick else 2
    plan = Plan(hosts, WAYS, rounds)
    took: dict[tuple[str, int], list[float]] = {}
    for attempt in range(1 if quick else 2):
        progress(f"{hosts} hosts, pass {attempt + 1}")
        for key, values in _one_pass(plan).items():
            took.setdefault(key, []).extend(values)
    return report("tree", *_rows(plan, took))


def _rows(plan: Plan, took: dict[tuple[str, int], list[float]]) -> tuple[list[Result], list[Goal]]:
    rows: list[Result] = []
    goals: list[Goal] = []
    for bytes_ in plan.rounds:
        plain = statistics.median(took[(ONE_BY_ONE, bytes_)])
        for way in plan.ways:
            values = took[(way, bytes_)]
            rows.append(result(f"{way}, {plan.hosts} hosts, {bytes_:,} B", "ms", values))
            if way != ONE_BY_ONE:
                ratio = plain / statistics.median(values)
                rows.append(result(f"{way}, {bytes_:,} B: times faster than one by one", "ratio", [ratio]))
                if plan.hosts == PAPER_HOSTS and (way, bytes_) == ("tree, k = 1", PAPER_BYTES):
                    goals.append(at_least("tree, 16 hosts, 20 KB: times faster than one by one", ratio, TREE_RATIO))
                if plan.hosts == PAPER_HOSTS and (way, bytes_) == (PIPELINED, LARGE_BYTES):
                    what = "pipelined tree, 16 hosts, 1 MB: times faster than one by one"
                    goals.append(at_least(what, ratio, PIPELINED_RATIO))
    return rows, goals


def _one_pass(plan: Plan) -> dict[tuple[str, int], list[float]]:
    """By way and size: milliseconds from ``send`` until the last member had read it, a value a round."""
    with namespaces.bridged(plan.hosts, MBIT_S) as places:
        hosts = [Host(number, name, address) for number, (name, address) in enumerate(places)]
        cores = min(len(os.sched_getaffinity(0)), plan.hosts)
        roles: list[Role] = [(_core, (plan, hosts[core::cores], places[0][1])) for core in range(cores)]
        answers: list[dict[tuple[str, int], list[list[float]]]] = measure(roles, cores, 600)
    took: dict[tuple[str, int], list[float]] = {}
    for key in answers[0]:
        by_round = zip(*(times for answer in answers for times in answer[key]), strict=True)
        took[key] = [(max(times) - min(times)) * 1e3 for times in by_round]
    return took


def _core(together: Together, plan: Plan, hosts: list[Host], seed: str) -> None:
    """Play the hosts of one processor. Answers, by way and size, a list for each host: the times at which it sent each
    message (the first host) or had read it (the others)."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    pluribus.run(_rounds(together, plan, hosts, seed))


async def _rounds(together: Together, plan: Plan, hosts: list[Host], seed: str) -> None:
    found: dict[tuple[str, int], list[list[float]]] = {}
    for number, (way, size) in enumerate(itertools.product(plan.ways, plan.rounds)):
        path = f"path={min(size // PIECES + PIECE_OVERHEAD_BYTES, PATH_BYTES_MAX)}&packet={plan.packet_bytes}"
        port = PORT + number
        async with AsyncExitStack() as opened:
            joined = []
            for host in hosts:
                where = f"&bind={host.address}:{port}" if host.number else ""
                url = f"udp://{seed}:{port}/tree-{number}?{path}{where}"
                joined.append((host, await _join(opened, host, url, plan.ways[way])))
            for _, group in joined:
                await group.wait_for(plan.hosts, timeout=JOIN_S)
            gc.collect()
            gc.freeze()
            gc.disable()
            times: list[list[float]] = []
            for _ in range(plan.rounds[size]):
                await asyncio.to_thread(together.wait)
                turns = [_read(group) if host.number else _send(group, size) for host, group in joined]
                times.append(await asyncio.gather(*turns))
            found[(way, size)] = [list(of_host) for of_host in zip(*times, strict=True)]
            await asyncio.to_thread(together.wait)
        gc.enable()
    together.answer(found)


async def _join(opened: AsyncExitStack, host: Host, url: str, options: str) -> pluribus.Group:
    """Start one host after another: a socket is in the namespace in which its thread was when it made the socket."""
    namespaces.enter(host.namespace)
    bus = await opened.enter_async_context(pluribus.connect(url, name=f"host-{host.number}", stack=stack_with(options)))
    return await bus.group(GROUP, own=host.number != 0)


async def _send(group: pluribus.Group, size: int) -> float:
    await asyncio.sleep(PAUSE_S)
    body = bytes(size)
    sent_at = monotonic()
    await group.send(body)
    return sent_at


async def _read(group: pluribus.Group) -> float:
    await group.receive()
    read_at = monotonic()
    await asyncio.sleep(PAUSE_S)  # the others need the processor now
    return read_at


def stack_with(options: str) -> str:
    """Agreed views, with one way to spread."""
    parts = [CALM if part == "detector" else part for part in VIEWS.split(" | ") if not part.startswith("spread")]
    parts.insert(parts.index("reliable"), f"spread({options})")
    return " | ".join(parts)
