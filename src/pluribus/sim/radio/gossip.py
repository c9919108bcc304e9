"""Our gossip on the air: a message is passed on by chance, and what chance left out is found by comparing digests.

Theory of operation
-------------------
The same idea as ``layers.spread.gossip``, where a member tells ``fanout_for(n)`` others picked at random. On the air
one transmission tells all neighbours at once. So a node with d neighbours passes a message on with the probability
``fanout / d``: then it tells ``fanout`` others on average. Below that many neighbours this is flooding; in a crowd the
number of transmissions for a message does not grow with the number of nodes in range.

Certainty is the digests' part. About once a second every node broadcasts what it has, as intervals of numbers by
source; this is its hello too. A node that has a message which the sender of a digest lacks notes it and, after a random
while, sends it, unless it receives it from another node before: one repetition serves all nodes that lack it. A digest
that shows a message which this node lacks needs no answer: this node's own digest says so within a second.

Promise: nodes that meet long enough have the same messages among the last ``KEPT_MAX`` of each source. None of the
surveyed protocols promises that. The price: every node keeps messages, and a digest a second.
"""

from __future__ import annotations

from typing import Any

from ...core.intervals import Intervals, Span
from ...layers.spread.gossip import fanout_for
from .air import Word
from .node import ADDRESS_BYTES, HEADER_BYTES, JITTER_S, NUMBER_BYTES, Data, RadioNode

DIGEST_S = 1.0
SILENT_S = 3.5
REPAIR_S = 0.1
REPAIRS_MAX = 8
"""Messages that one digest makes a node send again."""
KEPT_MAX = 1_024
SOURCES_MAX = 1_024
SPANS_MAX = 16
"""Intervals of one source in a digest: the newest."""


class AirDigest(Word, frozen=True):
    have: tuple[tuple[int, tuple[Span, ...]], ...]

    @property
    def control(self) -> int:
        return HEADER_BYTES + sum(ADDRESS_BYTES + 2 * NUMBER_BYTES * len(spans) for _, spans in self.have)


class AirGossip(RadioNode):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fanout = fanout_for(self.air.places.count)
        self.have: dict[int, Intervals] = {}
        self.kept: dict[tuple[int, int], Data] = {}
        self.heard_at: dict[int, float] = {}
        self.repaired = 0
        self._repairs: dict[tuple[int, int], None] = {}

    def start(self) -> None:
        self.air.later(self.random.random() * DIGEST_S, self._compare)

    def send(self, data: Data) -> None:
        if self._keep(data):
            self.air.broadcast(self.me, data)

    def receive(self, sender: int, word: Any) -> None:
        self.heard_at[sender] = self.air.now
        if isinstance(word, Data):
            self._repairs.pop((word.source, word.number), None)
            if self._keep(word):
                self.take(word)
                near = max(len(self.heard_at), 1)
                if self.random.random() * near < self.fanout:
                    self.air.broadcast(self.me, word, JITTER_S)
        elif isinstance(word, AirDigest):
            self._compared(word)

    def _keep(self, data: Data) -> bool:
        """True if the message was not known."""
        known = self.have.get(data.source)
        if known is None:
            if len(self.have) >= SOURCES_MAX:
                return False
            known = self.have[data.source] = Intervals()
        if data.number in known:
            return False
        known.add(data.number, data.number)
        self.kept[(data.source, data.number)] = data
        if len(self.kept) > KEPT_MAX:
            del self.kept[next(iter(self.kept))]
        return True

    def _compare(self) -> None:
        now = self.air.now
        for node in [node for node, at in self.heard_at.items() if now - at > SILENT_S]:
            del self.heard_at[node]
        have = tuple((source, tuple(found.spans()[-SPANS_MAX:])) for source, found in sorted(self.have.items()))
        self.air.broadcast(self.me, AirDigest(have))
        self.air.later(DIGEST_S * (0.9 + 0.2 * self.random.random()), self._compare)

    def _compared(self, digest: AirDigest) -> None:
        """Put down what its sender lacks; it is sent after a while, unless somebody else does it."""
        theirs = dict(digest.have)
        begin = not self._repairs
        for source, mine in self.have.items():
            spans = theirs.get(source, ())
            if spans == tuple(mine.spans()[-SPANS_MAX:]):
                continue
            low = spans[0][0] if len(spans) == SPANS_MAX else 0
            count = 0
            for first, last in mine.without(spans):
                for number in range(max(first, low), last + 1):
                    if (source, number) in self.kept and count < REPAIRS_MAX:
                        self._repairs[(source, number)] = None
                        count += 1
        if begin and self._repairs:
            self.air.later(REPAIR_S * (0.5 + self.random.random()), self._repair)

    def _repair(self) -> None:
        """One message at a time, so that others hear it and spare theirs."""
        if not self._repairs:
            return
        key = next(iter(self._repairs))
        del self._repairs[key]
        data = self.kept.get(key)
        if data is not None:
            self.repaired += 1
            self.air.broadcast(self.me, data)
        if self._repairs:
            self.air.later(REPAIR_S * (0.5 + self.random.random()), self._repair)

    def validate(self) -> None:
        assert len(self.kept) <= KEPT_MAX and len(self.have) <= SOURCES_MAX
        assert all(number in self.have[source] for source, number in self.kept)
