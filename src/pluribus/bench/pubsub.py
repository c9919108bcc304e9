"""``pluribus bench pubsub``: topics beside the group that carries them, and beside other systems' topics.

Ours keeps its own window and loses nothing; the peers get one from the harness (``peers.flow``). Every rate alternates
with what it is compared with; ratios are taken run by run, and the median counts. The report names peers whose client
or server is not installed here, and peers that failed in a run, mostly because they lost messages all the same; such a
run has no rate.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from ..core.errors import PluribusError, Unavailable
from .engines import PACE_S, ROUNDS, group_trips, percentile
from .exchange import SECONDS, Case, exchange
from .peers import flow, names, peer
from .ports import free_port
from .report import Goal, Result, at_least, at_most, report, result
from .stream import Flow, stream, topic_trips

SIZES = (100, 1_024, 16_384)
RECEIVERS = (1, 4)
FIFO_SHARE = 0.7
TRIP_TIMES = 1.4
"""How many times as long as a round trip of a group a round trip over two topics may take."""
TOPICS = 100
CONDITION = "price > 100 AND symbol = 'IBM'"
OURS, GROUP = "pluribus", "fifo group"
RIVALS = "zmq,zenoh,nats,redis,mqtt"

Cell = tuple[int, int]
"""The number of subscribers, and the size of bodies."""
Rates = dict[tuple[str, str], list[float | None]]
"""Rates by system and case; None for a run that failed."""


def run(
    *, quick: bool = False, peers: str = "", progress: Callable[[str], None] = lambda text: None, **_: Any
) -> dict[str, Any]:
    rivals, missing = available(peers) if peers else ([], {})
    runs, seconds = (1, 0.3) if quick else (3, SECONDS)
    cells = [(1, 100)] if quick or not peers else [(count, size) for count in RECEIVERS for size in SIZES]
    rates: Rates = {}
    failed: dict[str, str] = {}
    trips: dict[str, list[float]] = {GROUP: [], OURS: []}
    for attempt in range(runs):
        for cell in cells:
            progress(f"run {attempt + 1} of {runs}: {_shown(cell)}")
            _one_cell(cell, rivals, seconds, rates, failed)
        progress(f"run {attempt + 1} of {runs}: many topics, types, conditions")
        for case in (
            Flow(topics=TOPICS, seconds=seconds),
            Flow(typed=True, seconds=seconds),
            Flow(typed=True, where=CONDITION, seconds=seconds),
        ):
            rates.setdefault((OURS, str(case)), []).append(stream(case).rate)
        progress(f"run {attempt + 1} of {runs}: round trips")
        rounds = 200 if quick else ROUNDS
        group = group_trips(f"multicast://bench-{free_port()}", rounds, stack="views")
        trips[GROUP].append(percentile(group, 50))
        trips[OURS].append(percentile(topic_trips(rounds, SIZES[0], PACE_S), 50))
    results: list[Result] = [
        result(f"{name}, {case}", "events/s", known)
        for (name, case), found in rates.items()
        if (known := [rate for rate in found if rate is not None])
    ]
    results += [result(f"{name}, round trip p50", "µs", found) for name, found in trips.items()]
    times = statistics.median(ours / theirs for ours, theirs in zip(trips[OURS], trips[GROUP], strict=True))
    goals = [*_goals(rates, cells, rivals), at_most("round trip over topics, times the group's", times, TRIP_TIMES)]
    made = report("pubsub", results, goals)
    made["settings"] = {rival: peer(rival).settings for rival in rivals}
    made["missing"] = missing
    made["failed"] = failed
    return made


def available(wanted: str) -> tuple[list[str], dict[str, str]]:
    """The peers that can be measured here, and the reasons why the others cannot."""
    found, missing = [], {}
    for name in names(RIVALS if wanted == "all" else wanted):
        try:
            with peer(name).endpoints():
                found.append(name)
        except Unavailable as error:
            missing[name] = str(error)
    return found, missing


def _one_cell(cell: Cell, rivals: list[str], seconds: float, rates: Rates, failed: dict[str, str]) -> None:
    count, size = cell
    shown = _shown(cell)
    group = exchange(Case(size=size, members=count + 1, seconds=seconds))
    rates.setdefault((GROUP, shown), []).append(group.rate)
    ours = stream(Flow(size=size, subscribers=count, seconds=seconds))
    rates.setdefault((OURS, shown), []).append(ours.rate)
    for rival in rivals:
        try:
            theirs: float | None = flow.rate(rival, count, size, seconds)
        except PluribusError as error:
            failed[f"{rival}, {shown}"], theirs = str(error), None
        rates.setdefault((rival, shown), []).append(theirs)


def _goals(rates: Rates, cells: list[Cell], rivals: list[str]) -> list[Goal]:
    goals = []
    for cell in cells:
        shown = _shown(cell)
        ours = rates[(OURS, shown)]
        if cell[1] == SIZES[0]:
            share = _median_ratio(ours, rates[(GROUP, shown)])
            goals.append(at_least(f"topics, {shown}: share of the group's FIFO rate", share, FIFO_SHARE))
        goals += [
            at_least(f"{shown}: times {rival}", _median_ratio(ours, theirs), 1.0)
            for rival in rivals
            if any(theirs := rates[(rival, shown)])
        ]
    return goals


def _median_ratio(ours: list[float | None], theirs: list[float | None]) -> float:
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True) if our and their)


def _shown(cell: Cell) -> str:
    return f"1→{cell[0]} {cell[1]} B"
