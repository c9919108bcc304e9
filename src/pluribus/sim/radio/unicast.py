"""A simple unicast routing on demand, for protocols that need tunnels. After AODV (Perkins and Royer 1999).

Theory of operation
-------------------
A node that has something for another and knows no way floods a *route request*.
A node that passes it on remembers the way back to the asker. The destination, or a node that knows a way to it that is
new enough, answers with a *route reply* along that way, and each node that passes the reply remembers the way to the
destination. The first request goes a few hops, further ones through the whole network. Words then go from hop to hop,
each acknowledged by the medium. A hop that fails ends all ways over that neighbour, and the asker is told with a *route
error*; it asks anew. After ``ASKS_MAX`` requests in vain the destination is unreachable, and what waited for it is
dropped.

Numbers keep out circles: each request and reply carries the sequence number of the node that a way leads to, and a way
is replaced only by a newer one, or by a shorter one of the same number. A node that lost a way asks for a greater
number than the lost one had, so that nobody answers who still believes in it. A word that was passed on ``HOPS_MAX``
times is dropped nevertheless.

All of it is sent on the same air and counted: requests, replies, errors, every hop and every attempt.

Bounds: ``WAITING_MAX`` words wait for a way to one destination; the oldest is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import msgspec

from .air import Air, Word
from .node import ADDRESS_BYTES, HEADER_BYTES, JITTER_S, NUMBER_BYTES, Seen

ROUTE_S = 10.0
"""A way that nobody used for so long is forgotten."""
ASK_S = 0.4
ASKS_MAX = 3
HOPS_MAX = 24
HOPS_FIRST = 3
WAITING_MAX = 16


class RouteRequest(Word, frozen=True):
    asker: int
    number: int
    """Of the request, and the asker's sequence number."""
    wanted: int
    least: int
    """The least sequence number of the destination that will do."""
    hops: int
    hops_max: int

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * ADDRESS_BYTES + 2 * NUMBER_BYTES


class RouteReply(Word, frozen=True):
    asker: int
    wanted: int
    number: int
    """The sequence number of the destination."""
    hops: int

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * ADDRESS_BYTES + NUMBER_BYTES


class RouteError(Word, frozen=True):
    asker: int
    wanted: int

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * ADDRESS_BYTES


class Routed(Word, frozen=True):
    """A word inside a packet from one node to another."""

    origin: int
    to: int
    hops: int
    word: Word

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * ADDRESS_BYTES + self.word.control

    @property
    def carried(self) -> int:
        return self.word.carried


ROUTING = (Routed, RouteRequest, RouteReply, RouteError)


class Way:
    __slots__ = ("hops", "next", "number", "until")

    def __init__(self, next: int, number: int, hops: int, until: float) -> None:
        self.next = next
        self.number = number
        self.hops = hops
        self.until = until


class Unicast:
    """The routing of one node. ``arrived`` gets the origin and the word; ``unreachable`` a destination."""

    def __init__(
        self,
        me: int,
        air: Air,
        random: Random,
        arrived: Callable[[int, Word], None],
        unreachable: Callable[[int], None],
    ) -> None:
        self.me = me
        self.ways: dict[int, Way] = {}
        self._air = air
        self._random = random
        self._arrived = arrived
        self._unreachable = unreachable
        self._seen = Seen()
        self._number = 0
        self._least: dict[int, int] = {}
        self._waiting: dict[int, deque[Word]] = {}
        self._asked: dict[int, int] = {}
        """By destination: requests under way, so far."""
        self.errors = 0

    def send(self, to: int, word: Word) -> None:
        if self._way(to) is not None:
            self._pass_on(Routed(self.me, to, 0, word))
            return
        self._waiting.setdefault(to, deque(maxlen=WAITING_MAX)).append(word)
        if to not in self._asked:
            self._asked[to] = 0
            self._ask(to)

    def _way(self, to: int) -> Way | None:
        way = self.ways.get(to)
        return way if way is not None and way.until > self._air.now else None

    def _ask(self, to: int) -> None:
        if to not in self._asked:
            return
        if self._way(to) is not None:
            self._found(to)
            return
        if self._asked[to] >= ASKS_MAX:
            del self._asked[to]
            self._waiting.pop(to, None)
            self._unreachable(to)
            return
        self._asked[to] += 1
        self._number += 1
        self._seen.first((self.me, self._number))
        hops_max = HOPS_FIRST if self._asked[to] == 1 else HOPS_MAX
        self._air.broadcast(self.me, RouteRequest(self.me, self._number, to, self._least.get(to, 0), 0, hops_max))
        self._air.later(ASK_S * 2 ** (self._asked[to] - 1), self._ask, to)

    def _found(self, to: int) -> None:
        self._asked.pop(to, None)
        for word in self._waiting.pop(to, ()):
            self._pass_on(Routed(self.me, to, 0, word))

    def receive(self, sender: int, word: Word) -> None:
        if isinstance(word, Routed):
            self._touch(word.origin, sender)
            if word.to == self.me:
                self._arrived(word.origin, word.word)
            elif word.hops < HOPS_MAX:
                self._pass_on(Routed(word.origin, word.to, word.hops + 1, word.word))
        elif isinstance(word, RouteRequest):
            self._requested(sender, word)
        elif isinstance(word, RouteReply):
            self._replied(sender, word)
        elif isinstance(word, RouteError):
            self._failed_beyond(sender, word)

    def _learn(self, to: int, next: int, number: int, hops: int) -> bool:
        """Whether that way is better than what was known."""
        if to == self.me or number < self._least.get(to, 0):
            return False
        known = self.ways.get(to)
        if known is not None and known.until <= self._air.now:
            self._forget(to, gone=False)
            known = None
        if known is not None and (number, -hops) <= (known.number, -known.hops):
            return False
        self.ways[to] = Way(next, number, hops, self._air.now + ROUTE_S)
        return True

    def _touch(self, to: int, next: int) -> None:
        """The way back to an origin is in use as long as its words come along it."""
        way = self._way(to)
        if way is not None and way.next == next:
            way.until = self._air.now + ROUTE_S

    def _requested(self, sender: int, request: RouteRequest) -> None:
        if request.asker == self.me:
            return
        self._learn(request.asker, sender, request.number, request.hops + 1)
        if not self._seen.first((request.asker, request.number)):
            return
        way = self._way(request.wanted)
        if request.wanted == self.me:
            self._number = max(self._number + 1, request.least)
            self._back(request.asker, RouteReply(request.asker, self.me, self._number, 0))
        elif way is not None and way.number >= request.least and way.next != sender:
            self._back(request.asker, RouteReply(request.asker, request.wanted, way.number, way.hops))
        elif request.hops + 1 < request.hops_max:
            further = msgspec.structs.replace(request, hops=request.hops + 1)
            self._air.broadcast(self.me, further, JITTER_S)

    def _replied(self, sender: int, reply: RouteReply) -> None:
        better = self._learn(reply.wanted, sender, reply.number, reply.hops + 1)
        if reply.asker != self.me and better:
            self._back(reply.asker, RouteReply(reply.asker, reply.wanted, reply.number, reply.hops + 1))
        elif reply.wanted in self._asked and self._way(reply.wanted) is not None:
            self._found(reply.wanted)

    def _back(self, asker: int, word: Word) -> None:
        way = self._way(asker)
        if way is not None:
            self._air.unicast(self.me, way.next, word, lambda: self._broken(way.next))

    def _pass_on(self, routed: Routed) -> None:
        way = self._way(routed.to)
        if way is None:
            self._tell(routed)
            return
        way.until = self._air.now + ROUTE_S
        self._air.unicast(self.me, way.next, routed, lambda: self._not_passed_on(way.next, routed))

    def _not_passed_on(self, next: int, routed: Routed) -> None:
        self._broken(next)
        self._tell(routed)

    def _broken(self, next: int) -> None:
        """That neighbour is gone: so are all ways over it."""
        for to in [to for to, way in self.ways.items() if way.next == next]:
            self._forget(to)

    def _forget(self, to: int, *, gone: bool = True) -> None:
        """Take no way that is older; if this one is gone, none of its number either."""
        self._least[to] = self.ways.pop(to).number + gone

    def _tell(self, routed: Routed) -> None:
        """A word could not go on. Its origin tries again with a new way; others tell the origin."""
        self.errors += 1
        if routed.origin == self.me:
            self.send(routed.to, routed.word)
        else:
            self._back(routed.origin, RouteError(routed.origin, routed.to))

    def _failed_beyond(self, sender: int, error: RouteError) -> None:
        way = self.ways.get(error.wanted)
        if way is not None and way.next == sender:
            self._forget(error.wanted)
            if error.asker != self.me:
                self._back(error.asker, error)

    def validate(self) -> None:
        assert self.me not in self.ways
        assert self._waiting.keys() <= self._asked.keys()
        assert all(way.hops >= 1 for way in self.ways.values())
