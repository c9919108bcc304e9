"""Adaptive flooding: scoped, plain or hyper, as fast as the neighbours move. Source: M2MC, 2.4.3.

Theory of operation
-------------------
Every node decides for itself, message by message, from what it sees: the mean speed of its neighbours relative to its
own. Hellos carry velocities (from a satellite receiver, say) and lists of neighbours. Below ``SLOW_M_S`` the node is
in scoped mode, above ``FAST_M_S`` in hyper mode, between them it floods plainly. Nodes of different modes understand
each other: a message is the same in each, and who keeps a cache keeps it in every mode, so that it has one when it
speeds up.

The survey names the relative velocity as one condition among others and no limits: these are ours.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Any

from .flooding import Flooding
from .hyper import Cache
from .neighbours import Hello, Neighbourhood
from .node import JITTER_S, Data
from .scoped import covered

SLOW_M_S = 3.0
FAST_M_S = 12.0


class Mode(StrEnum):
    SCOPED = auto()
    PLAIN = auto()
    HYPER = auto()


class AdaptiveFlooding(Flooding):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.neighbours = Neighbourhood(self.me, self.air, self.random, lists=True, velocities=True, came=self._came)
        self.cache = Cache(self)

    @property
    def mode(self) -> Mode:
        speed = self.neighbours.relative_speed_m_s
        return Mode.SCOPED if speed < SLOW_M_S else Mode.HYPER if speed > FAST_M_S else Mode.PLAIN

    def start(self) -> None:
        self.neighbours.start()

    def send(self, data: Data) -> None:
        self.cache.add(data)
        super().send(data)

    def receive(self, sender: int, word: Any) -> None:
        if isinstance(word, Hello):
            self.neighbours.heard(sender, word)
            return
        super().receive(sender, word)
        if sender not in self.neighbours.known and self.mode == Mode.HYPER:
            self.neighbours.noticed(sender)

    def relay(self, sender: int, data: Data) -> None:
        self.cache.add(data)
        if self.mode == Mode.SCOPED and covered(self.neighbours, sender):
            return
        self.air.broadcast(self.me, data, JITTER_S)

    def _came(self, node: int) -> None:
        if self.mode == Mode.HYPER:
            self.cache.repeat()
