"""``pluribus bench group``: reliable groups on agreed views, in every order.

Several measurements under one name. Without options it measures one case beside the batched limit. ``--order all``
compares the orders and encryption with FIFO, ``--network namespaces`` a network of 1,500-byte packets with the loopback
interface, ``--peers`` other systems with ours (``versus``). Each alternates with what it is compared with, so that both
see the same machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import msgspec

from ..core.errors import BadInput
from ..core.limits import PATH_BYTES_ETHERNET
from . import namespaces, versus
from .engines import COUNTS, SIZES, batched
from .exchange import ALL, ONE, SECONDS, Case, Measured, Place, exchange
from .ports import free_port
from .report import Curve, Goal, Result, at_least, report, result

EVERY_ORDER = "all"
NAMESPACES = "namespaces"
SWEEPS = {"members": (2, 3, 4, 6, 8, 12), "size": (10, 100, 1_024, 4_096, 16_384, 50_000)}
PACKETS = {"1,500-byte packets": "", "1,500-byte packets, one a datagram": f"&path={PATH_BYTES_ETHERNET}"}
ORDERS = ("causal", "total", "safe", "semantic")
SHARES = {"causal": 0.8, "total": 0.5, "safe": 0.3, "encrypted": 0.7}
"""The least share of FIFO's rate, by order."""

Progress = Callable[[str], None]


def run(
    *,
    quick: bool = False,
    order: str = "fifo",
    size: int = 100,
    members: int = 2,
    senders: str = ONE,
    sealed: bool = False,
    typed: bool = False,
    network: str = "",
    peers: str = "",
    sweep: str = "",
    progress: Progress = lambda text: None,
    **_: Any,
) -> dict[str, Any]:
    """Measure the rate at which every receiver gets messages, and the cost of a message in the sender and in a
    receiver."""
    if peers:
        return versus.run(peers, quick=quick, progress=progress)
    runs, seconds = (1, 0.3) if quick else (3, SECONDS)
    case = Case("fifo" if order == EVERY_ORDER else order, size, members, senders, sealed, typed, seconds)
    if sweep:
        return swept(case, sweep, runs, progress)
    if order == EVERY_ORDER:
        return every_order(case, runs, progress)
    if network == NAMESPACES:
        return over_packets(case, runs, progress)
    return one_case(case, runs, progress)


def one_case(case: Case, runs: int, progress: Progress) -> dict[str, Any]:
    """Measure one case beside the batched limit of one sender and one receiver, which has no identities, views or
    repair."""
    limits, found = [], []
    count = COUNTS[min(SIZES, key=lambda known: abs(known - case.size))] // (2 if case.seconds >= 1 else 10)
    for attempt in range(runs):
        progress(f"run {attempt + 1} of {runs}: the batched limit")
        limits.append(batched(count, case.size))
        progress(f"run {attempt + 1} of {runs}: {case}")
        found.append(exchange(case))
    results = [*_rows(str(case), found), result(f"batched limit, {case.size} B", "messages/s", limits)]
    goals: list[Goal] = []
    if case == Case(seconds=case.seconds):
        ratio = statistics.median(measured.rate for measured in found) / statistics.median(limits)
        goals.append(at_least("fifo, 100 B, two processes: share of the batched limit", ratio, 0.5))
    return report("group", results, goals)


def over_packets(case: Case, runs: int, progress: Progress) -> dict[str, Any]:
    """Members by turns in two network namespaces, with packets of 1,500 bytes between them, beside the loopback
    interface; with datagrams of many packets, as by default, and of one."""
    found: dict[str, list[Measured]] = {ways: [] for ways in ("loopback", *PACKETS)}
    for attempt in range(runs):
        progress(f"run {attempt + 1} of {runs}: {case}, loopback")
        found["loopback"].append(exchange(case))
        for ways, options in PACKETS.items():
            progress(f"run {attempt + 1} of {runs}: {case}, {ways}")
            with namespaces.pair() as pair:
                bus = f"bench-{free_port()}"
                sides = [Place(f"multicast://{bus}?interface={address}{options}", name) for name, address in pair]
                found[ways].append(exchange(case, [sides[index % 2] for index in range(case.members)]))
    results = [row for ways, measured in found.items() for row in _rows(f"{case}, {ways}", measured)]
    for ways in PACKETS:
        shares = [one.rate / other.rate for one, other in zip(found[ways], found["loopback"], strict=True)]
        results.append(result(f"{case}, {ways}: share of loopback", "ratio", shares))
    return report("group", results, [])


def every_order(case: Case, runs: int, progress: Progress) -> dict[str, Any]:
    """Each order and encryption, right after FIFO every time; for all members sending and for one alone."""
    results: list[Result] = []
    goals: list[Goal] = []
    for senders in (ALL, ONE):
        fifo = msgspec.structs.replace(case, members=max(case.members, 4), senders=senders)
        rivals = {
            order: msgspec.structs.replace(fifo, order=order) for order in ("causal", "total", "safe", "semantic")
        }
        rivals["encrypted"] = msgspec.structs.replace(fifo, sealed=True)
        plain: list[Measured] = []
        found: dict[str, list[Measured]] = {name: [] for name in rivals}
        shares: dict[str, list[float]] = {name: [] for name in rivals}
        for attempt in range(runs):
            for name, rival in rivals.items():
                progress(f"run {attempt + 1} of {runs}: {rival}, after fifo")
                plain.append(exchange(fifo))
                found[name].append(exchange(rival))
                shares[name].append(found[name][-1].rate / plain[-1].rate)
        results += _rows(str(fifo), plain)[:1]
        for name, rival in rivals.items():
            results += _rows(str(rival), found[name])[:1]
            results.append(result(f"{rival}: share of fifo", "ratio", shares[name]))
            if name in SHARES:
                what = f"{name}, {fifo.members} members, {'all send' if senders == ALL else 'one sends'}: share of fifo"
                goals.append(at_least(what, statistics.median(shares[name]), SHARES[name]))
    return report("group", results, goals)


def swept(case: Case, what: str, runs: int, progress: Progress) -> dict[str, Any]:
    """Measure the same case with more and more members, or larger and larger messages."""
    if what not in SWEEPS:
        raise BadInput(f"--sweep {what} is nothing that groups grow by: use {' or '.join(SWEEPS)}")
    results: list[Result] = []
    points: list[list[float]] = []
    for value in SWEEPS[what]:
        one = msgspec.structs.replace(case, **{what: value})
        progress(f"{one}, {runs} runs")
        results += _rows(str(one), [exchange(one) for _ in range(runs)])
        points.append([float(value), results[-3].value])
    curve = Curve(f"{case.order}, {'all send' if case.senders == ALL else 'one sends'}", what, "messages/s", points)
    return report("group", results, [], [curve])


def _rows(case: str, found: list[Measured]) -> list[Result]:
    """Rows of the rate, and of the cost of a message. Where all members send, a sender's cost includes reading the
    messages of the others."""
    return [
        result(case, "messages/s", [measured.rate for measured in found]),
        result(f"{case}: sender", "µs a message", [measured.sender_us for measured in found]),
        result(f"{case}: receiver", "µs a message", [measured.receiver_us for measured in found]),
    ]
