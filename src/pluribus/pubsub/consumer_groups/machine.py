"""A consumer group as a machine on the log host: members of one name share the events of durable topics.

Theory of operation
-------------------
*Window.* Events stay in the log of their topics. For each topic the group knows how far it was shown (``seen``), and
the events below that which are not settled (``open``): bytes, key, tries. An offset below ``seen`` that is not open is
settled. So the state is small, whatever the length of the topics.

*Reading ahead.* A machine cannot read the log. When members wait and too few events are ready, the leading keeper reads
on from ``seen``, applies the group's filter, and brings offsets, sizes and keys by ``Ahead``. That is a function of the
log alone: every leader brings the same, and what comes twice is ignored.

*Demand* (``group/host/demand.py``). Members say how much they may hold. The member that waits longest is served next,
and when several wait, the ready events are shared out evenly. Every assignment has a number that is never used again.

*Keys.* Events of one key and topic are handed out in order, one at a time: the next one when the one before is settled.
Keys are hashed to numbers; two keys with the same number merely delay each other.

*Coming back.* What a member held comes back to its old place when the member leaves, when its lease ends, or when it
gives the event back; the last two count as a try. After ``tries_max`` tries the event is a dead letter, which stays
aside with the reason until it is redriven. With ``DEAD_MAX`` dead letters there, events are tried on and on instead.

Promises: at most one assignment of an event is valid. A settled event is never handed out again. Every event of the
topics that the filter wants is ahead of ``seen``, open, a dead letter, or settled.
Bounded: ``OPEN_MAX`` open events, ``DEAD_MAX`` dead letters, and the limits of ``Demands``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import ClassVar

import msgspec

from ...core.errors import BadTopic, MalformedFrame
from ...group.host.bodies import Handle
from ...group.host.demand import UNLIMITED, Consumer, Demands, Held
from ...group.host.machine import Ground, Machine
from ..topics import levels_of, matches
from . import words
from .words import AGAIN, DONE, ENDED, REFUSED, Dead, Outcome, Position, Standing

OPEN_MAX = 16_384
"""Events that the group was shown and that are not settled."""
READY_LOW = 2_048
"""With fewer ready events, more are read."""
DEAD_MAX = 4_096
TOPICS_MAX = 65_536
"""Topics of one group."""

_encode = msgspec.msgpack.encode


class OpenEvent(msgspec.Struct, array_like=True):
    """An event that is not settled."""

    order: int
    """Its place among all that are ready; an event that comes back has the old one."""
    size: int
    key: int = 0
    tries: int = 0
    thing: int = 0
    """The number of its assignment; 0: nobody holds it."""


class Place(msgspec.Struct, array_like=True):
    """How far the group is in one topic."""

    seen: int
    open: dict[int, OpenEvent]
    """By offset."""

    @property
    def settled(self) -> int:
        return min(self.open, default=self.seen)


class Told(msgspec.Struct, array_like=True, frozen=True):
    """Which event an assignment is."""

    topic: str
    offset: int


class ConsumerGroup(Machine):
    """The state of one group."""

    kind: ClassVar[str] = "consumer-group"
    version: ClassVar[int] = 1
    demands: Demands

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.demands = Demands(self.parts)
        self.patterns: list[str] = []
        """None: nobody has joined yet."""
        self.where = ""
        self.tries_max = 0
        self.places: dict[str, Place] = {}
        self.dead: list[Dead] = []
        self._next = 1
        """Of assignments and places in the line."""
        self._open = 0
        self._ready: list[tuple[int, str, int]] = []
        """A heap of events that may be handed out: order, topic, offset. It is derived from the state above, like the
        next two."""
        self._keys: dict[tuple[str, int], deque[int]] = {}
        """By topic and key, the open offsets in their order. Only the first of them is ready or held."""
        self._things: dict[int, tuple[str, int]] = {}
        """By assignment, topic and offset."""

    # Commands.

    def apply(self, row: int, place: int, command: bytes) -> Outcome:
        try:
            asked = words.command_of(command)
        except MalformedFrame as error:
            return Outcome(REFUSED, 0, str(error))
        self.parts.touch("group")
        match asked:
            case words.Settle():
                outcome = self._settle(asked)
            case words.Ahead():
                outcome = self._ahead(asked)
            case words.Join():
                outcome = self._join(asked)
            case words.Leave():
                outcome = self._leave(asked)
            case words.Redrive():
                outcome = self._redrive(asked)
        self._hand_out()
        return outcome

    def _join(self, command: words.Join) -> Outcome:
        if not self.patterns:
            try:
                for pattern in command.patterns:
                    levels_of(pattern)
            except BadTopic as error:
                return Outcome(REFUSED, 0, str(error))
            self.patterns, self.where = list(command.patterns), command.where
            self.tries_max = command.tries_max
            for topic, start in list(command.starts.items())[:TOPICS_MAX]:
                self.places[topic] = Place(start, {})
        elif (self.patterns, self.where, self.tries_max) != (command.patterns, command.where, command.tries_max):
            reads = f"{', '.join(self.patterns)} with where={self.where or None!r} and tries={self.tries_max}"
            return Outcome(
                REFUSED, 0, f"the group was made for {reads}: subscribe with the same, or under another name"
            )
        consumer = self.demands.attach(command.consumer, command.owner, max(command.lease_us, 1))
        if consumer is None:
            return Outcome(REFUSED, 0, "too many members are in this group: close some")
        room = (max(command.things_max, 1), max(command.bytes_max, 1))
        self.demands.demand(consumer.number, consumer.epoch, 1, *room, UNLIMITED)
        return Outcome(DONE, consumer.epoch, "", list(consumer.held))

    def _leave(self, command: words.Leave) -> Outcome:
        if command.consumer not in self.demands.consumers:
            return Outcome(AGAIN)
        self._come_back(self.demands.detach(command.consumer), False, "")
        return Outcome(DONE)

    def owners(self) -> Iterable[int]:
        return self.demands.owners()

    def lease_us(self, owner: int) -> int | None:
        return self.demands.lease_us(owner)

    def expire(self, owners: Sequence[int]) -> None:
        self.parts.touch("group")
        for held in self.demands.expire(owners).values():
            self._come_back(held, True, "the member that held it was silent for too long")
        self._hand_out()

    def _settle(self, command: words.Settle) -> Outcome:
        consumer = self.demands.consumers.get(command.consumer)
        if consumer is None or consumer.epoch != command.epoch:
            return Outcome(ENDED, 0, "this member is not in the group any more: join again")
        for first, count in command.acked:
            for thing in self.demands.settle_many(consumer.number, consumer.epoch, first, count):
                self._done(thing)
        for thing, reason in command.back:
            held = self.demands.settle(consumer.number, consumer.epoch, thing)
            if held is not None:
                self._come_back({thing: held}, True, reason)
        return Outcome(DONE)

    def _done(self, thing: int) -> None:
        topic, offset = self._things.pop(thing)
        one = self.places[topic].open.pop(offset)
        self._open -= 1
        if one.key:
            self._next_of_key(topic, one.key)

    def _next_of_key(self, topic: str, key: int) -> None:
        """The first event of a key is settled: the next one is ready."""
        line = self._keys[topic, key]
        line.popleft()
        if line:
            heappush(self._ready, (self.places[topic].open[line[0]].order, topic, line[0]))
        else:
            del self._keys[topic, key]

    def _come_back(self, held: Mapping[int, Held], counts: bool, reason: str) -> None:
        for thing in sorted(held):
            topic, offset = self._things.pop(thing)
            one = self.places[topic].open[offset]
            one.thing = 0
            one.tries += counts
            if self.tries_max and one.tries >= self.tries_max and len(self.dead) < DEAD_MAX:
                self.dead.append(Dead(topic, offset, one.tries, reason, one.size, one.key))
                del self.places[topic].open[offset]
                self._open -= 1
                if one.key:
                    self._next_of_key(topic, one.key)
            else:
                heappush(self._ready, (one.order, topic, offset))

    def _ahead(self, command: words.Ahead) -> Outcome:
        place = self.places.get(command.topic)
        if place is None:
            if len(self.places) >= TOPICS_MAX or not self.wants(command.topic):
                return Outcome(REFUSED, 0, "the group does not read this topic")
            place = self.places[command.topic] = Place(0, {})
        if command.start != place.seen or command.end <= place.seen:
            return Outcome(AGAIN, place.seen)
        before = command.start - 1
        for offset, _, _ in command.events:
            if not before < offset < command.end:
                return Outcome(REFUSED, place.seen, f"offset {offset} is not between {command.start} and {command.end}")
            before = offset
        place.seen = command.end
        for offset, size, key in command.events:
            self._add(command.topic, place, offset, size, key)
        return Outcome(DONE, place.seen)

    def _add(self, topic: str, place: Place, offset: int, size: int, key: int) -> None:
        one = place.open[offset] = OpenEvent(self._next, size, key)
        self._next += 1
        self._open += 1
        if self._is_first(topic, offset, key):
            heappush(self._ready, (one.order, topic, offset))

    def _is_first(self, topic: str, offset: int, key: int) -> bool:
        """Put an event behind the others of its key; true if there are none."""
        if not key:
            return True
        line = self._keys.setdefault((topic, key), deque())
        line.append(offset)
        return len(line) == 1

    def _redrive(self, command: words.Redrive) -> Outcome:
        count = min(command.count, max(OPEN_MAX - self._open, 0))
        wanted = set(command.events)
        again = [one for one in self.dead if not wanted or (one.topic, one.offset) in wanted][:count]
        taken = {(one.topic, one.offset) for one in again}
        self.dead = [one for one in self.dead if (one.topic, one.offset) not in taken]
        for one in again:
            self._add(one.topic, self.places[one.topic], one.offset, one.size, one.key)
        return Outcome(DONE, len(again))

    # Handing out.

    def _hand_out(self) -> None:
        """Hand out in rounds: each waiting member gets its share of the ready events, as far as it has room."""
        given = True
        while self._ready and given:
            waiting = self.demands.waiting()
            share = -(-len(self._ready) // max(len(waiting), 1))
            given = False
            for consumer in waiting:
                for _ in range(share):
                    if not self._ready or not consumer.has_room or not consumer.fits(self._first().size):
                        break
                    self._give(consumer)
                    given = True

    def _give(self, consumer: Consumer) -> None:
        _, topic, offset = heappop(self._ready)
        one = self.places[topic].open[offset]
        one.thing = self._next
        self._next += 1
        self._things[one.thing] = (topic, offset)
        self.demands.assign(consumer, one.thing, one.size, one.tries + 1)

    def _first(self) -> OpenEvent:
        _, topic, offset = self._ready[0]
        return self.places[topic].open[offset]

    def told(self, thing: int) -> tuple[Sequence[Handle], bytes]:
        return (), _encode(Told(*self._things[thing]))

    # Questions.

    def place_of(self, thing: int) -> tuple[str, int]:
        """Topic and offset of an assignment."""
        return self._things[thing]

    def wants(self, topic: str) -> bool:
        return any(matches(pattern, topic) for pattern in self.patterns)

    def seen(self, topic: str) -> int:
        """The offset from which the topic is to be read on."""
        place = self.places.get(topic)
        return 0 if place is None else place.seen

    @property
    def hungry(self) -> int:
        """How many more events the group should be shown now."""
        if len(self._ready) >= READY_LOW or not self.demands.waiting_count():
            return 0
        return max(OPEN_MAX - self._open, 0)

    def gauges(self) -> dict[str, int]:
        consumers = self.demands.consumers.values()
        held = sum(len(one.held) for one in consumers)
        return {"consumers": len(consumers), "held": held, "dead": len(self.dead)}

    def query(self, question: bytes) -> bytes:
        return _encode(self.standing())

    def standing(self) -> Standing:
        positions = [
            Position(topic, place.settled, place.seen, len(place.open)) for topic, place in sorted(self.places.items())
        ]
        consumers = self.demands.consumers.values()
        held = sum(len(one.held) for one in consumers)
        return Standing(list(self.patterns), len(consumers), held, positions, list(self.dead))

    # Snapshots.

    def part_names(self) -> list[str]:
        return ["group", *self.demands.part_names()]

    def encode_part(self, name: str) -> bytes:
        if name.startswith("demand/"):
            return self.demands.encode_part(name)
        places = [(topic, place.seen, sorted(place.open.items())) for topic, place in sorted(self.places.items())]
        return _encode((self.patterns, self.where, self.tries_max, self._next, self.dead, places))

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        for name, data in parts:
            if name.startswith("demand/"):
                self.demands.restore_part(name, data)
                continue
            self.patterns, self.where, self.tries_max, self._next, self.dead, places = msgspec.msgpack.decode(
                data, type=_Saved
            )
            for topic, seen, some in places:
                self.places[topic] = Place(seen, dict(some))
        self.demands.restored()
        self._derive()

    def _derive(self) -> None:
        """Compute the derived tables."""
        opens = [
            (one.order, topic, offset, one)
            for topic, place in self.places.items()
            for offset, one in place.open.items()
        ]
        self._open = len(opens)
        for order, topic, offset, one in sorted(opens, key=lambda found: found[0]):
            first = self._is_first(topic, offset, one.key)
            if one.thing:
                self._things[one.thing] = (topic, offset)
            elif first:
                heappush(self._ready, (order, topic, offset))

    def validate(self) -> None:
        """For tests."""
        self.demands.validate()
        held = {thing for consumer in self.demands.consumers.values() for thing in consumer.held}
        opens = {(topic, offset): one for topic, place in self.places.items() for offset, one in place.open.items()}
        assert held == set(self._things) == {one.thing for one in opens.values() if one.thing}
        assert self._open == len(opens) and len(self.dead) <= DEAD_MAX
        assert all(opens[at].thing == thing for thing, at in self._things.items())
        assert all(offset < self.places[topic].seen for topic, offset in opens)
        ready = {(topic, offset) for _, topic, offset in self._ready}
        assert len(ready) == len(self._ready)
        for at, one in opens.items():
            first = not one.key or self._keys[at[0], one.key][0] == at[1]
            assert (at in ready) == (first and not one.thing), "ready are those that nobody holds, the first of a key"
            assert first or not one.thing, "a later event of a key is held"
        assert not self._ready or not self.demands.waiting_count() or not self._fits_somebody()

    def _fits_somebody(self) -> bool:
        return self.demands.next(size=self._first().size) is not None


_Saved = tuple[list[str], str, int, int, list[Dead], list[tuple[str, int, list[tuple[int, OpenEvent]]]]]
