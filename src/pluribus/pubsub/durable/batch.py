"""A packed batch: many events of one publisher and one topic, in columns. It is packed once, by the publisher.

The same bytes are the command in the keepers' log, the row on disk, the answer to a reader, and the columns that a
data frame is made of. Nobody on the way looks at an event. Little-endian throughout::

    head       48 bytes: magic, version, flags, count, session, first sequence, sender, sizes
    topic      UTF-8, then the name of the bodies' type, if they have one; padded to 8 bytes
    times      int64 a event, microseconds since 1970, as the publisher's clock had it
    ends       int32, one more than events: where each body starts, and where the last one ends
    places     uint32 a event, only if some events of the batch were left out: which ones these are
    bodies     one after another, encoded as ``wire.bodies`` says
    extra      what only some events have, as msgpack: headers and parents

Event ``i`` has the identity (session, first + i). The first byte is one that no msgpack begins with, so a batch is told
from other commands by it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...core.errors import BadInput, MalformedFrame, TooLarge
from ...core.ids import MessageId
from ...core.limits import DURABLE_BATCH_BYTES_MAX, NAME_CHARS_MAX
from ...wire.bodies import BYTES, DATA, Kind, array_header, decode_bodies

if TYPE_CHECKING:  # loaded by those who look at columns
    import numpy as np
    from numpy.typing import NDArray

MAGIC, VERSION = 0xC1, 1
EXTRA, PLACES = 1, 2
_HEAD = struct.Struct("<BBHIqqqIIHHHH")
HEAD_BYTES = _HEAD.size
EVENTS_MAX = 1 << 20
"""Events in one batch."""
SMALL_EVENTS = 1_024
"""Columns of so many are remembered: a longer one takes little of the time of its batch, and much memory."""


class Extra(msgspec.Struct, array_like=True):
    """What few events have; lists are as long as the batch, or empty."""

    headers: list[dict[str, Any] | None] = []
    parents: list[MessageId | None] = []


class Head(NamedTuple):
    """What there is to know of a batch without looking at its events."""

    magic: int
    version: int
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
    unused: int

    @property
    def last(self) -> int:
        return self.first + self.events - 1


_extra = msgspec.msgpack.Decoder(Extra)
_encode = msgspec.msgpack.Encoder().encode


def is_batch(command: bytes) -> bool:
    return command[:1] == b"\xc1"


def pack(
    topic: str,
    session: int,
    first: int,
    sender: int,
    kind: Kind,
    times: Sequence[int],
    bodies: Sequence[bytes],
    headers: Sequence[dict[str, Any] | None] = (),
    parents: Sequence[MessageId | None] = (),
    each: int = 0,
) -> bytes:
    """A batch of these events, whose bodies are encoded and of one kind. ``each`` is how long every one of them is, if
    they are alike and the caller knows it."""
    small = len(bodies) <= SMALL_EVENTS
    ends = _even(each, len(bodies)) if each and small else array("i", accumulate(map(len, bodies), initial=0))
    extra = b""
    if any(headers) or any(parents):
        extra = _encode(Extra(list(headers) if any(headers) else [], list(parents) if any(parents) else []))
    return _join(topic, session, first, sender, kind, _times(times), ends, None, b"".join(bodies), extra)


@lru_cache(maxsize=32)
def _even(each: int, count: int) -> array[int]:
    """Where so many bodies of one length end. Who publishes asks for the same again and again; nobody changes it."""
    return array("i", range(0, each * count + 1, each))


def _times(times: Sequence[int]) -> array[int]:
    return times if isinstance(times, array) else array("q", times)


def pack_columns(
    topic: str, session: int, first: int, sender: int, kind: Kind, times: bytes, ends: bytes, bodies: bytes | memoryview
) -> bytes:
    """As ``pack``, of columns that are there already, little-endian, as this file's head describes them."""
    return _packed(topic, session, first, sender, kind, len(times) // 8, 0, [times, ends], bodies, b"")


def _join(
    topic: str,
    session: int,
    first: int,
    sender: int,
    kind: Kind,
    times: array[int],
    ends: array[int],
    places: array[int] | None,
    bodies: bytes,
    extra: bytes,
) -> bytes:
    flags = (EXTRA if extra else 0) | (PLACES if places is not None else 0)
    columns = [_little(column) for column in ((times, ends) if places is None else (times, ends, places))]
    return _packed(topic, session, first, sender, kind, len(times), flags, columns, bodies, extra)


def _packed(
    topic: str,
    session: int,
    first: int,
    sender: int,
    kind: Kind,
    count: int,
    flags: int,
    columns: list[bytes],
    bodies: bytes | memoryview,
    extra: bytes,
) -> bytes:
    name = kind.encode() if isinstance(kind, str) else b""
    number = kind if isinstance(kind, int) else 0
    named = topic.encode()
    sizes = (len(bodies), len(extra), len(named), len(name), number, 0)
    head = _HEAD.pack(MAGIC, VERSION, flags, count, session, first, sender, *sizes)
    packed = b"".join([head, named, name, bytes(-(len(named) + len(name)) % 8), *columns, bodies, extra])
    if len(packed) > DURABLE_BATCH_BYTES_MAX:
        raise TooLarge(f"a batch of {len(packed):,} bytes: the limit is {DURABLE_BATCH_BYTES_MAX:,}; publish fewer")
    return packed


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def head_of(command: bytes) -> Head:
    """Of what ``is_batch`` says is one; ``MalformedFrame`` if its parts do not add up."""
    if len(command) < HEAD_BYTES:
        raise MalformedFrame(f"{len(command)} bytes are no batch of events")
    head = Head._make(_HEAD.unpack_from(command))
    if head.magic != MAGIC or head.version != VERSION:
        raise MalformedFrame(f"a batch of version {head.version}: this release reads {VERSION}")
    wanted = columns_at(head) + columns_bytes(head) + head.bodies_bytes + head.extra_bytes
    if wanted != len(command) or not 0 < head.events <= EVENTS_MAX or head.topic_bytes == 0 or head.first < 1:
        raise MalformedFrame(f"a batch of {head.events} events in {len(command)} bytes, not {wanted}")
    return head


def columns_at(head: Head) -> int:
    names = head.topic_bytes + head.name_bytes
    return HEAD_BYTES + names + -names % 8


def columns_bytes(head: Head) -> int:
    return head.events * (16 if head.flags & PLACES else 12) + 4


def topic_of(command: bytes, head: Head) -> bytes:
    return command[HEAD_BYTES : HEAD_BYTES + head.topic_bytes]


def latest_of(command: bytes, head: Head) -> int:
    """The latest time in it; publishers' clocks may go back, so it need not be the last."""
    at = columns_at(head)
    first, last = (
        struct.unpack_from("<q", command, at)[0],
        struct.unpack_from("<q", command, at + 8 * head.events - 8)[0],
    )
    if first == last:  # the usual case: one turn of one publisher
        return int(first)
    times: tuple[int, ...] = struct.unpack_from(f"<{head.events}q", command, at)
    return max(times)


def checked(command: bytes) -> Head:
    """Everything about a batch that a stranger sent: nothing that is read of it later may fail."""
    head = head_of(command)
    batch = Batch(command, 0)
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
    if any(len(column) not in (0, head.events) for column in (extra.headers, extra.parents)):
        raise MalformedFrame(f"a batch of {topic!r} with columns that are not as long as it is")
    return head


class Batch:
    """A batch to look into. ``offset`` is that of its first event in the topic. Columns are views of its bytes."""

    __slots__ = ("_columns", "data", "head", "offset")

    def __init__(self, data: bytes, offset: int) -> None:
        self.data = data
        self.head = head_of(data)
        self.offset = offset
        """Of event 0, were none left out."""
        self._columns = columns_at(self.head)

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

        return np.frombuffer(self.data, "<i8", self.head.events, self._columns)

    @property
    def ends(self) -> NDArray[np.int32]:
        """One more than events; body ``i`` is ``bodies[ends[i]:ends[i + 1]]``: the offsets of an Arrow binary array."""
        import numpy as np

        return np.frombuffer(self.data, "<i4", self.head.events + 1, self._columns + 8 * self.head.events)

    @property
    def places(self) -> NDArray[np.uint32] | None:
        """Which events of the batch these are; None if it is all of them."""
        import numpy as np

        head = self.head
        if not head.flags & PLACES:
            return None
        return np.frombuffer(self.data, "<u4", head.events, self._columns + 12 * head.events + 4)

    @property
    def offsets(self) -> NDArray[np.int64]:
        import numpy as np

        places = self.places
        return self.offset + (np.arange(self.head.events, dtype="i8") if places is None else places.astype("i8"))

    @property
    def sequences(self) -> NDArray[np.int64]:
        """With the session, the identities of the events."""
        return self.offsets - self.offset + self.head.first

    @property
    def bodies(self) -> memoryview:
        """All of them, one after another."""
        at = self._columns + columns_bytes(self.head)
        return memoryview(self.data)[at : at + self.head.bodies_bytes]

    @property
    def extra(self) -> Extra:
        head = self.head
        return (
            _extra.decode(memoryview(self.data)[len(self.data) - head.extra_bytes :]) if head.extra_bytes else Extra()
        )

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

    def cut(self, start: int, stop: int) -> Batch:
        """The events with offsets from ``start`` up to ``stop``; itself if that is all of them."""
        if start <= self.offset and stop >= self.end:
            return self
        offsets = self.offsets
        low, high = (int(at) for at in offsets.searchsorted([start, stop]))
        return self.chosen(range(low, high))

    def chosen(self, which: Sequence[int], bodies: bool = True) -> Batch:
        """Only these events, by their place in ``times``; ``bodies=False`` leaves their bodies out."""
        if not len(which):
            raise BadInput("a batch has at least one event: leave it out instead")
        ends, data, places = self.ends.tolist(), self.bodies, self.places
        parts = [data[ends[i] : ends[i + 1]] if bodies else b"" for i in which]
        extra = self.extra
        kept = Extra([extra.headers[i] for i in which] if extra.headers else [])
        kept.parents = [extra.parents[i] for i in which] if extra.parents else []
        times = self.times.tolist()
        head = self.head
        packed = _join(
            self.topic,
            head.session,
            head.first,
            head.sender,
            self.kind,
            array("q", [times[i] for i in which]),
            array("i", accumulate(map(len, parts), initial=0)),
            array("I", which if places is None else [int(places[i]) for i in which]),
            b"".join(parts),
            _encode(kept) if kept.headers or kept.parents else b"",
        )
        return Batch(packed, self.offset)
