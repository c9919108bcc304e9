"""Registrations: who wants to hear of new tuples (``notify``), and what was kept for them.

A registration keeps the tuples that matched, numbered from 1, until they were dealt with. So a listener goes on after a
break where it was. Of more than ``EVENTS_MAX`` events, or ``EVENTS_BYTES_MAX`` bytes, the oldest are dropped; from the
numbers a listener sees how many.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..group.host.demand import Assigned
from ..group.host.parts import Parts
from .index import Wishes
from .templates import Template
from .values import Item
from .words import Ended, Happened, Notify, Told, encode

REGISTRATIONS_MAX = 10_000
EVENTS_MAX = 1_024
EVENTS_BYTES_MAX = 4 << 20
SHARDS = 32


class Registration(msgspec.Struct, array_like=True):
    number: int
    template: Template
    until_us: int
    hand_back: bytes
    transaction: int
    again: bool
    sequence: int = 0
    events: list[Happened] = []
    size_bytes: int = 0


class Registrations:
    """``parts`` are those of the machine that the table belongs to."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.known: dict[int, Registration] = {}
        self._listening: Wishes[int] = Wishes()

    def add(self, command: Notify, lease_us: int) -> bool:
        """False if there are too many."""
        if len(self.known) >= REGISTRATIONS_MAX:
            return False
        self.touch(command.registration)
        self._put(
            Registration(
                command.registration,
                command.template,
                -lease_us,
                command.hand_back,
                command.transaction,
                command.again,
                events=[],
            )
        )
        return True

    def _put(self, registration: Registration) -> None:
        self.known[registration.number] = registration
        self._listening.add(registration.number, registration.template)

    def remove(self, number: int) -> bool:
        if number not in self.known:
            return False
        self.touch(number)
        del self.known[number]
        self._listening.remove(number)
        return True

    def tell(self, number: int, item: Item, writer: int, again: bool, news: list[Assigned]) -> None:
        """A tuple can be seen, by everybody or by the transaction that wrote it; ``again``: not for the first time."""
        for listener in sorted(self._listening.of(item)) if self.known else ():
            found = self.known[listener]
            if (again and not found.again) or (writer and found.transaction != writer):
                continue
            self.touch(listener)
            found.sequence += 1
            found.events.append(Happened(found.sequence, number, item))
            found.size_bytes += item.size
            while len(found.events) > EVENTS_MAX or found.size_bytes > EVENTS_BYTES_MAX:
                found.size_bytes -= found.events.pop(0).item.size
            news.append(Assigned(listener, 0, number, found.sequence))

    def seen(self, found: Registration, sequence: int) -> None:
        """Events up to this one were dealt with."""
        self.touch(found.number)
        gone = [event for event in found.events if event.sequence <= sequence]
        del found.events[: len(gone)]
        found.size_bytes -= sum(event.item.size for event in gone)

    def events(self, number: int, after: int) -> Told | Ended:
        found = self.known.get(number)
        if found is None:
            return Ended("registration")
        events = [event for event in found.events if event.sequence > after]
        first = events[0].sequence if events else found.sequence + 1
        return Told(events, max(first - after - 1, 0), found.hand_back)

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
        for registration in msgspec.msgpack.decode(data, type=list[Registration]):
            self._put(registration)
