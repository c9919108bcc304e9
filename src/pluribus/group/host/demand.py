"""Demand: who wants things, who was given which, and until when. A machine that hands things out uses it.

Theory of operation
-------------------
*Waiting is state.* A consumer that wants something says so by a command. The demand then stands in the replicated
state, in its turn, and is met by the very command that brings what it waits for: fairness is decided once for all, and
nobody polls. Every keeper computes the same assignments; the one that holds the consumer's line tells it (``news``).

*Credit.* A consumer says how many things, and how many bytes of them, it may hold unsettled. Credit is a state, not a
difference: said twice it means the same. It may also say how many things it wants in all (``want``); then the demand
ends with the last of them.

*Epochs.* A consumer is named by a number that it drew. Attaching again, anywhere, after any break, raises its epoch and
answers with everything that it holds, with the same delivery numbers. What a consumer of an older epoch settles is
refused: at most one assignment of a thing is valid.

*Leases.* A consumer belongs to an *owner*, a member of the bus or a client, that is silent for at most the lease. The
leader notices silence and submits ``Expire``; what the owner's consumers held is free again, in the order of things.

*Turns.* Those who wait are served in the order in which they began to wait; who was served goes to the end of the line.

Promises: a thing has at most one valid assignment; nobody who waits with room is passed over by a later one for a thing
that both want. Bounded: ``CONSUMERS_MAX`` consumers, ``CREDIT_MAX`` things a consumer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from .parts import Parts

CONSUMERS_MAX = 100_000
CREDIT_MAX = 65_536
"""Things that one consumer may hold."""
SHARDS = 32
UNLIMITED = -1


class Held(msgspec.Struct, array_like=True):
    """A thing that a consumer was given and has not settled."""

    delivery: int
    """How often the thing was handed out, this time included."""
    size: int


class Consumer(msgspec.Struct, array_like=True):
    """One who wants things."""

    number: int
    owner: int
    lease_us: int
    epoch: int = 1
    things_max: int = 0
    bytes_max: int = 0
    want: int = 0
    """How many it wants, besides those that it holds; ``UNLIMITED``: as many as it has room for."""
    serial: int = 0
    """Of its last demand: one that comes late or twice changes nothing."""
    turn: int = 0
    """Its place in the line; 0: it does not wait."""
    tag: int = 0
    """The machine's own, for instance which of its queues it is at."""
    held: dict[int, Held] = {}
    held_bytes: int = 0

    @property
    def has_room(self) -> bool:
        room = len(self.held) < self.things_max and (self.held_bytes < self.bytes_max or not self.held)
        return room and self.want != 0

    def room_for(self, size: int) -> int:
        """How many things of this size it may be given, one after another."""
        if not self.has_room:
            return 0
        things = self.things_max - len(self.held)
        if self.want > 0:
            things = min(things, self.want)
        return max(min(things, -(-(self.bytes_max - self.held_bytes) // max(size, 1))), 1)


class Assigned(msgspec.Struct, array_like=True, frozen=True):
    """A consumer was given a thing."""

    consumer: int
    epoch: int
    thing: int
    delivery: int
    count: int = 1
    """So many things that follow each other, this one first."""


class Demands:
    """The table. ``parts`` are those of the machine that it belongs to."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.consumers: dict[int, Consumer] = {}
        self._lines: dict[int, dict[int, Consumer]] = {}
        """By tag, those who wait and have room, in the order of their turns."""
        self._next_turn = 1
        self.news: list[Assigned] = []
        """Assignments since somebody looked, to be told to their consumers. Not part of the state."""

    # Who wants.

    def attach(self, number: int, owner: int, lease_us: int, tag: int = 0) -> Consumer | None:
        """A consumer is here, or here again: its epoch, and what it holds, count from now on. None if there are too
        many."""
        found = self.consumers.get(number)
        if found is None:
            if len(self.consumers) >= CONSUMERS_MAX:
                return None
            found = Consumer(number, owner, lease_us, tag=tag, held={})
            self._touch(number)
            self.consumers[number] = found
            return found
        self._touch(number)
        self._leave_line(found)
        found.epoch += 1
        found.owner, found.lease_us = owner, lease_us
        found.things_max = found.bytes_max = found.want = found.serial = 0
        return found

    def demand(self, number: int, epoch: int, serial: int, things_max: int, bytes_max: int, want: int) -> bool:
        """What a consumer has room for, and wants. False if it is not attached in this epoch."""
        found = self.consumers.get(number)
        if found is None or found.epoch != epoch:
            return False
        if serial > found.serial:
            self._touch(number)
            found.serial = serial
            found.things_max, found.bytes_max = min(things_max, CREDIT_MAX), bytes_max
            found.want = want
            self._line_up(found)
        return True

    def detach(self, number: int) -> dict[int, Held]:
        """A consumer is gone; what it held."""
        found = self.consumers.get(number)
        if found is None:
            return {}
        self._touch(number)
        self._leave_line(found)
        del self.consumers[number]
        return found.held

    def expire(self, owners: Iterable[int]) -> dict[int, dict[int, Held]]:
        """All consumers of these owners are gone; what each held, in the order of their numbers: in which order they
        came is not part of the state."""
        gone = set(owners)
        numbers = [number for number, consumer in self.consumers.items() if consumer.owner in gone]
        return {number: self.detach(number) for number in sorted(numbers)}

    def owners(self) -> dict[int, int]:
        """All owners, with the shortest of their leases."""
        found: dict[int, int] = {}
        for consumer in self.consumers.values():
            found[consumer.owner] = min(found.get(consumer.owner, consumer.lease_us), consumer.lease_us)
        return found

    # Who gets.

    def next(self, tag: int = 0, among: Collection[int] | None = None) -> Consumer | None:
        """Whose turn it is of those who wait at a tag; ``among`` these, if not everybody may have the thing."""
        for number, consumer in self._lines.get(tag, {}).items():
            if among is None or number in among:
                return consumer
        return None

    def waiting(self, tag: int = 0) -> Sequence[Consumer]:
        """Those who wait at a tag and have room, in their turns."""
        return list(self._lines.get(tag, {}).values())

    def waiting_count(self, tag: int = 0) -> int:
        return len(self._lines.get(tag, ()))

    def assign(self, consumer: Consumer, thing: int, size: int, delivery: int) -> None:
        """Give a thing to one who waits; it goes to the end of the line."""
        self._touch(consumer.number)
        assert thing not in consumer.held and consumer.has_room
        consumer.held[thing] = Held(delivery, size)
        consumer.held_bytes += size
        if consumer.want > 0:
            consumer.want -= 1
        self._leave_line(consumer)
        self._line_up(consumer)
        self.news.append(Assigned(consumer.number, consumer.epoch, thing, delivery))

    def assign_many(self, consumer: Consumer, first: int, count: int, size: int, delivery: int) -> None:
        """Give things that follow each other, each of this size, to one who waits and has room for all of them."""
        assert 0 < count <= consumer.room_for(size)
        self._touch(consumer.number)
        consumer.held.update(dict.fromkeys(range(first, first + count), Held(delivery, size)))
        consumer.held_bytes += count * size
        if consumer.want > 0:
            consumer.want -= count
        self._leave_line(consumer)
        self._line_up(consumer)
        self.news.append(Assigned(consumer.number, consumer.epoch, first, delivery, count))

    def settle_many(self, number: int, epoch: int, first: int, count: int) -> list[int]:
        """A consumer is done with things that follow each other: those of them that it held."""
        consumer = self.consumers.get(number)
        if consumer is None or consumer.epoch != epoch:
            return []
        held = consumer.held
        things = [thing for thing in range(first, first + min(count, CREDIT_MAX)) if thing in held]
        if things:
            self._touch(number)
            for thing in things:
                consumer.held_bytes -= held.pop(thing).size
            self._line_up(consumer)
        return things

    def settle(self, number: int, epoch: int, thing: int) -> Held | None:
        """A consumer is done with a thing, or gives it back; None if it does not hold it, or not any more."""
        consumer = self.consumers.get(number)
        if consumer is None or consumer.epoch != epoch or thing not in consumer.held:
            return None
        self._touch(number)
        held = consumer.held.pop(thing)
        consumer.held_bytes -= held.size
        self._line_up(consumer)
        return held

    # The line.

    def _line_up(self, consumer: Consumer) -> None:
        """At the end, if it has room and does not wait yet; or out of it, if it has none."""
        if not consumer.has_room:
            self._leave_line(consumer)
        elif not consumer.turn:
            self._parts.touch("demand/turn")
            consumer.turn = self._next_turn
            self._next_turn += 1
            self._lines.setdefault(consumer.tag, {})[consumer.number] = consumer

    def _leave_line(self, consumer: Consumer) -> None:
        if consumer.turn:
            consumer.turn = 0
            line = self._lines[consumer.tag]
            del line[consumer.number]
            if not line:
                del self._lines[consumer.tag]

    def _touch(self, number: int) -> None:
        self._parts.touch(f"demand/{number % SHARDS:02d}")

    # Snapshots.

    def part_names(self) -> list[str]:
        used = sorted({number % SHARDS for number in self.consumers})
        return ["demand/turn", *(f"demand/{shard:02d}" for shard in used)]

    def encode_part(self, name: str) -> bytes:
        which = name.partition("/")[2]
        if which == "turn":
            return _encode(self._next_turn)
        shard = int(which)
        return _encode([one for number, one in self.consumers.items() if number % SHARDS == shard])

    def restore_part(self, name: str, data: bytes) -> None:
        if name.partition("/")[2] == "turn":
            self._next_turn = msgspec.msgpack.decode(data, type=int)
            return
        for consumer in msgspec.msgpack.decode(data, type=list[Consumer]):
            self.consumers[consumer.number] = consumer

    def restored(self) -> None:
        """All parts are here: put those who wait in line."""
        for consumer in sorted(self.consumers.values(), key=_turn):
            if consumer.turn:
                self._lines.setdefault(consumer.tag, {})[consumer.number] = consumer

    def validate(self) -> None:
        """For tests."""
        for tag, line in self._lines.items():
            assert line and list(line.values()) == sorted(line.values(), key=_turn)
            assert all(consumer.tag == tag and consumer.turn and consumer.has_room for consumer in line.values())
        for consumer in self.consumers.values():
            assert consumer.held_bytes == sum(held.size for held in consumer.held.values())
            assert bool(consumer.turn) == consumer.has_room
        things = [thing for consumer in self.consumers.values() for thing in consumer.held]
        assert len(things) == len(set(things)), "a thing is held twice"


_encode = msgspec.msgpack.encode


def _turn(consumer: Consumer) -> int:
    return consumer.turn
