"""How events travel: a batch of them is one message of a group.

Theory of operation
-------------------
A batch holds the events that one member published in a turn of its loop, or as many as fit a frame. It names its topics
once, and consists of *parts*: runs of events whose bodies are of one kind. A part says which topic each event has, in
one byte an event, or once for all events; its bodies stay encoded as one array. So a receiver

* looks up each topic of the batch once, not once an event;
* decodes the bodies of a part by one call, and not at all if no subscriber here wants the part;
* picks the events of some topics with C loops over bytes (``translate``, ``compress``).

Things that only some events have (headers, a parent, retaining) are listed by place beside the events, so plain events
need no room for them. Parts are in the order in which the events were published. The numbers of events are consecutive,
unless ``numbers`` lists them, in groups that carry only some of a member's events.

Everything that comes from outside is checked as it is decoded: what is wrong raises ``MalformedFrame`` and nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Annotated, Any

import msgspec

from .._speed.quick import OpenBatch
from ..core.errors import BadBody, MalformedFrame
from ..core.frame import NO_BODIES, Number, Position
from ..core.ids import MemberId, MessageId
from ..core.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    EXTRAS_PER_BATCH_MAX,
    FEW_MESSAGES,
    HEADERS_PER_EVENT_MAX,
    LONG_MESSAGE_BYTES,
    NAME_CHARS_MAX,
    SEGMENTS_MAX,
    TOPIC_CHARS_MAX,
    TOPICS_PER_BATCH_MAX,
)
from ..wire.bodies import BYTES, EVENTS, Kind, array_header, decode_bodies, join_bodies, receive_as, runs
from ..wire.codec import DECODE_ERRORS
from .event import NO_HEADERS, Event

Headers = dict[str, Any]
FEW = 4
"""If fewer than one in so many bodies of a part are wanted, only those are decoded."""

OVERHEAD_BYTES = 8
"""The most that a body costs besides its bytes: a msgpack header, its topic's place. With it a batch that fits a
datagram holds fewer than ``BATCH_MESSAGES_MAX`` events, however small they are."""
EXTRA_BYTES = 40
BATCH_BYTES = 200
"""The most bytes that a batch needs besides its events."""


class EventExtra(msgspec.Struct, array_like=True, frozen=True):
    """Optional things of an event: headers, parent, retaining."""

    headers: Annotated[Headers, msgspec.Meta(max_length=HEADERS_PER_EVENT_MAX)] = {}
    parent: tuple[Number, Position] | None = None
    retain: bool = False


PLAIN = EventExtra()
TIME_END = 253_402_300_800.0
"""Seconds from 1970 to the end of the year 9999, the last that calendars know."""


class Part(msgspec.Struct, array_like=True):
    """A run of events of one kind of body."""

    kind: Number | Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    count: Annotated[int, msgspec.Meta(ge=1, le=BATCH_MESSAGES_MAX)]
    of: Annotated[int, msgspec.Meta(ge=0, lt=TOPICS_PER_BATCH_MAX)] | bytes
    """Which of the batch's topics: that of all, or of each."""
    bodies: msgspec.Raw
    """An encoded array; in the process that published them a list, if they are bytes."""
    extras: Annotated[dict[Number, EventExtra], msgspec.Meta(max_length=EXTRAS_PER_BATCH_MAX)] = {}


class Batch(msgspec.Struct, array_like=True):
    sender: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    """The publisher; a member may pass on an event of a program outside of the bus."""
    first: Position
    time: float
    topics: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_CHARS_MAX)]],
        msgspec.Meta(min_length=1, max_length=TOPICS_PER_BATCH_MAX),
    ]
    parts: Annotated[list[Part], msgspec.Meta(min_length=1, max_length=BATCH_MESSAGES_MAX)]
    numbers: Annotated[list[Position], msgspec.Meta(max_length=BATCH_MESSAGES_MAX)] = []
    size: Number = 0
    """The size of the encoded batch without this number, as its publisher counted it."""

    def __len__(self) -> int:
        return self.size


receive_as(EVENTS, Batch)
_encode_headers = msgspec.msgpack.Encoder().encode
encode_batch = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Batch).decode
_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def decode_batch(data: bytes | memoryview) -> Batch:
    """The batch, its bodies still encoded; or ``MalformedFrame``."""
    try:
        return checked(_decode(data))
    except DECODE_ERRORS as error:
        raise MalformedFrame(f"not a batch of events: {error}") from None


def checked(batch: Batch) -> Batch:
    """The batch itself, if it is consistent; else ``MalformedFrame``."""
    topics = len(batch.topics)
    if not abs(batch.time) < TIME_END:  # nor is NaN: which of two values is later would depend on which came first
        raise MalformedFrame(f"a batch of the time {batch.time}, which no calendar has")
    for part in batch.parts:
        of = part.of
        known = of < topics if isinstance(of, int) else part.count == len(of) and max(of) < topics
        if not known:
            raise MalformedFrame("a part of a batch names topics that the batch has not")
    if batch.numbers and len(batch.numbers) != sum(part.count for part in batch.parts):
        raise MalformedFrame("a batch numbers other events than it has")
    return batch


def is_single(batch: Batch) -> bool:
    """Whether a batch is one plain event under its only topic, and consistent."""
    if len(batch.parts) > 1 or len(batch.topics) > 1 or batch.numbers:
        return False
    part = batch.parts[0]
    return part.count == 1 and part.of == 0 and not part.extras and abs(batch.time) < TIME_END


def single_event(batch: Batch) -> Event[Any]:
    """The event of such a batch; ``MalformedFrame`` if its body cannot be decoded."""
    part = batch.parts[0]
    (body,) = decode_bodies(part.kind, part.bodies, 1)
    sender = MemberId(batch.sender)
    return Event(body, sender, (sender, batch.first), batch.topics[0], batch.time)


def checked_headers(headers: Mapping[Any, Any]) -> Headers:
    """Headers as they can travel, or ``BadBody``."""
    if len(headers) > HEADERS_PER_EVENT_MAX:
        raise BadBody(f"{len(headers)} headers exceed {HEADERS_PER_EVENT_MAX}: put some of them into the body")
    for name in headers:
        if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX:
            raise BadBody(f"{name!r} is no name of a header: use 1 to {NAME_CHARS_MAX} characters")
    found = dict(headers)
    try:
        _encode_headers(found)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadBody(f"headers cannot travel ({error}): use texts, numbers, lists and dictionaries") from None
    return found


class Arrived:
    """A batch at a receiver: the parts as events, each made when first asked for, and once."""

    __slots__ = ("batch", "sender")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.sender = MemberId(batch.sender)

    def sections(self) -> Iterator[Section]:
        start = 0
        for part in self.batch.parts:
            yield Section(self, part, start)
            start += part.count


class Section:
    """A part of a batch, as readers use it."""

    __slots__ = ("_arrived", "_events", "_start", "part")

    def __init__(self, arrived: Arrived, part: Part, start: int) -> None:
        self._arrived = arrived
        self._start = start
        self._events: list[Event[Any]] | None = None
        self.part = part

    @property
    def topics(self) -> list[str]:
        return self._arrived.batch.topics

    def events(self) -> list[Event[Any]]:
        """All events; ``MalformedFrame`` if their bodies cannot be decoded."""
        if self._events is None:
            part = self.part
            bodies = decode_bodies(part.kind, part.bodies, part.count)
            self._events = list(self._made(bodies, self._ids(), self._topics_of(part.of)))
            self._add_extras(self._events, range(part.count))
        return self._events

    def picked(self, wanted: bytes) -> list[Event[Any]]:
        """The events with a 1 at their place in ``wanted``. If they are few, only their bodies are decoded."""
        number = wanted.count(1)
        part = self.part
        encoded: Any = part.bodies
        if self._events is not None or isinstance(encoded, list) or number * FEW >= part.count:
            return list(compress(self.events(), wanted))
        try:
            raws = _decode_raw(encoded)
        except DECODE_ERRORS as error:
            raise MalformedFrame(f"bodies that are no array: {error}") from None
        if len(raws) != part.count:
            raise MalformedFrame(f"{len(raws)} bodies where a part says {part.count}")
        some = msgspec.Raw(array_header(number) + b"".join(compress(raws, wanted)))
        bodies = decode_bodies(part.kind, some, number)
        of = part.of if isinstance(part.of, int) else bytes(compress(part.of, wanted))
        events = list(self._made(bodies, compress(self._ids(), wanted), self._topics_of(of)))
        if part.extras:
            self._add_extras(events, list(compress(range(part.count), wanted)))
        return events

    def _made(self, bodies: list[Any], ids: Iterable[MessageId], topics: Iterable[str]) -> Iterator[Event[Any]]:
        arrived = self._arrived
        return map(Event, bodies, repeat(arrived.sender), ids, topics, repeat(arrived.batch.time))

    def _ids(self) -> Iterator[MessageId]:
        batch, start = self._arrived.batch, self._start
        if batch.numbers:
            return zip(repeat(self._arrived.sender), batch.numbers[start : start + self.part.count])
        first = batch.first + start
        return zip(repeat(self._arrived.sender), range(first, first + self.part.count))

    def _topics_of(self, of: int | bytes) -> Iterable[str]:
        topics = self._arrived.batch.topics
        return repeat(topics[of]) if isinstance(of, int) else map(topics.__getitem__, of)

    def _add_extras(self, events: list[Event[Any]], places: Sequence[int]) -> None:
        extras = self.part.extras
        if not extras:
            return
        for event, place in zip(events, places, strict=True):
            extra = extras.get(place)
            if extra is not None:
                event.headers = extra.headers or NO_HEADERS
                event.parent = extra.parent

    def single(self, place: int) -> Batch:
        """A batch with only this event. Its body is checked when it is read."""
        part, batch = self.part, self._arrived.batch
        encoded: Any = part.bodies
        try:
            if isinstance(encoded, list):
                encoded = [encoded[place]]
            else:
                encoded = msgspec.Raw(array_header(1) + bytes(_decode_raw(encoded)[place]))
        except (*DECODE_ERRORS, IndexError) as error:
            raise MalformedFrame(f"bodies that are not what their part says: {error}") from None
        topic = batch.topics[part.of if isinstance(part.of, int) else part.of[place]]
        at = self._start + place
        number = batch.numbers[at] if batch.numbers else batch.first + at
        extras = {0: part.extras[place]} if place in part.extras else {}
        alone = Part(part.kind, 1, 0, encoded, extras)
        return Batch(batch.sender, number, batch.time, [topic], [alone])


class Gathering(OpenBatch):
    """The publisher's open batch. Between two closings publishing an event is one or two appends, which the runtime's
    ``publish`` makes itself: ``ids`` has an identity for every event that the batch still takes, as long as no body is
    longer than ``alike``. Sizes are added up when they are needed.

    A batch holds as many events as fit a frame. A few long plain events of one topic may need several frames, and are
    then several batches, so that several frames share the cost of closing a batch."""

    __slots__ = (
        "_before",
        "_extras",
        "_first",
        "_kind",
        "_largest",
        "_left",
        "_long",
        "_longest",
        "_me",
        "_more",
        "_numbers",
        "_parts",
        "_sender",
        "_size",
        "_time",
        "_topics",
        "_weighed",
    )

    def __init__(self, sender: int, largest_bytes: int, first: int = 0, long_bytes: int = 0) -> None:
        """A batch fits ``largest_bytes``; one of a few long events ``long_bytes``, if that is more."""
        self._sender = int(sender)
        self._me = MemberId(sender)
        assert largest_bytes // OVERHEAD_BYTES < BATCH_MESSAGES_MAX
        self._largest = largest_bytes - BATCH_BYTES
        self._long = max(largest_bytes, long_bytes) - BATCH_BYTES
        self._more = max(min(largest_bytes * SEGMENTS_MAX, BATCH_BYTES_MAX) - largest_bytes, 0)
        """What a few long events may weigh beyond it."""
        self._first = first
        self._clear([])

    def _clear(self, topics: list[str]) -> None:
        self._topics = topics
        self.places = {topic: place for place, topic in enumerate(topics)}
        """The places of the batch's topics. A batch begins with the topics of the one before, if that used most of its
        own: a program that publishes under many topics in turn finds them there."""
        self._parts: list[Part] = []
        self._numbers: list[int] = []
        self._time = 0.0
        self._before = 0
        """Events of the parts that are closed."""
        self._left = 0
        self._size = 0
        """Bytes of the encoded bodies that were added up already."""
        self._longest = 0
        """No body of the batch is longer."""
        self.alike = -1
        """The longest body that may be appended; if there is no more of ``ids``, none."""
        self.ids = iter(())
        self.solo = None
        """The one topic of the open part, while it is one."""
        self.type = None
        """The type of the bodies of the open part, if all of that type are of its kind."""
        self._begin_part(BYTES)

    def _begin_part(self, kind: Kind) -> None:
        self._kind = kind
        self.pending = []
        self._weighed = 0
        self.of = bytearray()
        self._extras: dict[int, EventExtra] = {}

    @property
    def empty(self) -> bool:
        return not self.pending and not self._parts

    @property
    def left(self) -> int:
        """Bytes that the batch has room for."""
        unweighed = len(self.pending) - self._weighed
        if unweighed:
            sizes = list(map(len, self.pending[-unweighed:]))
            weight = sum(sizes)
            self._left -= weight + OVERHEAD_BYTES * unweighed
            self._size += weight + _headers_bytes(self._kind, sizes, self._longest)
            self._weighed += unweighed
        return self._left

    def fits(self, topic: str, size: int, kind: Kind | None = None, extra: EventExtra = PLAIN) -> bool:
        """Whether an event may join; an empty batch takes any."""
        if self.empty:
            return True
        if size < self._more_for(topic, size, kind, extra):
            return True
        room = len(self.places) < TOPICS_PER_BATCH_MAX or topic in self.places
        return room and size + OVERHEAD_BYTES + 4 * len(topic) + EXTRA_BYTES < self.left

    def _more_for(self, topic: str, size: int, kind: Kind | None, extra: EventExtra) -> int:
        """Bytes that the batch has room for if it may be several frames: such an event is like those before it."""
        plain = topic == self.solo and kind == self._kind and extra is PLAIN
        if plain and not (self._extras or self._parts or self._numbers) and len(self.pending) < FEW_MESSAGES:
            return self.left + self._more if max(size, self._longest) <= self._frame_bytes(self._long) else 0
        return 0

    def _frame_bytes(self, most: int) -> int:
        """What bodies have room for in a frame with these topics."""
        return most - sum(map(_topic_bytes, self._topics)) - OVERHEAD_BYTES

    def add(
        self,
        topic: str,
        kind: Kind,
        encoded: bytes,
        now: float,
        extra: EventExtra = PLAIN,
        number: int | None = None,
        typed: type | None = None,
    ) -> MessageId:
        """Append an event that fits. ``number`` is its own where the batch holds only some of the sender's events."""
        if self.empty:
            self._time = now
            self._left = self._largest - sum(map(_topic_bytes, self._topics))
        if kind != self._kind and self.pending:
            self._close_part()
        if not self.pending:
            self._kind = kind
        place = self.places.get(topic)
        if place is None:
            place = self.places[topic] = len(self._topics)
            self._topics.append(topic)
            self._left -= _topic_bytes(topic)
        if extra is not PLAIN:
            self._extras[len(self.pending)] = extra
            self._left -= EXTRA_BYTES + len(_encode_headers(extra.headers))
        if self.of or (self.pending and self.solo != topic):
            if not self.of:
                self._spread()
            self.of.append(place)
            self.solo = None
        elif not self.pending:
            self.solo = topic
        self.pending.append(encoded)
        self._longest = max(self._longest, len(encoded))
        self.type = typed
        if number is not None:
            self._numbers.append(number)
            return (self._sender, number)
        following = self._first + self._before + len(self.pending)
        self.alike = len(encoded)
        each = self.alike + OVERHEAD_BYTES
        places = max((self.left - 1) // each, 0)
        if places + len(self.pending) < FEW_MESSAGES:
            more = self._more_for(topic, self.alike, kind, extra)
            places = max(places, min((more - 1) // each, FEW_MESSAGES - len(self.pending)))
        self.ids = zip(repeat(self._me), range(following, following + places))
        return (self._me, following - 1)

    def single(self, topic: str, kind: Kind, encoded: bytes, now: float) -> Batch:
        """A batch of one plain event, without gathering: what ``add`` and ``close`` would make of an empty batch."""
        bodies: Any = [encoded] if kind == BYTES else join_bodies(kind, [encoded])
        batch = Batch(self._sender, self._first, now, [topic], [Part(kind, 1, 0, bodies)])
        batch.size = len(encode_batch(batch)) - 1
        self._first += 1
        return batch

    def _spread(self) -> None:
        """Change the open part from one topic for all events to a topic for each."""
        assert self.solo is not None
        self.of = bytearray([self.places[self.solo]]) * len(self.pending)

    def _close_part(self) -> None:
        bodies = self.pending
        self._left = self.left  # weighs what was not yet, before the next part begins
        self._before += len(bodies)
        encoded: Any = join_bodies(self._kind, bodies)
        self._size += len(array_header(len(bodies)))
        of: int | bytes = bytes(self.of) if self.of else self.places[self.solo or ""]
        self._parts.append(Part(self._kind, len(bodies), of, encoded, self._extras))
        self.solo = None
        self._begin_part(self._kind)

    def close(self) -> list[Batch]:
        """The gathered events, as batches that fit a frame each; the next batch begins."""
        if len(self.pending) > 1 and self.left < 0:
            return self._close_long()
        if self.pending:
            self._close_part()
        events = sum(part.count for part in self._parts)
        batch = self._batch(self._first, self._parts, self._size)
        if not self._numbers:
            self._first += events
        last = self._parts[-1].of
        again = isinstance(last, bytes) and 2 * len(set(last)) > len(self._topics)
        self._clear(self._topics.copy() if again else [])
        return [batch]

    def _close_long(self) -> list[Batch]:
        kind, of, batches = self._kind, self.places[self.solo or ""], []
        head_bytes = self._batch(0, [Part(kind, 1, of, NO_BODIES)], 0).size - 2
        long = self._size >= LONG_MESSAGE_BYTES * len(self.pending)
        for run, weight in runs(self.pending, self._frame_bytes(self._long if long else self._largest), OVERHEAD_BYTES):
            count, first = len(run), self._first
            part = Part(kind, count, of, join_bodies(kind, run))  # type: ignore[arg-type]
            weight += len(array_header(count)) + _headers_bytes(kind, [*map(len, run)], self._longest)
            size = weight + head_bytes + _number_bytes(first) + _number_bytes(count)
            batches.append(Batch(self._sender, first, self._time, self._topics, [part], [], size))
            self._first += count
        self._clear([])
        return batches

    def _batch(self, first: int, parts: list[Part], bodies_bytes: int) -> Batch:
        """A batch with its size filled in."""
        heads = [Part(part.kind, part.count, part.of, NO_BODIES, part.extras) for part in parts]
        batch = Batch(self._sender, first, self._time, self._topics, heads, self._numbers)
        batch.size = bodies_bytes + len(encode_batch(batch)) - 1 - len(parts)
        batch.parts = parts
        return batch


def _headers_bytes(kind: Kind, sizes: list[int], longest: int) -> int:
    """Bytes of msgpack headers for bodies of these sizes; bodies that are not plain bytes include theirs."""
    if kind != BYTES:
        return 0
    if longest < 256:
        return 2 * len(sizes)
    if longest < 1 << 16 and min(sizes) >= 256:
        return 3 * len(sizes)
    return sum([2 if size < 256 else 3 if size < 1 << 16 else 5 for size in sizes])


def _number_bytes(number: int) -> int:
    if number < 128:
        return 1
    if number < 1 << 16:
        return 2 if number < 256 else 3
    return 5 if number < 1 << 32 else 9


def _topic_bytes(topic: str) -> int:
    """The most that a topic takes."""
    return 4 * len(topic) + 5
