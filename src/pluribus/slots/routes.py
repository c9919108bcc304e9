"""A receiver's routing table: the part of the map that it was told, and when it must ask.

The table is as old as its *version*. A word that names a later version (information with a gap before it, an answer, a
message whose sender has a later one) shows that information was missed: then all entries are forgotten, and asked for
anew. So an entry that is used was true at the table's version, and that is at least the version of every message that
it is for.

Tickets of a slot are cached with the slot's *generation*. A ticket that is not among those of the known generation is
*stale* if the sender knows no later generation, and doubtful if it does.
"""

from __future__ import annotations

import msgspec

from ..core.limits import SLOT_ROUTES_CACHED_MAX
from .plan import End
from .words import AnsRoute, Leg, RouteAdded, RouteDeleted, SendData, SlotChanged, Version


class Stale(msgspec.Struct, frozen=True):
    """The sender's ticket is not valid any more."""


STALE = Stale()


class RouteTable:
    """``targets`` answers from the table, or returns None if the table does not know."""

    def __init__(self) -> None:
        self.version: Version = (0, 0)
        self._entries: dict[End, tuple[Leg, ...]] = {}
        self._tickets: dict[str, tuple[int, frozenset[int]]] = {}

    def targets(self, data: SendData, slot: str) -> tuple[Leg, ...] | Stale | None:
        """Connections of this message into one slot, ``STALE``, or None: ask the router."""
        if data.version > self.version:
            self.note(data.version)
        known = self._tickets.get(data.source.slot)
        entry = self._entries.get(data.source)
        if known is None or entry is None or data.generation > known[0]:
            return None
        if data.ticket not in known[1]:
            return STALE
        return tuple(leg for leg in entry if leg.target.slot == slot)

    def note(self, version: Version) -> None:
        """A word named this version of the map."""
        if version > self.version:
            if version[0] != self.version[0]:
                self._tickets.clear()
            self._entries.clear()
            self.version = version

    def answered(self, answer: AnsRoute) -> None:
        self.note(answer.version)
        if answer.version < self.version:
            return
        if len(self._entries) >= SLOT_ROUTES_CACHED_MAX:
            self._entries.clear()
        self._entries[answer.source] = answer.destinations
        self._learn(answer.source.slot, answer.generation, answer.live)

    def informed(self, info: RouteAdded | RouteDeleted | SlotChanged) -> None:
        if isinstance(info, SlotChanged):
            if info.epoch == self.version[0]:
                self._learn(info.slot, info.generation, info.live)
            return
        epoch, number = self.version
        if info.version != (epoch, number + 1):
            self.note(info.version)
            return
        self.version = info.version
        if isinstance(info, RouteAdded):
            source, made = info.connection.source, info.connection
            if source in self._entries:
                self._entries[source] += (Leg(made.target, made.capacity, made.ttl_s),)
        elif info.source in self._entries:
            self._entries[info.source] = tuple(leg for leg in self._entries[info.source] if leg.target != info.target)

    def _learn(self, slot: str, generation: int, live: tuple[int, ...]) -> None:
        known = self._tickets.get(slot)
        if known is None or generation > known[0]:
            if len(self._tickets) >= SLOT_ROUTES_CACHED_MAX:
                self._tickets.clear()
            self._tickets[slot] = (generation, frozenset(live))

    def forget(self) -> None:
        self._entries.clear()
        self._tickets.clear()
