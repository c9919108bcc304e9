"""``pluribus bench adhoc``: multicast among moving nodes on a shared radio medium, protocol by protocol.

Fifty nodes on a square kilometre, a range of 250 m, two virtual minutes. One axis at a time: how fast nodes move, how
many there are, how many of them are members; the others stand still at 36 km/h, 50 nodes, 10 members. Each point is
five seeds; with one seed all protocols see the same paths and the same traffic (``sim.radio``).

Measured: the share of deliveries that came, the transmissions for each (all of them, and those that carry data), and
the control bytes for each: everything that was sent except bodies of messages. *Path at sending* is the share of
deliveries for which a path existed when the message was sent: a protocol that keeps no messages cannot deliver much
more.

Then conversations over each of the protocols, and again on a network so sparse that it splits: the share of messages
that the multicast alone delivered, and whether every member shows the same tree at the end.

``--sweep speed`` (``density``, ``members``) plays one axis; ``--quick`` plays a few points; ``--full`` takes a night.
Nothing here depends on the machine: the same seeds give the same figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import process_time
from typing import Any

import msgspec

from ..core.errors import BadInput
from ..sim.radio import PROTOCOLS, Outcome, Setting, Talked, play, talk
from .report import Curve, Goal, Result, at_least, at_most, report, result

Progress = Callable[[str], None]

BASE = Setting()
SEEDS, SEEDS_FULL, SEEDS_TALK = 5, 30, 3
SECONDS_FULL = 600.0
TREES, MESH, PLAIN = ("AMRIS", "AMRoute"), "ODMRP", "flooding"
BROADCAST = ("AMRIS", "ODMRP")
"""A tree and a mesh that send by broadcast, as flooding does. AMRoute is left out: when nodes move, its tunnels grow
long, and it sends more."""
PATH = "path at sending"
SPARSE_NODES = 20
"""Nodes on a square kilometre: so few that the network splits and joins again."""
CORE_S_MAX = 600.0
KEEPS, LOSES = 0.9, 0.9


class Axis(msgspec.Struct, frozen=True):
    """What is varied: its unit, the values, the values for ``--full``, and a function that puts a value into a
    setting."""

    unit: str
    values: tuple[float, ...]
    values_full: tuple[float, ...]
    put: Callable[[Setting, float], Setting]


AXES = {
    "speed": Axis(
        "km/h",
        (0, 9, 18, 36, 54, 72),
        tuple(4.5 * step for step in range(17)),
        lambda setting, value: msgspec.structs.replace(setting, speed_km_h=value),
    ),
    "density": Axis(
        "nodes on a square kilometre",
        (20, 35, 50, 75, 100),
        tuple(range(10, 151, 10)),
        lambda setting, value: msgspec.structs.replace(setting, nodes=int(value)),
    ),
    "members": Axis(
        "members among 50 nodes",
        (5, 10, 20, 30, 40),
        tuple(range(5, 51, 5)),
        lambda setting, value: msgspec.structs.replace(setting, members=int(value)),
    ),
}
AXES_FULL = {
    "loss": Axis(
        "share of frames lost",
        (),
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3),
        lambda setting, value: msgspec.structs.replace(setting, loss=value),
    ),
    "load": Axis(
        "messages/s of each of two sources",
        (),
        (0.5, 1, 2, 5, 10, 20),
        lambda setting, value: msgspec.structs.replace(setting, rate=value),
    ),
}

MEASURES: dict[str, tuple[str, Callable[[Outcome], float]]] = {
    "delivered": ("delivered, %", lambda outcome: 100 * outcome.ratio),
    "transmissions": ("transmissions a delivery", lambda outcome: outcome.transmissions_each),
    "control": ("control bytes a delivery", lambda outcome: outcome.control_bytes_each),
}
BESIDE: dict[str, tuple[str, Callable[[Outcome], float]]] = {
    "data transmissions": ("data transmissions a delivery", lambda outcome: outcome.data_transmissions_each),
    "energy": ("mJ a delivery", lambda outcome: 1e3 * outcome.energy_j / max(outcome.delivered, 1)),
    "delay": ("ms on average", lambda outcome: 1e3 * outcome.delay_s),
    "collisions": ("spoilt receptions a delivery", lambda outcome: outcome.collided / max(outcome.delivered, 1)),
}
"""Values that are reported and not drawn."""

Point = tuple[str, Setting]


class Runs:
    """Results of runs, so that a point of two axes is played once."""

    def __init__(self, seeds: range, total: int, progress: Progress) -> None:
        self.seeds = seeds
        self._total = total
        self._progress = progress
        self._done: dict[Point, list[Outcome]] = {}

    def of(self, protocol: str, setting: Setting, what: str) -> list[Outcome]:
        point = (protocol, setting)
        if point not in self._done:
            self._progress(f"{protocol}, {what} ({len(self._done) + 1} of {self._total})")
            self._done[point] = [play(protocol, msgspec.structs.replace(setting, seed=seed)) for seed in self.seeds]
        return self._done[point]


def run(
    *,
    quick: bool = False,
    full: bool = False,
    sweep: str = "",
    seed: int = 0,
    progress: Progress = lambda text: None,
    **_: Any,
) -> dict[str, Any]:
    """Play all axes, or one of them; and conversations."""
    axes = AXES | AXES_FULL if full else dict(AXES)
    if sweep and sweep not in axes:
        raise BadInput(f"--sweep {sweep} of the bench adhoc is none of {', '.join(axes)}: choose one of them")
    began_s = process_time()
    chosen = {sweep: axes[sweep]} if sweep else axes
    base = msgspec.structs.replace(BASE, seconds=SECONDS_FULL if full else 25.0 if quick else BASE.seconds)
    points = {name: _values(axis, quick, full) for name, axis in chosen.items()}
    settings = {chosen[name].put(base, value) for name, values in points.items() for value in values}
    count = 1 if quick else SEEDS_FULL if full else SEEDS
    runs = Runs(range(seed, seed + count), len(settings) * len(PROTOCOLS), progress)
    rows: list[Result] = []
    curves: list[Curve] = []
    for name, axis in chosen.items():
        found_rows, found_curves = _axis(name, axis, base, points[name], runs)
        rows += found_rows
        curves += found_curves
    goals: list[Goal] = []
    if "speed" in chosen and not quick:
        goals += _expected(base, points["speed"], runs)
    if not sweep:
        found_rows, found_goals = _conversations(range(seed, seed + (1 if quick else SEEDS_TALK)), quick, progress)
        rows += found_rows
        goals += found_goals
    if not quick and not full:
        goals.append(at_most("s of one core for all of this", process_time() - began_s, CORE_S_MAX))
    return report("adhoc", rows, goals, curves)


def _values(axis: Axis, quick: bool, full: bool) -> tuple[float, ...]:
    if full:
        return axis.values_full
    return (axis.values[0], axis.values[-1]) if quick else axis.values


def _axis(
    name: str, axis: Axis, base: Setting, values: tuple[float, ...], runs: Runs
) -> tuple[list[Result], list[Curve]]:
    rows: list[Result] = []
    drawn: dict[tuple[str, str], list[list[float]]] = {}
    for value in values:
        setting = axis.put(base, value)
        where = f"{name} {value:g}"
        for protocol in PROTOCOLS:
            outcomes = runs.of(protocol, setting, f"{value:g} {axis.unit}")
            for measure, (unit, take) in (MEASURES | BESIDE).items():
                row = result(f"{protocol}, {where}: {measure}", unit, [take(outcome) for outcome in outcomes])
                rows.append(row)
                if measure in MEASURES:
                    drawn.setdefault((unit, protocol), []).append([float(value), row.value])
        outcomes = runs.of(PLAIN, setting, "")
        row = result(f"{PATH}, {where}", "%", [100 * outcome.connected / outcome.wanted for outcome in outcomes])
        rows.append(row)
        drawn.setdefault((MEASURES["delivered"][0], PATH), []).append([float(value), row.value])
    return rows, [Curve(protocol, axis.unit, unit, points) for (unit, protocol), points in drawn.items()]


def _expected(base: Setting, speeds: tuple[float, ...], runs: Runs) -> list[Goal]:
    """Goals: what the survey says about meshes, trees and flooding."""
    put = AXES["speed"].put
    rest, fast = put(base, speeds[0]), put(base, speeds[-1])

    def median(protocol: str, setting: Setting, take: Callable[[Outcome], float]) -> float:
        return statistics.median(take(outcome) for outcome in runs.of(protocol, setting, ""))

    def kept(protocol: str) -> float:
        return median(protocol, fast, _ratio) / median(protocol, rest, _ratio)

    what = f"delivered at {speeds[-1]:g} km/h over delivered at rest"
    goals = [at_least(f"the mesh keeps its delivery, {MESH}: {what}", kept(MESH), KEEPS)]
    goals += [at_most(f"trees lose it, {tree}: {what}", kept(tree), LOSES) for tree in TREES]
    for setting, at, others in ((rest, "at rest", (*TREES, MESH)), (fast, f"at {speeds[-1]:g} km/h", BROADCAST)):
        flood = median(PLAIN, setting, _data_each)
        most = max(median(protocol, setting, _data_each) for protocol in others)
        what = f"flooding pays most data transmissions {at}: over {', '.join(others)}"
        goals.append(at_least(what, flood / most, 1.0))
    return goals


def _ratio(outcome: Outcome) -> float:
    return outcome.ratio


def _data_each(outcome: Outcome) -> float:
    return outcome.data_transmissions_each


def _conversations(seeds: range, quick: bool, progress: Progress) -> tuple[list[Result], list[Goal]]:
    """Members talk over every protocol, on the usual network and on one that parts."""
    rows: list[Result] = []
    same = total = 0
    carriers = (PLAIN, TREES[0]) if quick else tuple(PROTOCOLS)
    base = msgspec.structs.replace(BASE, seconds=30.0 if quick else 75.0, rate=1.0)
    sparse = msgspec.structs.replace(base, nodes=SPARSE_NODES)
    for setting, where in ((base, f"{base.nodes} nodes"), (sparse, f"{SPARSE_NODES} nodes")):
        for protocol in carriers:
            progress(f"conversations over {protocol}, {where}")
            talks = [talk(protocol, msgspec.structs.replace(setting, seed=seed)) for seed in seeds]
            rows += _talked(f"conversations over {protocol}, {where}", talks)
            same += sum(found.same for found in talks)
            total += len(talks)
    goal = "conversations in which every member shows the same tree in the end, %"
    return rows, [at_least(goal, 100 * same / total, 100.0)]


def _talked(what: str, talks: list[Talked]) -> list[Result]:
    return [
        result(f"{what}: by multicast alone", "delivered, %", [100 * found.ratio for found in talks]),
        result(f"{what}: same tree in the end", "% of talks", [100 * statistics.fmean(found.same for found in talks)]),
        result(f"{what}: same tree after", "s of calm", [found.after_s for found in talks]),
        result(f"{what}: sent again in answers", "messages", [found.answered for found in talks]),
    ]
