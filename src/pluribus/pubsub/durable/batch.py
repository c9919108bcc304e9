"""A packed batch: many events of one publisher and one topic, in columns. It is packed once, by the publisher.

The same bytes are the command in the keepers' log, the row on disk, the answer to a reader, and the columns that a
data frame is made of. Nobody on the way looks at an event. Little-endian throughout::

    head       48 bytes: magic, version, flags, count, session, first sequence, sender, sizes
    topic      UTF-8, then the name of the bodies' type, if they have one; padded to 8 bytes
    times      int64 a event, microseconds since 1970, as the publisher's clock had it; one for all if they are alike
    ends       int32, one more than events: where each body starts, and where the last one ends; none if all bodies are
               of one length and not empty, which the head tells
    places     uint32 a event, only if some events of the batch were left out: which ones these are
    bodies     one after another, encoded as ``wire.bodies`` says
    extra      what only some events have, as msgpack: headers, parents; and identities (one by one, or in runs) and
               senders, where the batch is a copy of events of several publishers

Event ``i`` has the identity (session, first + i), unless ``extra`` says otherwise. The first byte is one that no
msgpack begins with, so a batch is told from other commands by it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..._speed.packing import Outline, pack_plain
from ...core.errors import BadInput, MalformedFrame, TooLarge
from ...core.ids import MessageId
from ...core.limits import DURABLE_BATCH_BYTES_MAX, NAME_CHARS_MAX
from ...wire.bodies import BYTES, DATA, Kind, array_header, decode_bodies

if TYPE_CHECKING:  # loaded by those who look at columns
    import numpy as np
    from numpy.typing import NDArray

MAGIC, VERSION = 0xC1, 1
EXTRA, PLACES, ONE_TIME, EVEN = 1, 2, 4, 8
_FLAGS = EXTRA | PLACES | ONE_TIME | EVEN
_HEAD = struct.Struct("<BBHIqqqIIHHHH")
HEAD_BYTES = _HEAD.size
Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
EVENTS_MAX = 1 << 20
"""Events in one batch."""


class StoredExtra(msgspec.Struct, array_like=True):
    """Things that few events have; each list is as long as the batch, or empty."""

    headers: list[dict[str, Any] | None] = []
    parents: list[MessageId | None] = []
    ids: list[tuple[Long, Long]] = []
    senders: list[Long] = []
    runs: list[tuple[Long, Long, int]] = []
    """In the place of ``ids``: sessions, first numbers, and how many numbers follow each other from there."""


class StoredBatchHead(msgspec.Struct, frozen=True, gc=False):
    """What can be known of a batch without decoding its events."""

    flags: int
    events: int
    session: int
    first: int
    sender: int
    bodies_bytes: int
    extra_bytes: int
    topic_bytes: int
    name_bytes: int
    kind: int
    columns: int
    """Where they begin."""

    @property
    def last(self) -> int:
        return self.first + self.events - 1


_extra = msgspec.msgpack.Decoder(StoredExtra)
_encode = msgspec.msgpack.Encoder().encode


def is_batch(command: bytes) -> bool:
    return command[:1] == b"\xc1"


def pack(
    topic: str,
    session: int,
    first: int,
    sender: int,
    kind: Kind,
    times: Sequence[int] | int,
    bodies: Sequence[bytes | memoryview],
    headers: Sequence[dict[str, Any] | None] = (),
    parents: Sequence[MessageId | None] = (),
    places: array[int] | None = None,
    ids: Sequence[MessageId] = (),
    senders: Sequence[int] = (),
) -> bytes:
    """A batch of these events, whose bodies are encoded and of one kind; a single time is that of all. ``ids`` and
    ``senders`` are those of copies, in the place of ``session``, ``first`` and ``sender``."""
    extras = any(headers) or any(parents) or len(ids) or len(senders)
    if isinstance(times, int) and not extras and places is None:
        packed = pack_plain(topic, session, first, sender, kind, times, bodies)
        if packed is not None:
            return packed
    extra = b""
    if extras:
        rare = (list(headers) if any(headers) else [], list(parents) if any(parents) else [])
        extra = _encode(StoredExtra(*rare, list(ids), list(senders)))
    if not isinstance(times, int) and min(times) == max(times):
        times = times[0]
    sizes = [*map(len, bodies)]
    even = sizes[0] > 0 and sizes.count(sizes[0]) == len(sizes)
    ends = None if even else _little(array("i", accumulate(sizes, initial=0)))
    return _packed(
        topic,
        session,
        first,
        sender,
        kind,
        len(bodies),
        times if isinstance(times, int) else _little(array("q", times)),
        ends,
        None if places is None else _little(places),
        b"".join(bodies),
        extra,
    )


def pack_columns(
    topic: str,
    session: int,
    first: int,
    sender: int,
    kind: Kind,
    times: bytes | int,
    ends: bytes | None,
    bodies: bytes | memoryview,
    extra: StoredExtra | None = None,
    events: int = 0,
) -> bytes:
    """As ``pack``, of columns that are there already, little-endian, as this file's head describes them. Without
    ``ends``, ``events`` says how many bodies of one length these are."""
    count = events if ends is None else len(ends) // 4 - 1
    told = b"" if extra is None else _encode(extra)
    return _packed(topic, session, first, sender, kind, count, times, ends, None, bodies, told)


def _packed(
    topic: str,
    session: int,
    first: int,
    sender: int,
    kind: Kind,
    count: int,
    times: bytes | int,
    ends: bytes | None,
    places: bytes | None,
    bodies: bytes | memoryview,
    extra: bytes,
) -> bytes:
    flags = (EXTRA if extra else 0) | (0 if places is None else PLACES) | (EVEN if ends is None else 0)
    if isinstance(times, int):
        flags |= ONE_TIME
        times = times.to_bytes(8, "little", signed=True)
    name = kind.encode() if isinstance(kind, str) else b""
    number = kind if isinstance(kind, int) else 0
    named = topic.encode()
    sizes = (len(bodies), len(extra), len(named), len(name), number, 0)
    head = _HEAD.pack(MAGIC, VERSION, flags, count, session, first, sender, *sizes)
    padding = bytes(-(len(named) + len(name)) % 8)
    packed = b"".join([head, named, name, padding, times, ends or b"", places or b"", bodies, extra])
    if len(packed) > DURABLE_BATCH_BYTES_MAX:
        raise TooLarge(f"a batch of {len(packed):,} bytes: the limit is {DURABLE_BATCH_BYTES_MAX:,}; publish fewer")
    return packed


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def head_of(command: bytes) -> StoredBatchHead:
    """Of what ``is_batch`` says is one; ``MalformedFrame`` if its parts do not add up."""
    if len(command) < HEAD_BYTES:
        raise MalformedFrame(f"{len(command)} bytes are no batch of events")
    magic, version, flags, events, session, first, sender, *sizes, kind, _ = _HEAD.unpack_from(command)
    if magic != MAGIC or version != VERSION or flags > _FLAGS:
        raise MalformedFrame(f"a batch of version {version}.{flags}: this release reads {VERSION}.{_FLAGS}")
    bodies_bytes, extra_bytes, topic_bytes, name_bytes = sizes
    names = topic_bytes + name_bytes
    columns = HEAD_BYTES + names + -names % 8
    head = StoredBatchHead(
        flags, events, session, first, sender, bodies_bytes, extra_bytes, topic_bytes, name_bytes, kind, columns
    )
    wanted = head.columns + columns_bytes(head) + bodies_bytes + extra_bytes
    if wanted != len(command) or not 0 < events <= EVENTS_MAX or topic_bytes == 0 or first < 1:
        raise MalformedFrame(f"a batch of {events} events in {len(command)} bytes, not {wanted}")
    if flags & EVEN and (not bodies_bytes or bodies_bytes % events):
        raise MalformedFrame(f"a batch of {events} events of one length in {bodies_bytes} bytes")
    return head


def columns_bytes(head: StoredBatchHead) -> int:
    flags, events = head.flags, head.events
    times = 8 if flags & ONE_TIME else 8 * events
    ends = 0 if flags & EVEN else 4 * events + 4
    return times + ends + (4 * events if flags & PLACES else 0)


def topic_of(command: bytes, head: StoredBatchHead) -> bytes:
    return command[HEAD_BYTES : HEAD_BYTES + head.topic_bytes]


def latest_of(command: bytes, head: StoredBatchHead) -> int:
    """The latest time in it; publishers' clocks may go back, so it need not be the last."""
    at = head.columns
    if head.flags & ONE_TIME:
        return int.from_bytes(command[at : at + 8], "little", signed=True)
    times: tuple[int, ...] = struct.unpack_from(f"<{head.events}q", command, at)
    return max(times)


def outline_of(command: bytes) -> Outline:
    """What a state machine wants to know of a batch."""
    head = head_of(command)
    return head.session, head.first, head.last, head.events, topic_of(command, head), latest_of(command, head)


def checked(command: bytes) -> StoredBatchHead:
    """Check all of a batch that came from outside, so that nothing read from it later can fail."""
    head = head_of(command)
    batch = StoredBatch(command, 0)
    try:
        topic, name = topic_of(command, head).decode(), batch.kind
        ends = batch.ends
        extra = batch.extra
    except (UnicodeError, msgspec.MsgspecError) as error:
        raise MalformedFrame(f"a batch that cannot be read: {error}") from None
    if len(topic) > NAME_CHARS_MAX * 2 or (isinstance(name, str) and len(name) > NAME_CHARS_MAX):
        raise MalformedFrame(f"a batch of the topic {topic[:NAME_CHARS_MAX]!r}: its names are too long")
    if int(ends[0]) != 0 or int(ends[-1]) != head.bodies_bytes or bool((ends[1:] < ends[:-1]).any()):
        raise MalformedFrame(f"a batch of {topic!r} whose bodies do not add up to {head.bodies_bytes} bytes")
    columns: tuple[list[Any], ...] = (extra.headers, extra.parents, extra.ids, extra.senders)
    if any(len(column) not in (0, head.events) for column in columns):
        raise MalformedFrame(f"a batch of {topic!r} with columns that are not as long as it is")
    return head


class StoredBatch:
    """A batch to look into. ``offset`` is that of its first event in the topic. Columns are views of its bytes."""

    __slots__ = ("data", "head", "offset")

    def __init__(self, data: bytes, offset: int) -> None:
        self.data = data
        self.head = head_of(data)
        self.offset = offset
        """Of event 0, were none left out."""

    def __len__(self) -> int:
        return self.head.events

    @property
    def topic(self) -> str:
        return topic_of(self.data, self.head).decode()

    @property
    def kind(self) -> Kind:
        head = self.head
        at = HEAD_BYTES + head.topic_bytes
        return self.data[at : at + head.name_bytes].decode() if head.name_bytes else head.kind

    @property
    def times(self) -> NDArray[np.int64]:
        """Microseconds since 1970."""
        import numpy as np

        head = self.head
        if head.flags & ONE_TIME:
            return np.full(head.events, latest_of(self.data, head), "<i8")
        return np.frombuffer(self.data, "<i8", head.events, head.columns)

    @property
    def ends(self) -> NDArray[np.int32]:
        """One more than events; body ``i`` is ``bodies[ends[i]:ends[i + 1]]``: the offsets of an Arrow binary array."""
        import numpy as np

        head = self.head
        if head.flags & EVEN:
            return np.arange(head.events + 1, dtype="<i4") * np.int32(head.bodies_bytes // head.events)
        times = 8 if head.flags & ONE_TIME else 8 * head.events
        return np.frombuffer(self.data, "<i4", head.events + 1, head.columns + times)

    @property
    def places(self) -> NDArray[np.uint32] | None:
        """Which events of the batch these are; None if it is all of them."""
        import numpy as np

        head = self.head
        if not head.flags & PLACES:
            return None
        at = head.columns + columns_bytes(head) - 4 * head.events
        return np.frombuffer(self.data, "<u4", head.events, at)

    @property
    def offsets(self) -> NDArray[np.int64]:
        import numpy as np

        places = self.places
        return self.offset + (np.arange(self.head.events, dtype="i8") if places is None else places.astype("i8"))

    @property
    def sequences(self) -> NDArray[np.int64]:
        """The sequences of the events. Session and sequence are an event's identity, unless ``extra.ids`` has
        others."""
        return self.offsets - self.offset + self.head.first

    @property
    def bodies(self) -> memoryview:
        """All of them, one after another."""
        head = self.head
        at = head.columns + columns_bytes(head)
        return memoryview(self.data)[at : at + head.bodies_bytes]

    @property
    def extra(self) -> StoredExtra:
        """With identities one by one."""
        head = self.head
        if not head.extra_bytes:
            return StoredExtra()
        found = _extra.decode(memoryview(self.data)[len(self.data) - head.extra_bytes :])
        if found.runs:
            counts = [count for _, _, count in found.runs]
            if min(counts) < 1 or sum(counts) != head.events:
                raise MalformedFrame(f"a batch of {head.events} events with identities of {sum(counts)}")
            found.ids = [(session, first + at) for session, first, count in found.runs for at in range(count)]
            found.runs = []
        return found

    @property
    def end(self) -> int:
        """The offset behind its last event."""
        places = self.places
        return self.offset + (self.head.events if places is None else int(places[-1]) + 1)

    def decoded(self) -> list[Any]:
        """The bodies as the publisher had them."""
        kind, bodies = self.kind, self.bodies
        if kind == BYTES:
            ends = self.ends.tolist()
            return [bytes(bodies[start:end]) for start, end in pairwise(ends)]
        return decode_bodies(kind, msgspec.Raw(array_header(self.head.events) + bodies), self.head.events)

    def plain(self) -> list[Any]:
        """The bodies as plain data, whatever their type: what a filter looks at."""
        kind = self.kind
        if kind == BYTES:
            return self.decoded()
        return decode_bodies(DATA, msgspec.Raw(array_header(self.head.events) + self.bodies), self.head.events)

    def cut(self, start: int, stop: int) -> StoredBatch:
        """The events with offsets from ``start`` up to ``stop``; itself if that is all of them."""
        if start <= self.offset and stop >= self.end:
            return self
        offsets = self.offsets
        low, high = (int(at) for at in offsets.searchsorted([start, stop]))
        return self.chosen(range(low, high))

    def chosen(self, which: Sequence[int], bodies: bool = True) -> StoredBatch:
        """Only these events, by their place in ``times``; ``bodies=False`` leaves their bodies out."""
        if not len(which):
            raise BadInput("a batch has at least one event: leave it out instead")
        ends, data, places = self.ends.tolist(), self.bodies, self.places
        parts = [data[ends[i] : ends[i + 1]] if bodies else b"" for i in which]
        extra, times, head = self.extra, self.times.tolist(), self.head
        packed = pack(
            self.topic,
            head.session,
            head.first,
            head.sender,
            self.kind,
            [times[i] for i in which],
            parts,
            [extra.headers[i] for i in which] if extra.headers else (),
            [extra.parents[i] for i in which] if extra.parents else (),
            array("I", which if places is None else [int(places[i]) for i in which]),
            [extra.ids[i] for i in which] if extra.ids else (),
            [extra.senders[i] for i in which] if extra.senders else (),
        )
        return StoredBatch(packed, self.offset)
