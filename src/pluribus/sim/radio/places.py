"""The places of nodes, and which nodes are in range of each other.

Random waypoint: a node goes straight to a place chosen by chance, then to the next, at one speed and without a rest. It
begins in the middle of a leg, chosen with a probability in proportion to its length, so that places have from the start
the distribution that they keep (Navidi and Camp 2004): otherwise nodes would gather in the middle during a run, the
faster the sooner, and a comparison of speeds would compare densities. With one seed the paths are the same at every
speed.

Places are looked at every ``STEP_S``. At 72 km/h that is 5 m, a fiftieth of the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Protocol

import numpy as np

STEP_S = 0.25
SIDE_M = 1_000.0
RANGE_M = 250.0


class Places(Protocol):
    """What the medium needs to know of the ground."""

    count: int

    def near(self, node: int, now: float) -> list[int]:
        """The nodes that receive this one, in ascending order. Range is symmetric."""
        ...

    def velocity(self, node: int, now: float) -> tuple[float, float]:
        """Metres a second, as a receiver of a satellite system would know it."""
        ...


class Waypoints:
    """``count`` nodes on a square, each on its way from one random place to another."""

    def __init__(
        self, count: int, random: Random, *, speed_m_s: float = 0.0, side_m: float = SIDE_M, range_m: float = RANGE_M
    ) -> None:
        self.count = count
        self.speed_m_s = speed_m_s
        self.side_m = side_m
        self.range_m = range_m
        self._randoms = [Random(random.getrandbits(64)) for _ in range(count)]
        self._from: Any = np.zeros((count, 2))
        self._velocity: Any = np.zeros((count, 2))
        self._since: Any = np.zeros(count)
        self._until: Any = np.full(count, np.inf)
        for node in range(count):
            self._begin(node)
        self._looked_until = -1.0
        self._in_range: Any = None
        self._near: list[list[int] | None] = []

    def _begin(self, node: int) -> None:
        random, side = self._randoms[node], self.side_m
        while True:
            ends = [random.random() * side for _ in range(4)]
            length = float(np.hypot(ends[2] - ends[0], ends[3] - ends[1]))
            if random.random() * side * 2**0.5 < length:
                break
        done = random.random()
        start = (ends[0] + done * (ends[2] - ends[0]), ends[1] + done * (ends[3] - ends[1]))
        self._go(node, start, (ends[2], ends[3]), 0.0)

    def _go(self, node: int, start: tuple[float, float], end: tuple[float, float], now: float) -> None:
        self._from[node] = start
        if self.speed_m_s <= 0:
            return
        dx, dy = end[0] - start[0], end[1] - start[1]
        length = max(float(np.hypot(dx, dy)), 1e-6)
        self._velocity[node] = (dx / length * self.speed_m_s, dy / length * self.speed_m_s)
        self._since[node] = now
        self._until[node] = now + length / self.speed_m_s

    def at(self, now: float) -> Any:
        """Metres, a row a node. Time does not go back."""
        for node in np.flatnonzero(self._until <= now).tolist():
            while self._until[node] <= now:
                then = float(self._until[node])
                x, y = (self._from[node] + self._velocity[node] * (then - self._since[node])).tolist()
                random = self._randoms[node]
                self._go(node, (x, y), (random.random() * self.side_m, random.random() * self.side_m), then)
        return self._from + self._velocity * (now - self._since)[:, None]

    def near(self, node: int, now: float) -> list[int]:
        if now >= self._looked_until:
            self._look(now)
        found = self._near[node]
        if found is None:
            found = self._near[node] = np.flatnonzero(self._in_range[node]).tolist()
        return found

    def _look(self, now: float) -> None:
        if self.speed_m_s > 0:
            step = int(now / STEP_S)
            self._looked_until = (step + 1) * STEP_S
            places = self.at(step * STEP_S)
        else:
            self._looked_until = float("inf")
            places = self._from
        x, y = places[:, 0], places[:, 1]
        apart = (x[:, None] - x[None, :]) ** 2 + (y[:, None] - y[None, :]) ** 2
        self._in_range = apart <= self.range_m**2
        np.fill_diagonal(self._in_range, False)
        self._near = [None] * self.count

    def velocity(self, node: int, now: float) -> tuple[float, float]:
        x, y = self._velocity[node].tolist()
        return (x, y)


class Drawn:
    """A graph, for tests and examples: who hears whom is said, and may be said anew at any time."""

    def __init__(self, count: int, edges: Iterable[tuple[int, int]]) -> None:
        self.count = count
        self.velocities = [(0.0, 0.0)] * count
        self.draw(edges)

    def draw(self, edges: Iterable[tuple[int, int]]) -> None:
        near: list[set[int]] = [set() for _ in range(self.count)]
        for one, other in edges:
            near[one].add(other)
            near[other].add(one)
        self._near = [sorted(found) for found in near]

    def near(self, node: int, now: float) -> list[int]:
        return self._near[node]

    def velocity(self, node: int, now: float) -> tuple[float, float]:
        return self.velocities[node]


def reached(places: Places, node: int, now: float) -> set[int]:
    """All nodes to which there is a path now, this one included."""
    found, edge = {node}, [node]
    while edge:
        for other in places.near(edge.pop(), now):
            if other not in found:
                found.add(other)
                edge.append(other)
    return found
