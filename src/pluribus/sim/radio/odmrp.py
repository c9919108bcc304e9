"""ODMRP, the on-demand multicast routing protocol: a mesh. Source: M2MC, 2.4.2.1.

Theory of operation
-------------------
A source that has something to send floods a *join query* every ``REFRESH_S``,
with the message on its back. A node that gets a query for the first time remembers from whom (the way back to that
source) and repeats it. A member answers with a *join reply*: for each source the neighbour on the way back. A node that
finds itself named there is needed: it sets its *forwarding flag* for ``FORWARD_S`` and says its own reply for those
sources, and so on up to the source. Flagged nodes are the *forwarding group*: they repeat messages, each once, wherever
they came from. So between source and members lies a mesh, not a tree: a message may take any path inside it, and the
loss of one link is no loss.

Nothing is said to leave: a node that asks or answers no more is forgotten when flags run out.

Decided here. A source asks only while it sends ("when a source has packets to send"). A node answers once for each
source and query. Replies are broadcasts, which nobody acknowledges: a node that does not hear the neighbour that it
named pass its reply on (the *passive acknowledgement* of the protocol's own draft; the survey is silent) says it again,
``REPLIES_MAX`` times in all. A source is expected to pass nothing on, so it is told twice.
"""

from __future__ import annotations

from typing import Any

from .air import Word
from .node import ADDRESS_BYTES, HEADER_BYTES, JITTER_S, NUMBER_BYTES, Data, RadioNode

REFRESH_S = 3.0
FORWARD_S = 3 * REFRESH_S
REPLY_S = 0.02
"""Replies for several sources that fall due together are one."""
CONFIRM_S = 0.08
REPLIES_MAX = 3
SOURCES_MAX = 1_024


class JoinQuery(Word, frozen=True):
    source: int
    number: int
    data: Data

    @property
    def control(self) -> int:
        return HEADER_BYTES + NUMBER_BYTES + ADDRESS_BYTES

    @property
    def carried(self) -> int:
        return self.data.length


class JoinReply(Word, frozen=True):
    entries: tuple[tuple[int, int], ...]
    """Source, and the neighbour on the way to it."""

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * ADDRESS_BYTES * len(self.entries)


class Route:
    """The way back to one source."""

    __slots__ = ("confirmed", "next", "number", "said")

    def __init__(self, number: int, next: int) -> None:
        self.number = number
        self.next = next
        self.said = 0
        """Replies of this node for this query."""
        self.confirmed = False


class Odmrp(RadioNode):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.routes: dict[int, Route] = {}
        self.forwards_until = -1.0
        self.replies: list[JoinReply] = []
        """The last few that this node said, for those who look."""
        self._due: set[int] = set()
        self._queried_at = -REFRESH_S
        self._queries = 0

    @property
    def forwards(self) -> bool:
        """Whether this node is in the forwarding group."""
        return self.air.now < self.forwards_until

    def send(self, data: Data) -> None:
        self.first(data)
        if self.air.now - self._queried_at < REFRESH_S:
            self.air.broadcast(self.me, data)
            return
        self._queried_at = self.air.now
        self._queries += 1
        self.air.broadcast(self.me, JoinQuery(self.me, self._queries, data))

    def receive(self, sender: int, word: Any) -> None:
        if isinstance(word, Data):
            if self.first(word):
                self.take(word)
                if self.forwards:
                    self.air.broadcast(self.me, word, JITTER_S)
        elif isinstance(word, JoinQuery):
            self._queried(sender, word)
        elif isinstance(word, JoinReply):
            self._replied(sender, word)

    def _queried(self, sender: int, query: JoinQuery) -> None:
        if self.first(query.data):
            self.take(query.data)
        known = self.routes.get(query.source)
        if query.source == self.me or (known is not None and query.number <= known.number):
            return
        if known is None and len(self.routes) >= SOURCES_MAX:
            del self.routes[next(iter(self.routes))]
        self.routes[query.source] = Route(query.number, sender)
        self.air.broadcast(self.me, query, JITTER_S)
        if self.member:
            self._reply_soon(query.source)

    def _reply_soon(self, source: int) -> None:
        if not self._due:
            self.air.later(REPLY_S * (0.5 + 0.5 * self.random.random()), self._reply)
        self._due.add(source)

    def _reply(self) -> None:
        due, self._due = sorted(self._due), set()
        entries = []
        for source in due:
            route = self.routes[source]
            route.said += 1
            entries.append((source, route.next))
            if route.said < (2 if route.next == source else REPLIES_MAX):
                wait_s = CONFIRM_S * (1 + self.random.random())
                self.air.later(wait_s, self._again, source, route.number)
        reply = JoinReply(tuple(entries))
        self.replies = [*self.replies[-15:], reply]
        self.air.broadcast(self.me, reply)

    def _again(self, source: int, number: int) -> None:
        """Say it again, unless the neighbour was heard to pass it on, or there is a newer query."""
        route = self.routes.get(source)
        if route is not None and route.number == number and not route.confirmed:
            self._reply_soon(source)

    def _replied(self, sender: int, reply: JoinReply) -> None:
        for source, next in reply.entries:
            route = self.routes.get(source)
            if next == self.me:
                if source != self.me:
                    self.forwards_until = self.air.now + FORWARD_S
                    if route is not None and not route.said:
                        self._reply_soon(source)
            elif route is not None and sender == route.next:
                route.confirmed = True

    def validate(self) -> None:
        assert len(self.routes) <= SOURCES_MAX and self.me not in self.routes
        assert all(0 <= route.said <= REPLIES_MAX for route in self.routes.values())
