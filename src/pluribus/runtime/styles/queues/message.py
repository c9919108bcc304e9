"""A message as its consumer has it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ....core.errors import BadInput, PluribusError
from ....queues import batch, words
from ....wire.bodies import BYTES, Kind, array_header, decode_bodies

if TYPE_CHECKING:
    from .consumer import QueueConsumer

T = TypeVar("T")
Slice = tuple[batch.QueueBatchHead, list[Any]]
"""A plain batch: its head, and its bodies."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


class QueueMessage(Generic[T]):
    """Settle it once: ``ack``, ``nack`` or ``reject``. ``LeaseEnded``: this consumer does not hold the message any
    more."""

    __slots__ = (
        "_consumer",
        "assignment",
        "body",
        "correlation",
        "deliveries",
        "id",
        "key",
        "number",
        "priority",
        "properties",
        "reply_to",
        "sent",
        "settled",
        "ttl",
    )

    def __init__(
        self, consumer: QueueConsumer | None, number: int, deliveries: int, packed: bytes, long: bytes | None
    ) -> None:
        head = batch.head_of(packed)
        self._consumer = consumer
        self.assignment = 0
        self.number = number
        """The number of the message in its queue."""
        self.deliveries = deliveries
        """How many times the message was delivered, this time included."""
        self.settled = False
        self.sent = head.time_us / 1e6
        """When it was sent, by the clock of the sender, in seconds since 1970."""
        body = bytes(batch.bodies_of(packed, head)[0]) if long is None else long
        kind = batch.kind_of(packed, head)
        self.body: T = body if kind == BYTES else decode_bodies(kind, msgspec.Raw(array_header(1) + body), 1)[0]  # type: ignore[assignment]
        self.priority = words.PRIORITY
        self.key = self.correlation = self.reply_to = ""
        self.id = f"{head.session:x}-{head.first}"
        """The ``id`` that the sender gave, or one that was made for it."""
        self.properties: Mapping[str, Any] = NOTHING
        self.ttl = 0.0
        """The time to live in seconds that its sender gave; 0: no end."""
        if head.extra_bytes:
            extra = batch.extra_of(packed, head)
            self.priority = extra.priorities[0] if extra.priorities else words.PRIORITY
            self.key = extra.keys[0] if extra.keys else ""
            self.correlation = extra.correlations[0] if extra.correlations else ""
            self.reply_to = extra.replies[0] if extra.replies else ""
            if extra.ids and extra.ids[0]:
                self.id = extra.ids[0]
            if extra.ttls_us:
                self.ttl = extra.ttls_us[0] / 1e6
            if extra.properties and extra.properties[0]:
                self.properties = MappingProxyType(batch.properties_of(extra.properties[0]))

    @classmethod
    def of(cls, consumer: QueueConsumer, number: int, deliveries: int, batch: Slice, place: int) -> QueueMessage[T]:
        """A message of a plain batch."""
        head, bodies = batch
        self = cls.__new__(cls)
        self._consumer = consumer
        self.number = number
        self.deliveries = deliveries
        self.settled = False
        self.sent = head.time_us / 1e6
        self.body = bodies[place]
        self.priority = words.PRIORITY
        self.key = self.correlation = self.reply_to = ""
        self.id = f"{head.session:x}-{head.first + place}"
        self.properties = NOTHING
        self.ttl = 0.0
        return self

    def __repr__(self) -> str:
        return f"<message {self.number} {self.body!r:.60}>"

    async def ack(self) -> None:
        """Acknowledge: the message is done and is never delivered again. Returns when that is as safe as the queue
        is."""
        await self._settling().settle(self)

    async def nack(self, delay: float | None = None) -> None:
        """Give the message back, to be delivered again after ``delay`` seconds; by default after the queue's own
        back-off."""
        if delay is None:
            await self._settling().settle(self, words.BACK)
        else:
            await self._settling().settle(self, words.NACK, _microseconds(delay))

    async def reject(self, reason: str = "") -> None:
        """Make it a dead letter."""
        await self._settling().settle(self, words.REJECT, 0, reason[:1_024])

    async def release(self) -> None:
        """Give the message back unseen: at once, and not counted as a try."""
        await self._settling().settle(self, words.RELEASE)

    async def extend(self, seconds: float) -> None:
        """Extend the lease: hold the message for so many seconds from now on."""
        await self._settling(False).settle(self, words.EXTEND, _microseconds(seconds))

    def _settling(self, ends: bool = True) -> QueueConsumer:
        if self._consumer is None:
            raise BadInput(f"message {self.number} was browsed, not received: it cannot be settled")
        if self.settled:
            raise BadInput(f"message {self.number} is settled already: settle a message once")
        self.settled = ends
        return self._consumer


class Browsed(QueueMessage[Any]):
    """A message that was looked at and not taken."""

    __slots__ = ("age_since", "reason", "size", "state")

    def __init__(self, seen: words.Seen, body: bytes, long: bytes | None) -> None:
        super().__init__(None, seen.thing, seen.tries, body, long)
        self.state = seen.state
        """``ready``, ``held``, ``delayed``, ``behind its key`` or ``dead``."""
        self.size = seen.size
        self.reason = seen.reason
        """The reason why it is a dead letter."""
        self.age_since = seen.at_us / 1e6
        """When the message came into the queue, by the time of the log."""


def unpacked(packed: bytes) -> Slice:
    """The messages of a plain batch. In the place of a body that cannot be made here is the error."""
    head = batch.head_of(packed)
    kind, encoded = batch.kind_of(packed, head), batch.bodies_of(packed, head)
    if kind == BYTES:
        return head, [bytes(one) for one in encoded]
    try:
        return head, decode_bodies(kind, msgspec.Raw(array_header(head.count) + b"".join(encoded)), head.count)
    except PluribusError:
        return head, [_decoded(kind, one) for one in encoded]


def _decoded(kind: Kind, encoded: memoryview) -> Any:
    try:
        return decode_bodies(kind, msgspec.Raw(array_header(1) + bytes(encoded)), 1)[0]
    except PluribusError as error:
        return error


def _microseconds(seconds: float) -> int:
    if not 0 <= seconds < 1e12:
        raise BadInput(f"{seconds!r} s: give a number of seconds that is not negative")
    return int(seconds * 1e6)
