"""``pluribus bench group --peers``: reliable FIFO groups beside other systems, one after another in the same run.

Ours keeps its own window and loses nothing; the peers get one from the harness (``peers.flow``), without which most of
them lose messages. Ratios are taken run by run, between neighbours, and the median counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from .engines import COUNTS, PACE_S, ROUNDS, SIZES, asyncio_trips, batched, group_trips, percentile
from .exchange import SECONDS, Case, exchange
from .peers import flow, names, peer
from .ports import free_port
from .report import Goal, Result, at_least, at_most, report, result

RECEIVERS = (1, 4)
ZMQ = "zmq"
WANTED_OF_ZMQ = {(1, 100): 2.0, (4, 100): 2.0, (4, 1_024): 3.0, (4, 16_384): 3.0}
"""How many times as fast as pyzmq ours must be, by receivers and size; in every other case, and beside every other
peer, it must be faster."""
WANTED_AT_16_KIB = 0.9
LIMIT_SHARE, PLAIN_TIMES = 0.5, 1.5

Cell = tuple[int, int]
"""The number of receivers, and the size of bodies."""
Rates = dict[tuple[str, Cell], list[float]]
OURS, LIMIT, PLAIN = "pluribus", "batched limit", "asyncio UDP"


def run(wanted: str, *, quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    rivals = names(wanted)
    for rival in rivals:
        peer(rival)  # a client that is missing is said before anything is measured
    runs, seconds, rounds = (1, 0.3, 200) if quick else (3, SECONDS, ROUNDS)
    rates: Rates = {}
    trips: dict[str, list[list[float]]] = {}
    for attempt in range(runs):
        for cell in ((receivers, size) for receivers in RECEIVERS for size in SIZES):
            progress(f"run {attempt + 1} of {runs}: {_shown(cell)}")
            _one_cell(cell, rivals, seconds, rates)
        progress(f"run {attempt + 1} of {runs}: round trips")
        url = f"multicast://bench-{free_port()}"
        trips.setdefault(OURS, []).append(group_trips(url, rounds, stack="views"))
        trips.setdefault(PLAIN, []).append(asyncio_trips(rounds))
        for rival in rivals:
            trips.setdefault(rival, []).append(flow.trips(rival, rounds, 100, PACE_S))
    results = [result(f"{name}, {_shown(cell)}", "messages/s", values) for (name, cell), values in rates.items()]
    results += _trip_rows(trips)
    found = report("group", results, [*_rate_goals(rates, rivals), *_trip_goals(trips, rivals)])
    found["settings"] = {rival: peer(rival).settings for rival in rivals}
    return found


def _one_cell(cell: Cell, rivals: list[str], seconds: float, rates: Rates) -> None:
    receivers, size = cell
    if cell == (1, 100):
        rates.setdefault((LIMIT, cell), []).append(batched(int(COUNTS[size] * seconds / SECONDS), size))
    ours = exchange(Case(size=size, members=receivers + 1, seconds=seconds))
    rates.setdefault((OURS, cell), []).append(ours.rate)
    for rival in rivals:
        rates.setdefault((rival, cell), []).append(flow.rate(rival, receivers, size, seconds))


def _rate_goals(rates: Rates, rivals: list[str]) -> list[Goal]:
    goals = []
    for (name, cell), ours in rates.items():
        if name != OURS:
            continue
        if (LIMIT, cell) in rates:
            share = _median_ratio(ours, rates[(LIMIT, cell)])
            goals.append(at_least(f"{_shown(cell)}: share of the batched limit", share, LIMIT_SHARE))
        families = [[rival for rival in rivals if rival.startswith(ZMQ)]]
        families += [[rival] for rival in rivals if rival not in families[0]]
        for family in filter(None, families):
            theirs = list(map(max, zip(*(rates[(rival, cell)] for rival in family), strict=True)))
            known = family[0].partition("-")[0]
            wanted = WANTED_OF_ZMQ.get(cell, 1.0) if known == ZMQ else 1.0 if cell[1] < SIZES[-1] else WANTED_AT_16_KIB
            goals.append(at_least(f"{_shown(cell)}: times {known}", _median_ratio(ours, theirs), wanted))
    return goals


def _trip_goals(trips: dict[str, list[list[float]]], rivals: list[str]) -> list[Goal]:
    middle = {name: [percentile(run, 50) for run in found] for name, found in trips.items()}
    goals = [at_most("round trip p50 over plain asyncio UDP", _median_ratio(middle[OURS], middle[PLAIN]), PLAIN_TIMES)]
    for rival in rivals:
        goals.append(at_most(f"round trip p50 over {rival}", _median_ratio(middle[OURS], middle[rival]), 1.0))
    return goals


def _trip_rows(trips: dict[str, list[list[float]]]) -> list[Result]:
    return [
        result(f"{name}, round trip p{percent}", "µs", [percentile(run, percent) for run in found])
        for name, found in trips.items()
        for percent in (50, 99)
    ]


def _median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


def _shown(cell: Cell) -> str:
    return f"1→{cell[0]} {cell[1]} B"
