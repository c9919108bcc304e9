"""Hyper flooding: flooding that begins again for nodes that come near. Source: M2MC, 2.4.3, number 2.

Theory of operation
-------------------
As plain flooding; moreover a node keeps messages for ``CACHE_S``. When a hello
or a message comes from a node that is not among the neighbours, all messages in the cache are broadcast again: the
newcomer may have missed the wave because it moved. A node that knows such a message ignores it; a node to which it is
new passes it on.

Decided here: a message is repeated for newcomers at most once in ``AGAIN_S`` by each node, since several newcomers
hear one repetition; and a message that comes from an unknown node makes it a neighbour, as a hello does, or every
further one would start all over again.
"""

from __future__ import annotations

from typing import Any

from .flooding import Flooding
from .neighbours import Hello, Neighbourhood
from .node import JITTER_S, Data

CACHE_S = 3.0
CACHE_MAX = 64
AGAIN_S = 1.0


class HyperFlooding(Flooding):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.neighbours = Neighbourhood(self.me, self.air, self.random, came=self._came)
        self.cache = Cache(self)

    def start(self) -> None:
        self.neighbours.start()

    def send(self, data: Data) -> None:
        self.cache.add(data)
        super().send(data)

    def receive(self, sender: int, word: Any) -> None:
        if isinstance(word, Hello):
            self.neighbours.heard(sender, word)
            return
        self.neighbours.noticed(sender)
        super().receive(sender, word)

    def relay(self, sender: int, data: Data) -> None:
        self.cache.add(data)
        super().relay(sender, data)

    def _came(self, node: int) -> None:
        self.cache.repeat()


class Cache:
    """Messages of the last seconds, and when each was last sent by this node."""

    def __init__(self, node: Flooding) -> None:
        self._node = node
        self._kept: dict[Data, tuple[float, float]] = {}
        self.repeated = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, data: Data) -> None:
        now = self._node.air.now
        self.purge()
        if len(self._kept) >= CACHE_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[data] = (now, now)

    def purge(self) -> None:
        now = self._node.air.now
        for data in [data for data, (since, _) in self._kept.items() if now - since > CACHE_S]:
            del self._kept[data]

    def repeat(self) -> None:
        """A new neighbour is here: repeat the cache."""
        self.purge()
        node, now = self._node, self._node.air.now
        for data, (since, sent_at) in self._kept.items():
            if now - sent_at >= AGAIN_S:
                self._kept[data] = (since, now)
                self.repeated += 1
                node.air.broadcast(node.me, data, 5 * JITTER_S)
