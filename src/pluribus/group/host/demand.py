"""Demand: which consumers want things, which were given which, and until when. Machines that hand things out use it.

Theory of operation
-------------------
*Waiting is state.* A consumer that wants something says so by a command. The demand then stands in the replicated
state, in its turn, and is met by the very command that brings what it waits for. So fairness is decided in one place,
and nobody polls. Every keeper computes the same assignments; the keeper with the consumer's line tells it (``news``
names the consumers that are to be told).

*Credit.* A consumer says how many things, and how many bytes of them, it may hold unsettled. Credit is a state, not a
difference: said twice it means the same. It may also say how many things it wants in all (``want``); then the demand
ends with the last of them.

*Epochs.* A consumer is named by a number that it drew. Attaching again, anywhere, after any break, gives it a later
epoch and answers with everything that it holds, with the same delivery numbers. What a consumer of an older epoch
settles is refused: at most one assignment of a thing is valid. No epoch is given twice, also not to a consumer that
was gone and forgotten in between: what it settles of its former life is late for ever.

*Told once.* Assignments to one consumer are numbered. A program asks, at this keeper or at another, for those behind
the last number that the consumer has (``given``); so it misses none and gets none twice.

*Leases.* A consumer belongs to an *owner*, a member of the bus or a client, that is silent for at most the lease. The
leader notices silence and submits ``Expire``; what the owner's consumers held is free again, in the order of things.

*Turns.* Consumers are served in the order in which they began to wait; a consumer that was served goes to the end of
the line.

Promises: a thing has at most one valid assignment; if two consumers with room want the same thing, the one that waits
longer gets it. Bounded: ``CONSUMERS_MAX`` consumers, ``CREDIT_MAX`` things a consumer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from .parts import Parts

CONSUMERS_MAX = 100_000
CREDIT_MAX = 65_536
"""Things that one consumer may hold."""
SHARDS = 256
"""Parts of the snapshot that hold consumers."""
UNLIMITED = -1
_PARTS = [f"demand/{shard:02x}" for shard in range(SHARDS)]


class Held(msgspec.Struct, array_like=True):
    """A thing that a consumer was given and has not settled."""

    delivery: int
    """How often the thing was handed out, this time included."""
    size: int
    number: int = 0
    """The number of this assignment among those of the consumer; things that were given together share it."""


class Consumer(msgspec.Struct, array_like=True):
    """A consumer: it wants things, and holds some."""

    number: int
    owner: int
    lease_us: int
    epoch: int = 1
    things_max: int = 0
    bytes_max: int = 0
    want: int = 0
    """How many it wants, besides those that it holds; ``UNLIMITED``: as many as it has room for."""
    serial: int = 0
    """The number of its last demand: a demand that comes late or twice changes nothing."""
    turn: int = 0
    """Its place in the line; 0: it does not wait."""
    tag: int = 0
    """A number of the machine's own, for instance of the queue at which the consumer waits."""
    held: dict[int, Held] = {}
    """By thing, in the order in which they were given."""
    held_bytes: int = 0
    given: int = 0
    """Assignments so far."""

    def fits(self, size: int) -> bool:
        """Whether a thing of so many bytes is within the credit. A thing that is longer than all the credit fits a
        consumer that holds nothing."""
        return not self.held or self.held_bytes + size <= self.bytes_max

    @property
    def has_room(self) -> bool:
        room = len(self.held) < self.things_max and (self.held_bytes < self.bytes_max or not self.held)
        return room and self.want != 0

    def room_for(self, size: int) -> int:
        """How many things of so many bytes each it may be given now."""
        if not self.has_room or not self.fits(size):
            return 0
        things = self.things_max - len(self.held)
        if self.want > 0:
            things = min(things, self.want)
        return max(min(things, (self.bytes_max - self.held_bytes) // max(size, 1)), 1)


class Demands:
    """The table. ``parts`` are those of the machine that it belongs to."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.consumers: dict[int, Consumer] = {}
        self._shards: list[dict[int, Consumer]] = [{} for _ in range(SHARDS)]
        """All consumers, by part of the snapshot."""
        self._owned: dict[int, dict[int, Consumer]] = {}
        """All consumers, by owner."""
        self._lines: dict[int, dict[int, Consumer]] = {}
        """By tag, the consumers that wait and have room, in the order of their turns."""
        self._next = 1
        """The next number for turns and epochs."""
        self.news: dict[int, None] = {}
        """Consumers that were given something, attached elsewhere or went away since this was last cleared. Not part of
        the state."""

    # Who wants.

    def attach(self, number: int, owner: int, lease_us: int, tag: int = 0) -> Consumer | None:
        """A consumer is here, or here again, in a new epoch. Returns it with what it holds; None if there are too many
        consumers."""
        found = self.consumers.get(number)
        if found is None and len(self.consumers) >= CONSUMERS_MAX:
            return None
        self._parts.touch("demand/turn")
        self._touch(number)
        if found is None:
            found = Consumer(number, owner, lease_us, tag=tag, held={})
        else:
            self._leave_line(found)
            self._remove(found)
            found.owner, found.lease_us, found.tag = owner, lease_us, tag
            found.things_max = found.bytes_max = found.want = found.serial = 0
            self._tell(number)
        found.epoch = self._next
        self._next += 1
        self._add(found)
        return found

    def _add(self, consumer: Consumer) -> None:
        number = consumer.number
        self.consumers[number] = self._shards[number % SHARDS][number] = consumer
        self._owned.setdefault(consumer.owner, {})[number] = consumer

    def _remove(self, consumer: Consumer) -> None:
        number = consumer.number
        del self.consumers[number], self._shards[number % SHARDS][number]
        owned = self._owned[consumer.owner]
        del owned[number]
        if not owned:
            del self._owned[consumer.owner]

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

    def detach(self, number: int, epoch: int | None = None) -> dict[int, Held]:
        """A consumer is gone; returns what it held. With ``epoch``: only if it has not attached again since."""
        found = self.consumers.get(number)
        if found is None or (epoch is not None and found.epoch != epoch):
            return {}
        self._touch(number)
        self._leave_line(found)
        self._remove(found)
        self._tell(number)
        return found.held

    def expire(self, owners: Iterable[int]) -> dict[int, dict[int, Held]]:
        """All consumers of these owners are gone. Returns what each held, in the order of the consumers' numbers,
        because the order in which they came is not part of the state."""
        numbers = {number for owner in owners for number in self._owned.get(owner, ())}
        return {number: self.detach(number) for number in sorted(numbers)}

    def owners(self) -> Iterable[int]:
        """All who have consumers here."""
        return self._owned.keys()

    def count_of(self, owner: int) -> int:
        """How many consumers an owner has."""
        return len(self._owned.get(owner, ()))

    def lease_us(self, owner: int) -> int | None:
        """The shortest lease of an owner's consumers; None if it has none."""
        return min((consumer.lease_us for consumer in self._owned.get(owner, {}).values()), default=None)

    # Who gets.

    def next(self, tag: int = 0, among: Collection[int] | None = None, size: int = 0) -> Consumer | None:
        """The consumer at a tag whose turn it is, among those whose credit has room for ``size`` bytes; with ``among``,
        only these consumers may have the thing. A consumer that is passed over keeps its turn."""
        for number, consumer in self._lines.get(tag, {}).items():
            if (among is None or number in among) and consumer.fits(size):
                return consumer
        return None

    def waiting(self, tag: int = 0) -> Sequence[Consumer]:
        """Those who wait at a tag and have room, in their turns."""
        return list(self._lines.get(tag, {}).values())

    def waiting_count(self, tag: int = 0) -> int:
        return len(self._lines.get(tag, ()))

    def assign(self, consumer: Consumer, thing: int, size: int, delivery: int) -> None:
        """Give a thing to a waiting consumer, which goes to the end of the line."""
        self._touch(consumer.number)
        assert thing not in consumer.held and consumer.has_room
        consumer.given += 1
        consumer.held[thing] = Held(delivery, size, consumer.given)
        consumer.held_bytes += size
        if consumer.want > 0:
            consumer.want -= 1
        self._leave_line(consumer)
        self._line_up(consumer)
        self._tell(consumer.number)

    def hold(self, consumer: Consumer, thing: int, size: int, delivery: int) -> None:
        """Give a thing to a consumer that does not wait, and need not be told."""
        self._touch(consumer.number)
        consumer.given += 1
        consumer.held[thing] = Held(delivery, size, consumer.given)
        consumer.held_bytes += size

    def assign_many(self, consumer: Consumer, first: int, count: int, size: int, delivery: int) -> None:
        """Give things that follow each other, each of this size, to one who waits and has room for all of them."""
        assert 0 < count <= consumer.room_for(size)
        self._touch(consumer.number)
        consumer.given += 1
        consumer.held.update(dict.fromkeys(range(first, first + count), Held(delivery, size, consumer.given)))
        consumer.held_bytes += count * size
        if consumer.want > 0:
            consumer.want -= count
        self._leave_line(consumer)
        self._line_up(consumer)
        self._tell(consumer.number)

    def given(self, number: int, epoch: int, after: int) -> list[tuple[int, Held]] | None:
        """What a consumer holds of the assignments behind this number, in their order; None if it is not attached in
        this epoch."""
        consumer = self.consumers.get(number)
        if consumer is None or consumer.epoch != epoch:
            return None
        found: list[tuple[int, Held]] = []
        if consumer.given > after:
            for thing in reversed(consumer.held):
                held = consumer.held[thing]
                if held.number <= after:
                    break
                found.append((thing, held))
        found.reverse()
        return found

    def settle(self, number: int, epoch: int, thing: int) -> Held | None:
        """A consumer is done with a thing, or gives it back. None if it does not hold the thing (any more)."""
        consumer = self.consumers.get(number)
        if consumer is None or consumer.epoch != epoch or thing not in consumer.held:
            return None
        self._touch(number)
        held = consumer.held.pop(thing)
        consumer.held_bytes -= held.size
        self._line_up(consumer)
        return held

    def settle_many(self, number: int, epoch: int, first: int, count: int, delivery: int = 0) -> list[int]:
        """A consumer is done with things that follow each other: those of them that it held, in this delivery if it is
        not 0."""
        consumer = self.consumers.get(number)
        if consumer is None or consumer.epoch != epoch:
            return []
        held = consumer.held
        things = [
            thing
            for thing in range(first, first + min(count, CREDIT_MAX))
            if (one := held.get(thing)) is not None and (not delivery or one.delivery == delivery)
        ]
        if things:
            self._touch(number)
            for thing in things:
                consumer.held_bytes -= held.pop(thing).size
            self._line_up(consumer)
        return things

    def _tell(self, number: int) -> None:
        if len(self.news) >= CONSUMERS_MAX:  # nobody looks
            self.news.clear()
        self.news[number] = None

    # The line.

    def _line_up(self, consumer: Consumer) -> None:
        """At the end, if it has room and does not wait yet; or out of it, if it has none."""
        if not consumer.has_room:
            self._leave_line(consumer)
        elif not consumer.turn:
            self._parts.touch("demand/turn")
            consumer.turn = self._next
            self._next += 1
            self._lines.setdefault(consumer.tag, {})[consumer.number] = consumer

    def _leave_line(self, consumer: Consumer) -> None:
        if consumer.turn:
            consumer.turn = 0
            line = self._lines[consumer.tag]
            del line[consumer.number]
            if not line:
                del self._lines[consumer.tag]

    def _touch(self, number: int) -> None:
        self._parts.touch(_PARTS[number % SHARDS])

    # Snapshots.

    def part_names(self) -> list[str]:
        return ["demand/turn", *(name for name, shard in zip(_PARTS, self._shards, strict=True) if shard)]

    def encode_part(self, name: str) -> bytes:
        which = name.partition("/")[2]
        return _encode(self._next) if which == "turn" else _encode(list(self._shards[int(which, 16)].values()))

    def restore_part(self, name: str, data: bytes) -> None:
        if name.partition("/")[2] == "turn":
            self._next = msgspec.msgpack.decode(data, type=int)
            return
        for consumer in msgspec.msgpack.decode(data, type=list[Consumer]):
            self._add(consumer)

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
            assert self._owned[consumer.owner][consumer.number] is consumer and consumer.epoch < self._next
            numbers = [held.number for held in consumer.held.values()]
            assert numbers == sorted(numbers) and (not numbers or numbers[-1] <= consumer.given)
        assert sum(map(len, self._shards)) == sum(map(len, self._owned.values())) == len(self.consumers)
        things = [thing for consumer in self.consumers.values() for thing in consumer.held]
        assert len(things) == len(set(things)), "a thing is held twice"


_encode = msgspec.msgpack.encode


def _turn(consumer: Consumer) -> int:
    return consumer.turn
