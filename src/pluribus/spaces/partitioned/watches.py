"""Registrations at one range, with the events that are kept for their listeners.

A registration stands at every range in which its template can match. There it is part of the range's state: it changes
by steps, all copies have it, and it moves with the range before the new owner serves. Events of one registration are
numbered at each range; an acknowledgement says up to which number.

*Gaps.* If a range is lost, other servers know of the registrations that stand at all ranges. They stand in the new,
empty range with ``gap`` set until the listener has acknowledged that. Their numbers go on from ``first_number``, above
all numbers of the lost range, so an old acknowledgement acknowledges nothing new. A registration that stood in the lost
range only is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from ..index import Wishes
from ..templates import Template
from ..values import Item
from ..watching import ALL_BYTES_MAX, EVENTS_BYTES_MAX, EVENTS_MAX, Mark
from .words import KeptWatch, Name, Watching

RANGE_BYTES_MAX = ALL_BYTES_MAX // 8
"""Bytes of all events that one range keeps."""
ENDS_SLACK = 64
EPOCH_BITS = 32
"""Numbers of events in a range that began in a later epoch are above these bits."""


class Watch(msgspec.Struct):
    template: Template
    hand_back: bytes
    wide: bool
    until: float
    """The end of its lease by this member's clock; 0: never."""
    seen: int
    """The last event that was acknowledged."""
    last: int
    """The last event that there was."""
    count: int = 0
    """How many events were acknowledged, or told as missed."""
    gap: bool = False
    events: dict[int, tuple[Item, int]] = {}
    """By number, in their order: the tuple, and the step of the range in which it was written."""
    size_bytes: int = 0

    def missed(self, first: int) -> int:
        """How many events were dropped, if this is the first that is kept."""
        return first - self.seen - 1 - self.gap


class Watches:
    """``born`` is the epoch in which the range began."""

    def __init__(self, born: int) -> None:
        self._born = born
        self.known: dict[Name, Watch] = {}
        self.fresh: set[Name] = set()
        """Registrations with news since the server last looked."""
        self._wishes: Wishes[Name] = Wishes()
        self._ends: list[tuple[float, Name]] = []
        self._size_bytes = 0

    @property
    def first_number(self) -> int:
        return self._born << EPOCH_BITS

    def add(self, name: Name, made: Watching, now: float, gap: bool = False) -> None:
        if name not in self.known:
            number, until = self.first_number, _until(made.lease_us, now)
            last = number + gap  # the gap has a number, with which it is acknowledged
            self._put(name, Watch(made.template, made.hand_back, made.wide, until, number, last, gap=gap, events={}))

    def _put(self, name: Name, watch: Watch) -> None:
        self.known[name] = watch
        self._wishes.add(name, watch.template)
        self._end(name, watch)

    def _end(self, name: Name, watch: Watch) -> None:
        if watch.until:
            heappush(self._ends, (watch.until, name))
        if len(self._ends) > 2 * len(self.known) + ENDS_SLACK:  # most are outdated
            self._ends = sorted((one.until, name) for name, one in self.known.items() if one.until)

    def remove(self, name: Name) -> None:
        watch = self.known.pop(name, None)
        if watch is not None:
            self._size_bytes -= watch.size_bytes
            self._wishes.remove(name)
            self.fresh.add(name)

    def renew(self, name: Name, lease_us: int, now: float) -> None:
        watch = self.known.get(name)
        if watch is not None:
            watch.until = _until(lease_us, now)
            self._end(name, watch)

    def tell(self, item: Item, step: int) -> None:
        """A tuple is written in this step of the range."""
        for name in sorted(self._wishes.of(item)) if self.known else ():
            watch = self.known[name]
            watch.last += 1
            self._keep(watch, watch.last, item, step)
            self.fresh.add(name)

    def _keep(self, watch: Watch, number: int, item: Item, step: int) -> None:
        watch.events[number] = (item, step)
        watch.size_bytes += item.size
        self._size_bytes += item.size
        while watch.events and (
            len(watch.events) > EVENTS_MAX or watch.size_bytes > EVENTS_BYTES_MAX or self._size_bytes > RANGE_BYTES_MAX
        ):
            self._drop(watch, next(iter(watch.events)))

    def _drop(self, watch: Watch, number: int) -> None:
        size = watch.events.pop(number)[0].size
        watch.size_bytes -= size
        self._size_bytes -= size

    def heard(self, name: Name, number: int) -> None:
        """Events up to this number were acknowledged."""
        watch = self.known.get(name)
        if watch is None or number <= watch.seen:
            return
        number = min(number, watch.last)
        watch.count += number - watch.seen - watch.gap
        watch.seen, watch.gap = number, False
        for one in [one for one in watch.events if one <= number]:
            self._drop(watch, one)

    def events(self, name: Name, range: int, step: int) -> Iterator[tuple[Mark, Item]]:
        """Events of the steps up to ``step``, with their names."""
        for number, (item, written) in self.known[name].events.items():
            if written <= step:
                yield (range, number), item

    def expired(self, now: float) -> list[Name]:
        """Registrations whose leases have ended."""
        found: list[Name] = []
        while self._ends and self._ends[0][0] <= now:
            until, name = heappop(self._ends)
            if name in self.known and self.known[name].until == until:
                found.append(name)
        return found

    @property
    def next_end(self) -> float:
        return self._ends[0][0] if self._ends else float("inf")

    def left_us(self, name: Name, now: float) -> int:
        """The rest of a lease; 0: it has no end."""
        until = self.known[name].until
        return max(int((until - now) * 1e6), 1) if until else 0

    def wide(self, now: float) -> Iterator[tuple[Name, Watching]]:
        """Registrations that stand at all ranges."""
        for name, watch in self.known.items():
            if watch.wide:
                yield name, Watching(watch.template, self.left_us(name, now), watch.hand_back, True)

    def names(self, part_bytes: int) -> list[tuple[Name, list[int]]]:
        """All registrations, each in parts of about so many bytes: the numbers of the events of each part."""
        found: list[tuple[Name, list[int]]] = []
        for name, one in self.known.items():
            found.append((name, []))
            size = 0
            for number, (item, _) in one.events.items():
                if size and size + item.size > part_bytes:
                    found.append((name, []))
                    size = 0
                size += item.size
                found[-1][1].append(number)
        return found

    def saved(self, name: Name, numbers: Iterable[int], now: float) -> KeptWatch:
        """A registration with some of its events."""
        one = self.known[name]
        made = Watching(one.template, self.left_us(name, now), one.hand_back, one.wide)
        events = [(number, one.events[number][0]) for number in numbers]
        return KeptWatch(name, made, one.seen, one.last, one.count, one.gap, events)

    def restore(self, kept: Iterable[KeptWatch], now: float) -> None:
        for one in kept:
            watch = self.known.get(one.name)
            if watch is None:
                made, seen = one.made, (one.seen, one.last, one.count, one.gap)
                watch = Watch(made.template, made.hand_back, made.wide, _until(made.lease_us, now), *seen, {})
                self._put(one.name, watch)
            for number, item in one.events:
                self._keep(watch, number, item, 0)

    def validate(self) -> None:
        assert len(self._wishes) == len(self.known)
        for watch in self.known.values():
            assert watch.size_bytes == sum(item.size for item, _ in watch.events.values())
            assert list(watch.events) == sorted(watch.events) and len(watch.events) <= EVENTS_MAX
            assert all(watch.seen < number <= watch.last for number in watch.events)
        assert self._size_bytes == sum(watch.size_bytes for watch in self.known.values())


def _until(lease_us: int, now: float) -> float:
    return now + lease_us / 1e6 if lease_us else 0.0
