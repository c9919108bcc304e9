"""Publish and subscribe on a bus: what ``bus.publish`` and ``bus.subscribe`` do.

Events go through one group of the bus, ``topics``, in batches; every member that publishes or subscribes is in it, and
picks by itself what its subscriptions want. ``docs/design/pubsub.md`` says why. ``Topics`` is made when the bus first
publishes, subscribes or advertises.

``publish(..., durable=True)`` and ``subscribe(..., durable=...)`` are those of ``runtime/durable.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput, Closed
from ..core.events import Event as BusEvent
from ..core.frame import Message
from ..core.ids import MessageId
from ..core.limits import BACKLOG_EVENTS
from ..filters import Filter
from ..pubsub.backlog import SAMPLE, WAIT, Backlog
from ..pubsub.batch import OVERHEAD_BYTES, PLAIN, Arrived, Extra, Gathering, checked_headers
from ..pubsub.interest import Interest
from ..pubsub.table import Table
from ..pubsub.topics import checked_topic
from ..wire.bodies import BYTES, encode_body, encode_quickly
from .carrier import Carrier
from .subscription import Call, Subscription

if TYPE_CHECKING:
    from .bus import Bus

GROUP = "topics"
LONGEST_UNKNOWN = 1_024
BEST_EFFORT, RELIABLE, ORDERED = "best effort", "reliable", "ordered"
GUARANTEES = (BEST_EFFORT, RELIABLE, ORDERED, "fifo", "causal", "total")
_FAST_OVERHEAD_BYTES = 8  # a literal of batch.OVERHEAD_BYTES, for the fast path

Topic = str
Pair = tuple[Topic, Any]


class Topics:
    """Publishing and subscribing, for one member."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.line = bus._line
        self.now = bus._now
        self.wall = bus._wall
        self.subscriptions: dict[Subscription, None] = {}
        self._base: Carrier | None = None
        self._gathering = Gathering(bus.me, LONGEST_UNKNOWN)
        """The base's own, as soon as there is one; this one takes nothing."""
        self._joining: asyncio.Future[Carrier] | None = None

    # Joining

    async def base(self) -> Carrier:
        """The carrier of every event, joined."""
        if self._base is not None:
            return self._base
        if self._joining is None:
            self._joining = asyncio.ensure_future(self._join())
        try:
            return await asyncio.shield(self._joining)
        except BaseException:
            if self._base is None:
                self._joining = None
            raise

    async def _join(self) -> Carrier:
        group = await self.bus.group(GROUP, own=False)
        table = Table(self.wall)
        self._base = Carrier("fifo", group, table, self.now, self._taken, self._heard, own=False)
        self._gathering = self._base.gathering
        return self._base

    def _taken(self, arrived: Arrived) -> None:
        """Of every batch, before subscriptions get it."""

    def _heard(self, message: Message) -> None:
        """Words of other members."""

    # Publishing

    async def publish(
        self,
        topic: str,
        body: Any,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        retain: bool = False,
        durable: bool = False,
        timeout: float | None = None,
        id: MessageId | None = None,
        live: bool = True,
    ) -> MessageId:
        """See ``Bus.publish``. The fast path is an append or two."""
        gathering = self._gathering
        if type(body) is gathering.type and headers is None and parent is None and not retain and not durable:
            encoded = body if type(body) is bytes else encode_quickly(body)
            left = gathering.left - len(encoded)
            if left > _FAST_OVERHEAD_BYTES:
                if topic == gathering.solo:
                    gathering.left = left - _FAST_OVERHEAD_BYTES
                    gathering.append(encoded)
                    return next(gathering.ids)
                place = gathering.places.get(topic)
                if place is not None and gathering.solo is None:
                    gathering.left = left - _FAST_OVERHEAD_BYTES
                    gathering.append(encoded)
                    gathering.of_append(place)
                    return next(gathering.ids)
        if durable:
            found: MessageId = await self.bus.durable.publish(
                topic, body, headers=headers, parent=parent, timeout=timeout, id=id
            )
            if live:
                await self._publish(topic, body, _extra(headers, parent, retain), None)
            return found
        if id is not None:
            raise BadInput("id= is for events that are durable, which may be published again: leave it out")
        return await self._publish(topic, body, _extra(headers, parent, retain), timeout)

    async def _publish(self, topic: str, body: Any, extra: Extra, timeout: float | None) -> MessageId:
        checked_topic(topic)
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        base = await self.base()
        if base.group.closed:
            raise Closed("the bus is closed: connect again")
        if len(encoded) > base.group._channel.out.longest and not base.group._dispatch.cuts:
            base.group._channel.out.check(len(encoded) + OVERHEAD_BYTES)
        if not base.gathering.fits(topic, len(encoded)):
            await base.room(timeout)
            while not base.gathering.fits(topic, len(encoded)):
                await base.room(timeout)
        return self._add(base, topic, kind, encoded, extra, type(body))

    def _add(self, base: Carrier, topic: str, kind: Any, encoded: bytes, extra: Extra, typed: type) -> MessageId:
        first = base.gathering.empty
        found = base.gathering.add(topic, kind, encoded, self.wall(), extra, typed=typed)
        if first:
            base.opened()
        return found

    async def publish_many(
        self, events: Iterable[Pair], *, durable: bool = False, live: bool = True, **options: Any
    ) -> list[MessageId]:
        if durable:
            events = list(events)
            kept = await self.bus.durable.publish_many(events, **options)
            for topic, body in events if live else ():
                await self.publish(topic, body)
            return kept
        return [await self.publish(topic, body, **options) for topic, body in events]

    def publish_soon(
        self,
        topic: str,
        body: Any,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        retain: bool = False,
        durable: bool = False,
        **more: Any,
    ) -> Any:
        if durable:
            kept = self.bus.durable.publish_soon(topic, body, headers=headers, parent=parent)
            if self._base is None or not more.get("live", True):
                return kept
        base = self._base
        if base is None:
            raise BadInput("publish_soon needs a member that publishes already: await bus.publish or bus.flush() first")
        checked_topic(topic)
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        if not base.gathering.fits(topic, len(encoded)):
            base.room_now()
        added = self._add(base, topic, kind, encoded, _extra(headers, parent, retain), type(body))
        return kept if durable else added

    async def flush(self) -> None:
        await (await self.base()).flush()
        if self.bus._keeping is not None:
            await self.bus.durable.flush()

    # Subscribing

    def subscribe(
        self,
        pattern: str,
        where: str | Filter | None = None,
        type: type | None = None,
        *,
        guarantee: str = RELIABLE,
        deadline: float | None = None,
        backlog: int = BACKLOG_EVENTS,
        slow: str | None = None,
        retain: bool = True,
        call: Call | None = None,
        bodies: bool = False,
    ) -> Subscription:
        if guarantee not in GUARANTEES:
            raise BadInput(f"guarantee={guarantee!r} is none: use {', '.join(GUARANTEES)}")
        self.bus._check_open()
        if slow is None:
            slow = SAMPLE if guarantee == BEST_EFFORT else WAIT
        interest = Interest(pattern, where, type, now=self.wall)
        return Subscription(
            self,
            interest,
            Backlog(backlog, slow),
            order=self._order_of(guarantee),
            deadline=deadline,
            retain=retain,
            call=call,
            bodies=bodies,
        )

    def _order_of(self, guarantee: str) -> str:
        """The order of the carrier that a subscription needs; empty: the base's is enough."""
        orders = self.bus.orders
        if guarantee == BEST_EFFORT:
            return ""
        reliable = "reliability" in self.bus._provided
        wanted = "fifo" if guarantee in (RELIABLE, ORDERED) else guarantee
        if not reliable or wanted not in orders:
            raise BadInput(
                f"guarantee={guarantee!r} is not offered by the stack of this bus: use {BEST_EFFORT!r}, or connect "
                "with stack='views'"
            )
        return "" if wanted == "fifo" else wanted

    async def begin(self, subscription: Subscription) -> Carrier:
        base = await self.base()
        base.table.add(subscription)
        self.subscriptions[subscription] = None
        return base

    async def end(self, subscription: Subscription) -> None:
        if self.subscriptions.pop(subscription, True) is None and subscription._carrier is not None:
            subscription._carrier.table.remove(subscription)

    # For subscriptions

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, call)

    def tell(self, event: BusEvent) -> None:
        self.bus._watchers.tell(event)

    # The end

    def close_batches(self) -> None:
        """What gathered is on its way before the bus is closed."""
        if self._base is not None:
            self._base.close_batch()

    async def close(self) -> None:
        for subscription in list(self.subscriptions):
            await subscription.close()
        self.abandon()

    def abandon(self) -> None:
        for subscription in list(self.subscriptions):
            subscription.end()
        self.subscriptions.clear()
        if self._base is not None:
            self._base.abandon()

    def validate(self) -> None:
        if self._base is not None:
            self._base.table.validate()


def _extra(headers: Mapping[str, Any] | None, parent: MessageId | None, retain: bool) -> Extra:
    if not headers and parent is None and not retain:
        return PLAIN
    wire = None if parent is None else (int(parent[0]), parent[1])
    return Extra(checked_headers(headers) if headers else {}, wire, retain)
