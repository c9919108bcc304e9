"""Neighbours by hello: every node sends a hello about once a second, and is forgotten after three and a half seconds of
silence.

A hello may carry the list of the sender's own neighbours and its velocity; protocols that need them ask for them, and
pay for their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .air import Air, Word
from .node import ADDRESS_BYTES, HEADER_BYTES

HELLO_S = 1.0
SILENT_S = 3.5
VELOCITY_BYTES = 4


class Hello(Word, frozen=True):
    near: tuple[int, ...] | None = None
    velocity: tuple[float, float] | None = None

    @property
    def control(self) -> int:
        listed = ADDRESS_BYTES * len(self.near) if self.near is not None else 0
        return HEADER_BYTES + listed + (VELOCITY_BYTES if self.velocity is not None else 0)


class Neighbour:
    """The known state of one node in range."""

    __slots__ = ("heard_at", "near", "velocity")

    def __init__(self, heard_at: float) -> None:
        self.heard_at = heard_at
        self.near: frozenset[int] = frozenset()
        self.velocity = (0.0, 0.0)


class Neighbourhood:
    """The table of neighbours of one node, and the hellos that keep those of others."""

    def __init__(
        self,
        me: int,
        air: Air,
        random: Random,
        *,
        lists: bool = False,
        velocities: bool = False,
        came: Callable[[int], None] = lambda node: None,
    ) -> None:
        self.me = me
        self.known: dict[int, Neighbour] = {}
        self._air = air
        self._random = random
        self._lists = lists
        self._velocities = velocities
        self._came = came

    def start(self) -> None:
        self._air.later(self._random.random() * HELLO_S, self._hello)

    def _hello(self) -> None:
        self.forget_silent()
        near = tuple(sorted(self.known)) if self._lists else None
        velocity = self._air.places.velocity(self.me, self._air.now) if self._velocities else None
        self._air.broadcast(self.me, Hello(near, velocity))
        self._air.later(HELLO_S * (0.9 + 0.2 * self._random.random()), self._hello)

    def forget_silent(self) -> None:
        silent = [node for node, found in self.known.items() if self._air.now - found.heard_at > SILENT_S]
        for node in silent:
            del self.known[node]

    def heard(self, sender: int, hello: Hello) -> None:
        new = self._touch(sender)
        found = self.known[sender]
        if hello.near is not None:
            found.near = frozenset(hello.near)
        if hello.velocity is not None:
            found.velocity = hello.velocity
        if new:
            self._came(sender)

    def noticed(self, sender: int) -> None:
        """A frame that is no hello shows that somebody is near too."""
        if self._touch(sender):
            self._came(sender)

    def _touch(self, sender: int) -> bool:
        """True if the sender was no neighbour before."""
        now = self._air.now
        found = self.known.get(sender)
        if found is not None and now - found.heard_at <= SILENT_S:
            found.heard_at = now
            return False
        self.known[sender] = Neighbour(now)
        return True

    @property
    def relative_speed_m_s(self) -> float:
        """Of the neighbours, on average, against this node."""
        if not self.known:
            return 0.0
        x, y = self._air.places.velocity(self.me, self._air.now)
        speeds = (((x - found.velocity[0]) ** 2 + (y - found.velocity[1]) ** 2) ** 0.5 for found in self.known.values())
        mean: float = sum(speeds) / len(self.known)
        return mean
