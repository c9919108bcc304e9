"""Registrations (``notify``): listeners that are told of new tuples, and the events that are kept for them.

A registration keeps the tuples that matched, numbered from 1, until they were dealt with. So a listener goes on after a
break where it was. Of more than ``EVENTS_MAX`` events, or ``EVENTS_BYTES_MAX`` bytes, the oldest are dropped; from the
numbers a listener sees how many.

Each registration is a consumer of ``demand`` that wants everything: its events are told through the line that tells
takes what they were handed. It belongs to no owner; it ends by its own lease.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..group.host.demand import UNLIMITED, Demands
from ..group.host.parts import Parts
from .index import Wishes
from .templates import Template
from .values import Item
from .words import Ended, Happened, Notify, Told, encode

REGISTRATIONS_MAX = 10_000
EVENTS_MAX = 1_024
EVENTS_BYTES_MAX = 4 << 20
SHARDS = 32
NOBODY = 0
"""The owner of registrations."""
EVENT = 1 << 61
"""Numbers from here on are events, those below are tuples."""


class KeptRegistration(msgspec.Struct, array_like=True):
    number: int
    template: Template
    until_us: int
    hand_back: bytes
    transaction: int
    again: bool
    sequence: int = 0
    epoch: int = 0
    events: dict[int, Happened] = {}
    """By number, in their order."""
    size_bytes: int = 0
    seen: int = 0
    """The last event that was acknowledged."""


class Registrations:
    """``parts`` are those of the machine that the table belongs to."""

    def __init__(self, parts: Parts, demands: Demands) -> None:
        self._parts = parts
        self._demands = demands
        self._listeners: dict[int, int] = {}
        """By event: its registration."""
        self.next_event = EVENT
        self.known: dict[int, KeptRegistration] = {}
        self._listening: Wishes[int] = Wishes()

    def add(self, command: Notify, lease_us: int) -> bool:
        """False if there are too many."""
        if len(self.known) >= REGISTRATIONS_MAX:
            return False
        number = command.registration
        consumer = self._demands.attach(number, NOBODY, 0)
        if consumer is None:
            return False
        self._demands.demand(number, consumer.epoch, 1, EVENTS_MAX + 1, 1 << 50, UNLIMITED)
        self.touch(number)
        made = KeptRegistration(
            number,
            command.template,
            -lease_us,
            command.hand_back,
            command.transaction,
            command.again,
            epoch=consumer.epoch,
            events={},
        )
        self._put(made)
        return True

    def _put(self, registration: KeptRegistration) -> None:
        self.known[registration.number] = registration
        self._listening.add(registration.number, registration.template)
        self._listeners.update(dict.fromkeys(registration.events, registration.number))

    def remove(self, number: int) -> bool:
        if number not in self.known:
            return False
        self.touch(number)
        found = self.known.pop(number)
        for thing in found.events:
            del self._listeners[thing]
        self._listening.remove(number)
        self._demands.detach(number)
        return True

    def tell(self, number: int, item: Item, writer: int, again: bool) -> None:
        """A tuple can be seen, by everybody or by the transaction that wrote it; ``again``: not for the first time."""
        for listener in sorted(self._listening.of(item)) if self.known else ():
            found = self.known[listener]
            if (again and not found.again) or (writer and found.transaction != writer):
                continue
            self.touch(listener)
            self._parts.touch("numbers")
            found.sequence += 1
            thing = self.next_event
            self.next_event += 1
            found.events[thing] = Happened(found.sequence, number, item)
            self._listeners[thing] = listener
            found.size_bytes += item.size
            self._demands.assign(self._demands.consumers[listener], thing, item.size, 1)
            while len(found.events) > EVENTS_MAX or found.size_bytes > EVENTS_BYTES_MAX:
                self._drop(found, next(iter(found.events)))

    def _drop(self, found: KeptRegistration, thing: int) -> None:
        found.size_bytes -= found.events.pop(thing).item.size
        del self._listeners[thing]
        self._demands.settle(found.number, found.epoch, thing)

    def seen(self, found: KeptRegistration, sequence: int) -> None:
        """Events up to this one were acknowledged."""
        self.touch(found.number)
        found.seen = max(found.seen, min(sequence, found.sequence))
        for thing in [thing for thing, event in found.events.items() if event.sequence <= sequence]:
            self._drop(found, thing)

    def told(self, thing: int) -> bytes:
        """The event as a listener gets it."""
        return encode(self.known[self._listeners[thing]].events[thing])

    def events(self, number: int, after: int, now_us: int) -> Told | Ended:
        found = self.known.get(number)
        if found is None or 0 < found.until_us <= now_us:
            return Ended("registration")
        events = [event for event in found.events.values() if event.sequence > after]
        first = events[0].sequence if events else found.sequence + 1
        left_us = found.until_us - now_us if found.until_us > 0 else -found.until_us
        missed = max(first - max(after, found.seen) - 1, 0)
        return Told(events, missed, found.hand_back, found.seen, found.epoch, left_us)

    def of_transaction(self, transaction: int) -> Sequence[int]:
        return sorted(number for number, found in self.known.items() if found.transaction == transaction)

    def touch(self, number: int) -> None:
        self._parts.touch(f"registrations/{number % SHARDS:02d}")

    def part_names(self) -> list[str]:
        return [f"registrations/{shard:02d}" for shard in sorted({one % SHARDS for one in self.known})]

    def encode_part(self, name: str) -> bytes:
        shard = int(name.partition("/")[2])
        return encode([self.known[one] for one in sorted(self.known) if one % SHARDS == shard])

    def restore_part(self, data: bytes) -> None:
        for registration in msgspec.msgpack.decode(data, type=list[KeptRegistration]):
            self._put(registration)
