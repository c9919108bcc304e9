"""A sender's queue: messages that some counted occupant has not acknowledged.

Theory ------ A message is *counted* when the router (or the member's own copy of the map) has named its connections,
*legs*, and the occupants of the slots there. A leg is open until each occupant that was counted first and is still
there has acknowledged; a leg to an empty slot is open until one occupant has. Later answers narrow a leg that has an
acknowledgement (an occupant that left is not waited for), replace the occupants of a leg that has none (an occupant
that enrols late gets waiting messages), and close a leg whose connection was deleted. They never add a leg: a new route
is for later messages.

Acknowledgements may come before the count; no message completes without it. A message is sent again after ``RETRY_S``,
or three times the recent time of acknowledgements; then ever more rarely, up to ``RETRY_S_MAX``; and at once when a
slot that it waits for has changed. The repetition names the occupants that have not acknowledged, so that no others
take it. A leg *expires* by its own time to live, and the message is reported.

Bounds: messages and bytes of the whole queue, and each connection's capacity; at either ``add`` raises ``Overflow``.
Liveness: a counted message leaves the queue by its last leg's acknowledgement, deletion or expiry.

Source: the report, sections 2.2 (queuing) and 2.4.2 (COUNT_TTL).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator

import msgspec

from ..core.errors import Overflow
from ..core.limits import SLOT_QUEUE_BYTES_MAX, SLOT_QUEUE_MESSAGES
from ..wire.questions import Wrapped
from .plan import End
from .words import Leg, Version

RETRY_S = 0.1
RETRY_S_MAX = 2.0
FIRST_RETRY_S_MAX = 1.0
"""The first repetition comes after three times the recent time of acknowledgements, between these bounds."""
RETRIES_AT_ONCE = 256
"""Messages that are repeated in one go; the others follow a moment later."""


class OpenLeg:
    """A connection on which acknowledgements are missing."""

    __slots__ = ("acked", "expires_at", "known", "need")

    def __init__(self, need: set[int], expires_at: float, known: tuple[int, int] = (0, 0)) -> None:
        self.need = need
        self.known = known
        """Epoch and generation of the slot, as the last answer had them; answers may overtake each other."""
        """Tickets; empty: any occupant of that slot."""
        self.acked: set[int] = set()
        self.expires_at = expires_at

    @property
    def settled(self) -> bool:
        return bool(self.acked) and not self.need - self.acked

    def recount(self, tickets: Collection[int], known: tuple[int, int]) -> None:
        if known >= self.known:
            self.known = known
            self.need = self.need & set(tickets) if self.acked else set(tickets)


class Queued:
    """One message."""

    __slots__ = (
        "acks",
        "answers",
        "asks",
        "at",
        "body",
        "counted",
        "destinations",
        "expired",
        "interval_s",
        "legs",
        "next_at",
        "number",
        "own",
        "port",
        "sent",
        "ttl_s",
        "version",
    )

    def __init__(self, number: int, port: str, body: Wrapped, at: float) -> None:
        self.number = number
        self.port = port
        self.body = body
        self.at = at
        self.asks = False
        self.destinations: tuple[End, ...] = ()
        self.own: tuple[Leg, ...] = ()
        """Connections that lead back to the sender itself."""
        self.counted: int | None = None
        self.ttl_s = 0.0
        self.legs: dict[End, OpenLeg] = {}
        self.acks: dict[End, set[int]] = {}
        """Every acknowledgement that came, before the count or after it."""
        self.answers: list[tuple[Wrapped | None, str]] = []
        self.expired: list[End] = []
        self.interval_s = RETRY_S
        self.next_at = at
        self.sent = False
        self.version: Version = (0, 0)
        """The version of the map by which it was counted last."""

    @property
    def done(self) -> bool:
        return self.counted is not None and not self.legs

    def hurried(self) -> None:
        """Repeat it at the next tick: a slot that it waits for has changed."""
        self.next_at, self.interval_s = -math.inf, RETRY_S

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.acks.values()))

    def wanted(self) -> tuple[tuple[End, tuple[int, ...]], ...] | None:
        """The occupants that are to take a repetition; None: every one to which it is routed."""
        if self.counted is None:
            return None
        return tuple((end, tuple(sorted(leg.need - leg.acked))) for end, leg in self.legs.items())


class Carried(msgspec.Struct, array_like=True, frozen=True):
    """One queued message on its way with a moving occupant."""

    number: int
    port: str
    body: Wrapped
    age_s: float
    asks: bool
    acks: list[tuple[End, list[int]]] = []


class SlotOutbox:
    """``on_change`` is called with a message that was counted, acknowledged, done or expired."""

    def __init__(
        self,
        on_change: Callable[[Queued], None] = lambda queued: None,
        messages_max: int = SLOT_QUEUE_MESSAGES,
        first: int = 1,
    ) -> None:
        self.on_change = on_change
        self.messages_max = messages_max
        self.next_number = first
        self.bytes = 0
        self.took_s = 0.0
        """The recent time until all acknowledgements had come, smoothed."""
        self.queue: dict[int, Queued] = {}
        self._uncounted: Counter[str] = Counter()
        self._open: Counter[tuple[str, End]] = Counter()
        self._capacity: dict[str, dict[End, int]] = {}

    @property
    def floor(self) -> int:
        """Every message below this number is settled."""
        return next(iter(self.queue), self.next_number)

    def add(self, port: str, body: Wrapped, now: float) -> Queued:
        if len(self.queue) >= self.messages_max:
            raise Overflow(
                f"{self.messages_max} messages wait here for acknowledgements: send later, or raise capacity="
            )
        if self.bytes + len(body[1]) > SLOT_QUEUE_BYTES_MAX:
            raise Overflow(f"more than {SLOT_QUEUE_BYTES_MAX:,} bytes wait here for acknowledgements: send later")
        for end, capacity in self._capacity.get(port, {}).items():
            if self._open[port, end] + self._uncounted[port] >= capacity:
                raise Overflow(
                    f"the connection to {end} holds its {capacity} messages: send later, or raise its capacity"
                )
        queued = Queued(self.next_number, port, body, now)
        queued.interval_s = min(max(RETRY_S, 3 * self.took_s), FIRST_RETRY_S_MAX)
        self.next_number += 1
        self.queue[queued.number] = queued
        self.bytes += len(body[1])
        self._uncounted[port] += 1
        return queued

    def count(self, number: int, legs: tuple[Leg, ...], version: Version, count: int | None = None) -> None:
        """The answer by a version of the map, the first or a later one. ``count`` is given where another process
        delivers."""
        queued = self.queue.get(number)
        if queued is None or version < queued.version:
            return
        queued.version = version
        if queued.counted is None:
            self._uncounted[queued.port] -= 1
            queued.counted = sum(leg.count for leg in legs) if count is None else count
            queued.ttl_s = max((leg.ttl_s for leg in legs), default=0.0)
            for leg in legs:
                opened = queued.legs[leg.target] = OpenLeg(
                    set(leg.tickets), queued.at + leg.ttl_s, (version[0], leg.generation)
                )
                opened.acked |= queued.acks.get(leg.target, set())
                self._open[queued.port, leg.target] += 1
        else:
            answer = {leg.target: leg for leg in legs}
            for end in list(queued.legs):
                if end in answer:
                    queued.legs[end].recount(answer[end].tickets, (version[0], answer[end].generation))
                else:
                    self._close(queued, end)
        self._capacity[queued.port] = {leg.target: leg.capacity for leg in legs}
        self._settle(queued)

    def count_anew(self) -> None:
        """The next answer counts, whatever its version: the map may have fallen back to an older state."""
        for queued in self.queue.values():
            queued.version = (0, 0)
            for leg in queued.legs.values():
                leg.known = (0, 0)

    def acknowledge(self, number: int, target: End, ticket: int, now: float) -> bool:
        """True if this acknowledgement is new."""
        queued = self.queue.get(number)
        if queued is None or ticket in queued.acks.get(target, ()):
            return False
        queued.acks.setdefault(target, set()).add(ticket)
        leg = queued.legs.get(target)
        if leg is not None:
            leg.acked.add(ticket)
        if leg is None or leg.need:  # else the slot was empty, so no other occupant could have been quicker
            self.took_s += (min(now - queued.at, FIRST_RETRY_S_MAX) - self.took_s) / 8
        self._settle(queued)
        return True

    def give_up(self, number: int) -> None:
        """The message was refused: do not send it any more."""
        queued = self.queue.get(number)
        if queued is not None:
            for end in list(queued.legs):
                self._close(queued, end)
            self._remove(queued)

    def expire(self, now: float) -> None:
        for queued in list(self.queue.values()):
            late = [end for end, leg in queued.legs.items() if leg.expires_at <= now]
            for end in late:
                queued.expired.append(end)
                self._close(queued, end)
            if late:
                self._settle(queued)

    def due(self, now: float) -> Iterator[Queued]:
        """Messages to send now; the intervals of each become longer and longer."""
        found = 0
        for queued in list(self.queue.values()):
            if queued.next_at <= now:
                queued.next_at = now + queued.interval_s
                queued.interval_s = min(queued.interval_s * 2, RETRY_S_MAX)
                found += 1
                yield queued
                if found >= RETRIES_AT_ONCE:
                    return

    def hurry(self, slot: str) -> None:
        """A new occupant is in this slot: messages that wait for the slot are repeated."""
        for queued in self.queue.values():
            if any(end.slot == slot for end in queued.legs):
                queued.hurried()

    @property
    def next_at(self) -> float | None:
        times = [queued.next_at for queued in self.queue.values()]
        times += [leg.expires_at for queued in self.queue.values() for leg in queued.legs.values()]
        return min(times, default=None)

    def _close(self, queued: Queued, end: End) -> None:
        del queued.legs[end]
        self._open[queued.port, end] -= 1
        if not self._open[queued.port, end]:
            del self._open[queued.port, end]

    def _settle(self, queued: Queued) -> None:
        for end in [end for end, leg in queued.legs.items() if leg.settled]:
            self._close(queued, end)
        if queued.done:
            self._remove(queued)
        self.on_change(queued)

    def _remove(self, queued: Queued) -> None:
        if self.queue.pop(queued.number, None) is not None:
            self.bytes -= len(queued.body[1])
            if queued.counted is None:
                self._uncounted[queued.port] -= 1

    # Moving

    def carried(self, now: float) -> list[Carried]:
        """The messages that a moving occupant takes along."""
        return [
            Carried(q.number, q.port, q.body, now - q.at, q.asks, [(end, sorted(acks)) for end, acks in q.acks.items()])
            for q in self.queue.values()
        ]

    def bring(self, carried: Collection[Carried], now: float) -> None:
        """Queue the messages that a moving occupant brings, to be counted anew."""
        for one in carried:
            queued = Queued(one.number, one.port, one.body, now - one.age_s)
            queued.next_at, queued.asks = now, one.asks
            queued.acks = {end: set(acks) for end, acks in one.acks}
            self.queue[one.number] = queued
            self.bytes += len(one.body[1])
            self._uncounted[one.port] += 1
            self.next_number = max(self.next_number, one.number + 1)

    def validate(self) -> None:
        assert self.bytes == sum(len(queued.body[1]) for queued in self.queue.values())
        assert all(queued.counted is None or queued.legs for queued in self.queue.values()), "a message is done"
        opened = Counter((q.port, end) for q in self.queue.values() for end in q.legs)
        assert opened == self._open, "open connections are not counted as they are"
        assert len(self.queue) <= self.messages_max
