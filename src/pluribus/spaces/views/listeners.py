"""Registrations at a replica, with the events that are kept for their listeners.

A registration is made, acknowledged and ended by operations of workers, like a tuple, and has a name like a tuple: so
every replica has it, and the same rule says whether it is gone when replicas are merged. Each replica notes an event
when it executes the write. Replicas execute writes of several workers in different orders, so an event has no number:
it has the name of its tuple, and is acknowledged by that name. An acknowledgement may come before the write: then it is
remembered (``early``) until the write comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

import msgspec

from ..index import Wishes
from ..templates import Template
from ..values import Item
from ..watching import ALL_BYTES_MAX, EVENTS_BYTES_MAX, EVENTS_MAX, Watched, first_of
from .words import Heard, KeptListener, Listening, Name


class Listener(msgspec.Struct):
    template: Template
    hand_back: bytes
    until: float
    """The end of its lease by this member's clock; 0: never."""
    seen: int = 0
    dropped: int = 0
    """Events that were dropped here, and that no listener was told of."""
    events: dict[Name, Item] = {}
    size_bytes: int = 0
    early: set[Name] = set()


class Listeners:
    def __init__(self) -> None:
        self.known: dict[Name, Listener] = {}
        self.fresh: set[Name] = set()
        """Registrations with news since the member last looked."""
        self._wishes: Wishes[Name] = Wishes()
        self._ends: list[tuple[float, Name]] = []
        self._size_bytes = 0

    def add(self, name: Name, made: Listening, now: float) -> None:
        until = now + made.lease_us / 1e6 if made.lease_us else 0.0
        self._put(name, Listener(made.template, made.hand_back, until, events={}, early=set()))

    def _put(self, name: Name, listener: Listener) -> None:
        self.known[name] = listener
        self._wishes.add(name, listener.template)
        self._end(name, listener)

    def _end(self, name: Name, listener: Listener) -> None:
        if listener.until:
            heappush(self._ends, (listener.until, name))

    def remove(self, name: Name) -> None:
        listener = self.known.pop(name, None)
        if listener is not None:
            self._size_bytes -= listener.size_bytes
            self._wishes.remove(name)
            self.fresh.add(name)

    def tell(self, tuple_name: Name, item: Item) -> None:
        """A tuple was written."""
        for name in sorted(self._wishes.of(item)) if self.known else ():
            listener = self.known[name]
            if tuple_name in listener.early:
                listener.early.discard(tuple_name)
            else:
                self._keep(listener, tuple_name, item)
                self.fresh.add(name)

    def _keep(self, listener: Listener, tuple_name: Name, item: Item) -> None:
        listener.events[tuple_name] = item
        listener.size_bytes += item.size
        self._size_bytes += item.size
        while listener.events and (
            len(listener.events) > EVENTS_MAX
            or listener.size_bytes > EVENTS_BYTES_MAX
            or self._size_bytes > ALL_BYTES_MAX
        ):
            self._drop(listener, next(iter(listener.events)))
            listener.dropped += 1

    def _drop(self, listener: Listener, tuple_name: Name) -> None:
        size = listener.events.pop(tuple_name).size
        listener.size_bytes -= size
        self._size_bytes -= size

    def heard(self, word: Heard, executed: Callable[[Name], bool], now: float) -> None:
        """Events were acknowledged. ``executed``: whether an operation was executed at this replica."""
        listener = self.known.get(word.registration)
        if listener is None:
            return
        for tuple_name in word.names:
            if tuple_name in listener.events:
                self._drop(listener, tuple_name)
            elif not executed(tuple_name):
                listener.early.add(tuple_name)
            elif listener.dropped:
                listener.dropped -= 1
        listener.dropped = max(listener.dropped - word.missed, 0)
        listener.seen += len(word.names) + word.missed
        if word.ends:
            self.remove(word.registration)
        elif word.renews:
            listener.until = now + word.lease_us / 1e6 if word.lease_us else 0.0
            self._end(word.registration, listener)

    def told(self, name: Name, now: float) -> Watched:
        listener = self.known.get(name)
        if listener is None:
            return Watched(ended=True)
        left_us = _left_us(listener, now)
        events = list(first_of(listener.events.items()))
        return Watched(events, listener.dropped, False, False, listener.hand_back, listener.seen, left_us)

    def expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            until, name = heappop(self._ends)
            if name in self.known and self.known[name].until == until:
                self.remove(name)

    @property
    def next_end(self) -> float:
        return self._ends[0][0] if self._ends else float("inf")

    def saved(self, now: float) -> list[KeptListener]:
        return [
            KeptListener(
                *(name, one.template, one.hand_back, _left_us(one, now), one.seen, one.dropped),
                list(one.events.items()),
                sorted(one.early),
            )
            for name, one in sorted(self.known.items())
        ]

    def install(self, kept: Iterable[KeptListener], now: float) -> None:
        """These are the registrations, in the place of those that are here."""
        for name in list(self.known):
            self.remove(name)
        self._ends.clear()
        for one in kept:
            until = now + one.left_us / 1e6 if one.left_us else 0.0
            listener = Listener(one.template, one.hand_back, until, one.seen, one.dropped, {}, 0, set(one.early))
            self._put(one.name, listener)
            for tuple_name, item in one.events:
                self._keep(listener, tuple_name, item)

    def validate(self) -> None:
        assert len(self._wishes) == len(self.known)
        for listener in self.known.values():
            assert listener.size_bytes == sum(item.size for item in listener.events.values())
            assert not listener.early & set(listener.events) and len(listener.events) <= EVENTS_MAX
        assert self._size_bytes == sum(listener.size_bytes for listener in self.known.values())


def _left_us(listener: Listener, now: float) -> int:
    return max(int((listener.until - now) * 1e6), 1) if listener.until else 0
