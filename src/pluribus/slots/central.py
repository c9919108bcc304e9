"""The centralised bus: one process routes, queues and delivers every message, as POLYLITH does. For comparison only.

A message goes to the process, which acknowledges it; then the process sends it to each recipient by itself, and each
acknowledges: 2 + 2R messages (the report, equation 2). Occupants and map are those of the decentralised bus. Not
offered: questions (``ask``), and waiting for the recipients (``wait=``), whose acknowledgements the sender never sees.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .inbox import PLAIN, InboxMemory
from .outbox import RETRY_S, RETRY_S_MAX
from .plan import End
from .router import SERVING, Router
from .words import DENIED, AckData, CountTtl, NegAck, SendData

QUEUE_MESSAGES_MAX = 100_000
"""Messages of all interconnections together: the buffer space that the report counts against a centralised bus."""


class _Waiting:
    """A message that not every recipient has acknowledged."""

    __slots__ = ("data", "expires", "interval_s", "next_at", "open")

    def __init__(self, data: SendData, open: dict[End, set[int]], expires: dict[End, float], now: float) -> None:
        self.data = data
        self.open = open
        """Recipients by port; none named: the slot is empty."""
        self.expires = expires
        self.interval_s = RETRY_S
        self.next_at = now + RETRY_S


class CentralBus(Router):
    """A router that also takes and delivers every message."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.waiting: dict[tuple[int, int], _Waiting] = {}
        self.memory = InboxMemory()
        super().__init__(*args, **named)
        self.by = "central"

    @property
    def due_at(self) -> float:
        return min([super().due_at, *(one.next_at for one in self.waiting.values())])

    def take(self, sender: int, word: Any, now: float) -> None:
        action = CENTRAL.get((self.state, type(word)))
        if action is None:
            super().take(sender, word, now)
        else:
            action(self, sender, word, now)

    def tick(self, now: float) -> None:
        super().tick(now)
        for id, one in list(self.waiting.items()):
            for end in [end for end, at in one.expires.items() if at <= now and end in one.open]:
                del one.open[end]
            if not one.open:
                del self.waiting[id]
            elif one.next_at <= now:
                one.next_at = now + one.interval_s
                one.interval_s = min(one.interval_s * 2, RETRY_S_MAX)
                self._deliver(one)

    def _receive(self, sender: int, data: SendData, now: float) -> None:
        here = self.map
        if not self._holds(sender, data.ticket, data.source.slot):
            self._stale(sender, data.ticket, data.source.slot)
            return
        self._heard.add(data.ticket)
        if data.asks:
            self._say(sender, NegAck(data.id[1], DENIED, "a centralised bus has no questions: use by='router'"))
            return
        if len(self.waiting) >= QUEUE_MESSAGES_MAX:
            return  # a repetition
        legs = here.legs(data.source, data.destinations)
        count, ttl_s = sum(leg.count for leg in legs), max((leg.ttl_s for leg in legs), default=0.0)
        generation = here.generation(data.source.slot)
        self._say(sender, CountTtl(data.id, count, ttl_s, (), here.version, generation))
        self.memory.heard(data.id[0], data.floor)
        if self.memory.is_old(data.id) or self.memory.done(data.id, "") is not None or not legs:
            return
        self.memory.acknowledge(data.id, "", PLAIN)
        open = {leg.target: set(leg.tickets) for leg in legs}
        self.waiting[data.id] = one = _Waiting(data, open, {leg.target: now + leg.ttl_s for leg in legs}, now)
        self._deliver(one)

    def _deliver(self, one: _Waiting) -> None:
        """Send a message to each recipient by itself; an empty slot is looked at again."""
        here = self.map
        for end in one.open:
            there = here.occupants(end.slot)
            one.open[end] = {ticket for ticket in one.open[end] if ticket in there} or set(there)
            for ticket in sorted(one.open[end]):
                wanted = ((end, (ticket,)),)
                word = msgspec.structs.replace(one.data, version=here.version, destinations=(end,), wanted=wanted)
                self._say(there[ticket].member, word)

    def _acked(self, sender: int, word: AckData, now: float) -> None:
        one = self.waiting.get(word.id)
        if one is None or word.target not in one.open:
            return
        one.open[word.target].discard(word.ticket)
        if not one.open[word.target]:
            del one.open[word.target]
        if not one.open:
            del self.waiting[word.id]


CENTRAL: dict[tuple[str, type], Any] = {
    (SERVING, SendData): CentralBus._receive,
    (SERVING, AckData): CentralBus._acked,
}
"""The handlers of a centralised bus, besides those of ``router.TRANSITIONS`` or in place of them."""
