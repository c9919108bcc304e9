"""Scoped flooding: flooding without repetitions that tell nobody anything. Source: M2MC, 2.4.3, number 1.

Theory of operation
-------------------
Hellos carry the sender's neighbours. A node that gets a message compares its
own neighbours with those of the node that sent it: if all of them are neighbours of the sender too, the sender has told
them, and the message is not repeated.

Made for nodes that hardly move, as in a conference. When they move, lists are up to a few seconds old, and a node stays
silent although somebody has come whom the sender does not reach. If the sender is not known, the message is repeated.
"""

from __future__ import annotations

from typing import Any

from .flooding import Flooding
from .neighbours import Hello, Neighbourhood
from .node import JITTER_S, Data


class ScopedFlooding(Flooding):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.neighbours = Neighbourhood(self.me, self.air, self.random, lists=True)
        self.spared = 0
        """Messages that were not repeated."""

    def start(self) -> None:
        self.neighbours.start()

    def receive(self, sender: int, word: Any) -> None:
        if isinstance(word, Hello):
            self.neighbours.heard(sender, word)
        else:
            super().receive(sender, word)

    def relay(self, sender: int, data: Data) -> None:
        if covered(self.neighbours, sender):
            self.spared += 1
        else:
            self.air.broadcast(self.me, data, JITTER_S)


def covered(neighbours: Neighbourhood, sender: int) -> bool:
    """Whether all neighbours of this node are the sender's too."""
    told = neighbours.known.get(sender)
    if told is None:
        return False
    return all(node == sender or node in told.near for node in neighbours.known)
