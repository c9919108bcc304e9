"""The form of every bench's result, and the environment that it was taken in."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import msgspec


class Result(msgspec.Struct):
    """Median of several runs, with the extremes: machines are shared and noisy."""

    case: str
    value: float
    unit: str
    min: float
    max: float
    runs: int


class Goal(msgspec.Struct):
    goal: str
    measured: float
    wanted: float
    met: bool


class Curve(msgspec.Struct):
    """How a value grows with a size: what ``--plot`` draws."""

    curve: str
    x: str
    unit: str
    points: list[list[float]]


def result(case: str, unit: str, values: Sequence[float]) -> Result:
    return Result(
        case, round(statistics.median(values), 3), unit, round(min(values), 3), round(max(values), 3), len(values)
    )


def at_least(goal: str, measured: float, wanted: float) -> Goal:
    return Goal(goal, round(measured, 3), wanted, measured >= wanted)


def at_most(goal: str, measured: float, wanted: float) -> Goal:
    return Goal(goal, round(measured, 3), wanted, measured <= wanted)


def report(name: str, results: Sequence[Result], goals: Sequence[Goal], curves: Sequence[Curve] = ()) -> dict[str, Any]:
    """The object that every bench prints last; with ``curves`` if a value was varied."""
    swept = {"curves": [msgspec.to_builtins(row) for row in curves]} if curves else {}
    return {
        "bench": name,
        "environment": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "cores": os.cpu_count(),
            "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else [],
            "executable": os.path.basename(sys.executable),
        },
        "results": [msgspec.to_builtins(row) for row in results],
        "goals": [msgspec.to_builtins(row) for row in goals],
        **swept,
    }
