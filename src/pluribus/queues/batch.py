"""A packed batch of messages: what one sender sends together, packed once by the sender. Little-endian::

    head       44 bytes: magic, version, flags, count, session, first sequence, time, sizes, kind
    name       of the bodies' type, if it is a registered one, in UTF-8
    ends       uint32, one more than messages: where each body starts, and where the last one ends; none if all bodies
               are of one length and not empty
    bodies     one after another, encoded as ``wire.bodies`` says
    extra      what only some messages have, as msgpack

The same bytes are the command in the log and what is handed to the consumer. Message ``i`` has the sequence
``first + i``. The first byte is one that no msgpack begins with: it tells a batch from other commands.

A batch without ``extra`` is *plain*: its messages have the usual priority and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any

import msgspec

from ..core.errors import MalformedFrame, TooLarge
from ..core.limits import DURABLE_BATCH_BYTES_MAX, NAME_CHARS_MAX
from ..wire.bodies import Kind
from .words import PRIORITIES, Chain, Reason

MAGIC, VERSION = 0xC1, 1
EXTRA, EVEN = 1, 2
_HEAD = struct.Struct("<BBHIqqqIIHH")
HEAD_BYTES = _HEAD.size
MESSAGES_MAX = 1 << 16
"""Messages in one batch, at most."""
KEY_CHARS_MAX = 256
PROPERTIES_MAX = 64
PROPERTIES_BYTES_MAX = 8_192
"""Bytes of one encoded message, at most."""

Text = Annotated[str, msgspec.Meta(max_length=KEY_CHARS_MAX)]
Failure = Reason
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Priority = Annotated[int, msgspec.Meta(ge=0, lt=PRIORITIES)]


class BatchExtra(msgspec.Struct, array_like=True):
    """Columns as long as the batch; a column is empty if no message has a value in it."""

    priorities: list[Priority] = []
    ttls_us: list[Microseconds] = []
    delays_us: list[Microseconds] = []
    keys: list[Text] = []
    ids: list[Text] = []
    correlations: list[Text] = []
    replies: list[Text] = []
    properties: list[bytes] = []
    """Properties: each a dictionary of plain values, encoded; empty if a message has none."""
    uploads: list[tuple[int, int]] = []
    """Of long bodies, which were staged: the number of the upload, and the number of pieces."""
    failures: list[Failure] = []
    """The reasons why messages could not be transformed. Their bodies are as they were sent, and they are dead letters
    at once."""
    transformed: Chain = ""
    """The chain that made the bodies; not a column, but a value of the whole batch."""


COLUMNS = (
    "priorities",
    "ttls_us",
    "delays_us",
    "keys",
    "ids",
    "correlations",
    "replies",
    "properties",
    "uploads",
    "failures",
)


class QueueBatchHead(msgspec.Struct, frozen=True, gc=False):
    flags: int
    count: int
    session: int
    first: int
    time_us: int
    bodies_bytes: int
    extra_bytes: int
    name_bytes: int
    kind: int

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def bodies_at(self) -> int:
        return HEAD_BYTES + self.name_bytes + (0 if self.flags & EVEN else 4 * self.count + 4)


_extra = msgspec.msgpack.Decoder(BatchExtra)
_properties = msgspec.msgpack.Decoder(dict[str, bool | int | float | str | None])
_encode = msgspec.msgpack.Encoder().encode


def is_batch(command: bytes) -> bool:
    return command[:1] == b"\xc1"


def pack(
    session: int,
    first: int,
    time_us: int,
    kind: Kind,
    bodies: Sequence[bytes | memoryview],
    extra: BatchExtra | None = None,
) -> bytes:
    """A batch of encoded bodies of one kind."""
    sizes = [*map(len, bodies)]
    count = len(sizes)
    even = sizes[0] > 0 and sizes.count(sizes[0]) == count
    ends = b"" if even else struct.pack(f"<{count + 1}I", *accumulate(sizes, initial=0))
    name = kind.encode() if isinstance(kind, str) else b""
    more = b"" if extra is None else _encode(extra)
    flags = (EVEN if even else 0) | (EXTRA if more else 0)
    number = kind if isinstance(kind, int) else 0
    tail = (sum(sizes), len(more), len(name), number)
    packed = b"".join(
        [_HEAD.pack(MAGIC, VERSION, flags, count, session, first, time_us, *tail), name, ends, *bodies, more]
    )
    if len(packed) > DURABLE_BATCH_BYTES_MAX:
        raise TooLarge(f"a batch of {len(packed):,} bytes: the limit is {DURABLE_BATCH_BYTES_MAX:,}; send fewer")
    return packed


def head_of(command: bytes) -> QueueBatchHead:
    """The head of a command for which ``is_batch`` is true; ``MalformedFrame`` if its parts do not add up."""
    if len(command) < HEAD_BYTES:
        raise MalformedFrame(f"{len(command)} bytes are no batch of messages")
    magic, version, *rest = _HEAD.unpack_from(command)
    head = QueueBatchHead(*rest)
    if magic != MAGIC or version != VERSION or head.flags > (EXTRA | EVEN):
        raise MalformedFrame(f"a batch of version {version}.{head.flags}: this release reads {VERSION}.3")
    wanted = head.bodies_at + head.bodies_bytes + head.extra_bytes
    if wanted != len(command) or not 0 < head.count <= MESSAGES_MAX or head.first < 1 or head.session < 0:
        raise MalformedFrame(f"a batch of {head.count} messages in {len(command)} bytes, not {wanted}")
    if head.flags & EVEN and (not head.bodies_bytes or head.bodies_bytes % head.count):
        raise MalformedFrame(f"a batch of {head.count} messages of one length in {head.bodies_bytes} bytes")
    if bool(head.flags & EXTRA) != bool(head.extra_bytes):
        raise MalformedFrame("a batch that has something extra and does not say so")
    return head


def ends_of(command: bytes, head: QueueBatchHead) -> Sequence[int]:
    """Where each body starts, and where the last one ends, counted from the first body."""
    if head.flags & EVEN:
        size = head.bodies_bytes // head.count
        return range(0, head.bodies_bytes + 1, size)
    return struct.unpack_from(f"<{head.count + 1}I", command, HEAD_BYTES + head.name_bytes)


def extra_of(command: bytes, head: QueueBatchHead) -> BatchExtra:
    return _extra.decode(memoryview(command)[len(command) - head.extra_bytes :]) if head.extra_bytes else BatchExtra()


def kind_of(command: bytes, head: QueueBatchHead) -> Kind:
    return command[HEAD_BYTES : HEAD_BYTES + head.name_bytes].decode() if head.name_bytes else head.kind


def properties_of(encoded: bytes) -> dict[str, Any]:
    return _properties.decode(encoded)


def checked(command: bytes) -> QueueBatchHead:
    """Check a batch from outside completely: nothing that is read of it later may fail."""
    head = head_of(command)
    try:
        kind = kind_of(command, head)
        extra = extra_of(command, head)
        for encoded in extra.properties:
            if encoded and len(properties_of(encoded)) > PROPERTIES_MAX:
                raise MalformedFrame(f"a message with more than {PROPERTIES_MAX} properties")
            if len(encoded) > PROPERTIES_BYTES_MAX:
                raise MalformedFrame(f"a message with more than {PROPERTIES_BYTES_MAX:,} bytes of properties")
    except (UnicodeError, msgspec.MsgspecError) as error:
        raise MalformedFrame(f"a batch of messages that cannot be read: {error}") from None
    if isinstance(kind, str) and len(kind) > NAME_CHARS_MAX:
        raise MalformedFrame("a batch of messages of a type whose name is too long")
    ends = ends_of(command, head)
    if ends[0] != 0 or ends[-1] != head.bodies_bytes or any(b < a for a, b in pairwise(ends)):
        raise MalformedFrame(f"a batch whose bodies do not add up to {head.bodies_bytes} bytes")
    if any(len(getattr(extra, column)) not in (0, head.count) for column in COLUMNS):
        raise MalformedFrame("a batch with columns that are not as long as it is")
    return head


def bodies_of(command: bytes, head: QueueBatchHead) -> list[memoryview]:
    ends, data = ends_of(command, head), memoryview(command)[head.bodies_at :]
    return [data[start:end] for start, end in pairwise(ends)]


def chosen(command: bytes, which: Sequence[int]) -> bytes:
    """A batch of only these messages, given by their places. Its first sequence is that of the first of them."""
    head = head_of(command)
    ends, data = ends_of(command, head), memoryview(command)[head.bodies_at :]
    extra = None
    if head.extra_bytes:
        whole = extra_of(command, head)
        columns = [getattr(whole, column) for column in COLUMNS]
        made: list[Any] = [[column[at] for at in which] if column else [] for column in columns]
        extra = BatchExtra(*made)
    if isinstance(which, range) and extra is None and head.flags & EVEN:
        stretch = data[ends[which.start] : ends[which.stop]]
        name = command[HEAD_BYTES : HEAD_BYTES + head.name_bytes]
        sizes = (len(stretch), 0, head.name_bytes, head.kind)
        first = head.first + which.start
        fresh = _HEAD.pack(MAGIC, VERSION, EVEN, len(which), head.session, first, head.time_us, *sizes)
        return b"".join((fresh, name, stretch))
    bodies = [data[ends[at] : ends[at + 1]] for at in which]
    return pack(head.session, head.first + which[0], head.time_us, kind_of(command, head), bodies, extra)
