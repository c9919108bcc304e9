"""Campaigns: one scenario over many seeds, and the replay of one of them."""

from __future__ import annotations

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from ..core.errors import PluribusError
from .history import History
from .scenarios import Scenario, scenario
from .world import World, run

CHECKS_MIN = 10_000
STRIKES_MIN = 100
SEEDS_FOR_MINIMA = 200
"""A campaign of so many seeds must reach the minima; a shorter one is a sample."""


class Outcome(msgspec.Struct):
    """What became of one seed."""

    seed: int
    trace_hash: str
    events: int
    checks: dict[str, int]
    faults: dict[str, int]
    failure: str = ""


def play_seed(name: str, seed: int, trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed. Whatever goes wrong in it, a broken promise or a crash of our own code, is its failure."""
    played = scenario(name)
    members = Random(f"{seed}/members").randrange(played.members_min, played.members_max + 1)
    world = World(members, seed, stack=played.stack_of(seed, members), trace=trace)
    history = History()
    checks: dict[str, int] = {}
    failure = ""

    async def main() -> None:
        async with world:
            await played.play(world, history)

    try:
        run(main())
        for checker, check in played.checkers.items():
            checks[checker] = check(history)
    except PluribusError as error:
        failure = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - our own bug is as much a failure of the seed as a violation
        failure = traceback.format_exc()
    return Outcome(seed, world.trace_hash, world.kernel.events, checks, dict(world.faults), failure)


def campaign(
    name: str, seeds: Iterable[int], *, jobs: int = 1, progress: Callable[[Outcome], None] | None = None
) -> dict[str, Any]:
    """Run every seed and add up; the report is what ``pluribus sim`` prints."""
    played = scenario(name)
    started = perf_counter()
    checks: Counter[str] = Counter(dict.fromkeys(played.checkers, 0))
    faults: Counter[str] = Counter(dict.fromkeys(played.faults, 0))
    failures: list[Outcome] = []
    events = count = 0
    for outcome in _outcomes(name, list(seeds), jobs):
        count += 1
        events += outcome.events
        checks.update(outcome.checks)
        faults.update(outcome.faults)
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
        "weak": weaknesses(played, count, checks, faults),
        "events": events,
        "seconds": round(perf_counter() - started, 3),
    }


def weaknesses(played: Scenario, seeds: int, checks: Counter[str], faults: Counter[str]) -> list[str]:
    """Why a long campaign proves too little; a short one is only a sample."""
    if seeds < SEEDS_FOR_MINIMA:
        return []
    weak = [
        f"{name} made {checks[name]} checks of {CHECKS_MIN}" for name in played.checkers if checks[name] < CHECKS_MIN
    ]
    weak += [
        f"{name} struck {faults[name]} times of {STRIKES_MIN}" for name in played.faults if faults[name] < STRIKES_MIN
    ]
    return weak


def _outcomes(name: str, seeds: list[int], jobs: int) -> Iterator[Outcome]:
    if jobs <= 1:
        for seed in seeds:
            yield play_seed(name, seed)
        return
    context = multiprocessing.get_context("spawn")  # a forked child would inherit the parent's loops and threads
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(_Play(name), seeds, chunksize=max(1, min(20, len(seeds) // (jobs * 4))))


class _Play:
    """A picklable call for the pool."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, seed: int) -> Outcome:
        return play_seed(self._name, seed)
