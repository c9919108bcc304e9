"""Campaigns: one scenario over many seeds, and the replay of one of them."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from ...core.errors import PluribusError, SimulationError
from ..checkers.views import changed_in_flight
from ..scenarios import Scenario, scenario
from .history import History
from .network import Medium
from .world import World, run

CHECKS_MIN = 10_000
STRIKES_MIN = 100
SEEDS_FOR_MINIMA = 200
"""Seeds from which on a campaign must reach the minima; a shorter one is a sample."""

COLLECT_AFTER_OBJECTS = 200_000
"""New objects after which Python looks for cycles while a seed is played. A world makes few cycles and many objects: at
Python's own 700 the looking takes a sixth of the time."""


class Outcome(msgspec.Struct):
    """The outcome of one seed."""

    seed: int
    trace_hash: str
    events: int
    checks: dict[str, int]
    faults: dict[str, int]
    failure: str = ""
    flying: int = 0
    """Views that were entered while messages were under way."""
    cells: tuple[str, ...] = ()
    """Of the scenario's matrix."""


Keep = Callable[[str, int, History, Iterable[str]], None]
"""Called with the history of each seed, with the names of its scenario, its seed and the promises that were checked."""


def play_seed(name: str, seed: int, trace: Callable[[str], None] | None = None, keep: Keep | None = None) -> Outcome:
    """Run one seed. Any error in it, a broken promise or an exception of our own code, is its failure."""
    played = scenario(name)
    members = Random(f"{seed}/members").randrange(played.members_min, played.members_max + 1)
    medium = played.media[seed % len(played.media)]
    world = World(members, seed, stack=played.stack_of(seed, members), medium=medium, trace=trace)
    history = History()
    checks: dict[str, int] = {}
    failure = ""

    lost: list[str] = []

    async def main() -> None:
        # A task that is not awaited fails in silence otherwise, and its work is not done.
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(_told(context)))
        async with world:
            await played.play(world, history)

    try:
        with _collecting_rarely():
            run(main())
        if lost:
            raise SimulationError(lost[0])
        for checker, check in played.checkers.items():
            checks[checker] = check(history)
    except PluribusError as error:
        failure = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - our own bug is as much a failure of the seed as a violation
        failure = traceback.format_exc()
    if keep is not None:
        keep(name, seed, history, played.checkers)
    promised = {h.promises for h in history.of("view")} & set(played.promises)
    cells = tuple(sorted(cell_of(medium, promises) for promises in promised))
    flying = changed_in_flight(history)
    return Outcome(seed, world.trace_hash, world.kernel.events, checks, dict(world.faults), failure, flying, cells)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _told(context: dict[str, Any]) -> str:
    """The text of a loop's report of an exception."""
    error = context.get("exception")
    where = "".join(traceback.format_exception(error)) if error is not None else ""
    return f"{context['message']}\n{where}".strip()


def cell_of(medium: Medium, promises: str) -> str:
    return f"{medium}, {promises}"


def matrix_of(played: Scenario) -> list[str]:
    """Every medium, with the promises of groups on it."""
    return [cell_of(medium, promises) for medium in played.media for promises in played.promises]


def campaign(
    name: str,
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    progress: Callable[[Outcome], None] | None = None,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """Run every seed and add up; the report is what ``pluribus sim`` prints. ``keep`` must be picklable for jobs."""
    played = scenario(name)
    started = perf_counter()
    checks: Counter[str] = Counter(dict.fromkeys(played.checkers, 0))
    faults: Counter[str] = Counter(dict.fromkeys(played.faults, 0))
    matrix: Counter[str] = Counter(dict.fromkeys(matrix_of(played), 0))
    failures: list[Outcome] = []
    events = count = flying = 0
    for outcome in _outcomes(name, list(seeds), jobs, keep):
        count += 1
        events += outcome.events
        checks.update(outcome.checks)
        faults.update(outcome.faults)
        matrix.update(outcome.cells)
        flying += outcome.flying > 0
        if outcome.failure:
            failures.append(outcome)
        if progress is not None:
            progress(outcome)
    failures.sort(key=lambda outcome: outcome.seed)  # several processes finish in any order
    return {
        "scenario": name,
        "seeds": count,
        "violations": len(failures),
        "failures": [outcome.seed for outcome in failures],
        "reasons": {str(outcome.seed): outcome.failure for outcome in failures[:20]},
        "checkers": dict(checks),
        "faults": dict(sorted(faults.items())),
        "matrix": dict(matrix),
        "seeds_with_views_changed_in_flight": flying,
        "weak": weaknesses(played, count, checks, faults, matrix, flying),
        "events": events,
        "seconds": round(perf_counter() - started, 3),
    }


def weaknesses(
    played: Scenario,
    seeds: int,
    checks: Counter[str],
    faults: Counter[str],
    matrix: Mapping[str, int],
    flying: int,
) -> list[str]:
    """Why a long campaign proves too little; a short one is only a sample."""
    if seeds < SEEDS_FOR_MINIMA:
        return []
    weak = [
        f"{name} made {checks[name]} checks of {CHECKS_MIN}" for name in played.checkers if checks[name] < CHECKS_MIN
    ]
    weak += [
        f"{name} struck {faults[name]} times of {STRIKES_MIN}" for name in played.faults if faults[name] < STRIKES_MIN
    ]
    weak += [f"no seed ran {cell}" for cell in matrix_of(played) if not matrix.get(cell)]
    if played.promises and 2 * flying < seeds:
        weak.append(f"views changed while messages were under way in {flying} of {seeds} seeds, which is under half")
    return weak


def _outcomes(name: str, seeds: list[int], jobs: int, keep: Keep | None) -> Iterator[Outcome]:
    if jobs <= 1:
        for seed in seeds:
            yield play_seed(name, seed, keep=keep)
        return
    context = multiprocessing.get_context("spawn")  # a forked child would inherit the parent's loops and threads
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(_Play(name, keep), seeds, chunksize=max(1, min(20, len(seeds) // (jobs * 4))))


class _Play:
    """A picklable call for the pool."""

    def __init__(self, name: str, keep: Keep | None) -> None:
        self._name = name
        self._keep = keep

    def __call__(self, seed: int) -> Outcome:
        return play_seed(self._name, seed, keep=self._keep)
