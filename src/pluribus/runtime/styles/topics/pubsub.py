"""Publish and subscribe on a bus: the work of ``bus.publish`` and ``bus.subscribe``.

Events go through one group of the bus, ``topics``, in batches; every member that publishes or subscribes is in it, and
filters the events for its own subscriptions. ``docs/design/pubsub.md`` says why. ``Topics`` is made when the bus first
publishes, subscribes or advertises.

``publish(..., durable=True)`` and ``subscribe(..., durable=...)`` call ``runtime/styles/topics/durable.py``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin

import msgspec

from ...._speed.quick import End, publishes
from ....core.errors import BadInput, Closed
from ....core.events import Event as BusEvent
from ....core.frame import Message
from ....core.ids import MemberId, MessageId, checked_name
from ....core.limits import BACKLOG_EVENTS
from ....core.view import View
from ....filters import Filter
from ....pubsub.backlog import SAMPLE, WAIT, Backlog
from ....pubsub.batch import OVERHEAD_BYTES, PLAIN, Arrived, EventExtra, Gathering, checked_headers
from ....pubsub.concepts import Vocabulary
from ....pubsub.event import Event, keys_of, with_key
from ....pubsub.interest import Interest
from ....pubsub.objects import Changed, pattern_of
from ....pubsub.places import Near, near_and
from ....pubsub.table import Table
from ....pubsub.topics import checked_topic, overlap
from ....pubsub.words import Advert, Want
from ....wire.bodies import BYTES, Kind, encode_body, encode_quickly
from ...loop.callbacks import Call, Readable, call_with_events
from ...loop.draining import each_drained
from ...loop.lateness import loaded
from .audience import Audience
from .carrier import Carrier
from .neighbours import Neighbours
from .observed import Observed
from .sharing import Sharing
from .subscription import Subscription
from .worker import NO_PLACES

if TYPE_CHECKING:
    from ...bus import Bus

GROUP = "topics"
_KEEPING = "pluribus.runtime.keepers.keeping"
LONGEST_UNKNOWN = 1_024
BEST_EFFORT, RELIABLE, ORDERED = "best effort", "reliable", "ordered"
GUARANTEES = (BEST_EFFORT, RELIABLE, ORDERED, "fifo", "causal", "total")

SAFE = "safe"
"""The order of the carrier of shared subscriptions: total, and no member delivers what the survivors lack."""

F = TypeVar("F", bound=Callable[..., Any])
Topic = str
Pair = tuple[Topic, Any]


class _Elsewhere:
    """The type of bodies that were encoded in another program."""


class Topics(End):
    """Publishing and subscribing, for one member."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.line = bus._line
        self.now = bus._now
        self.wall = bus._wall
        self.subscriptions: dict[Subscription[Any], None] = {}
        self.joined: Carrier | None = None
        """The base, from before the introduction on."""
        self.carriers: dict[str, Carrier] = {}
        self.neighbours = Neighbours(self)
        self.sharing = Sharing(self)
        self.audience = Audience(self)
        self._opening: dict[str, asyncio.Future[Carrier]] = {}
        self._forget_events: Callable[[], None] = lambda: None
        self._base: Carrier | None = None
        self._open = Gathering(bus.me, LONGEST_UNKNOWN)
        """The table of the base carrier, when there is one; before that a table without subscriptions."""
        self._joining: asyncio.Future[Carrier] | None = None

    # Joining

    async def base(self) -> Carrier:
        """The carrier of every event, joined."""
        if self._base is not None:
            return self._base
        if self._joining is None or self._joining.done():  # the task goes on when its caller gives up
            self._joining = asyncio.ensure_future(self._join())
            self._joining.add_done_callback(_heard)
        return await asyncio.shield(self._joining)

    async def _join(self) -> Carrier:
        group = await self.bus.group(GROUP, own=False)
        neighbours, table = self.neighbours, Table(self.wall)
        self.joined = Carrier("", group, table, self.now, self._taken, self._heard_word, own=False)
        if "views" in self.bus._provided:
            self._forget_events = self.bus.on_event(neighbours.on_event)
            await neighbours.introduce(self.joined)
            neighbours.task(neighbours.watch(self.joined))
        self._base = self.joined
        self.routed(bool(self.carriers))
        return self._base

    def _heard_word(self, message: Message) -> None:
        self.neighbours.heard(message)
        self.audience.heard(message)

    async def wait_for(self, members: int, timeout: float | None) -> View:
        """See ``Bus.wait_for``."""
        deadline = None if timeout is None else self.now() + timeout
        base = await self.base()
        view = await base.group.wait_for(members, timeout)
        if "views" in self.bus._provided:
            async with asyncio.timeout(None if deadline is None else deadline - self.now()):
                await self.neighbours.introduce(base)
        return view

    async def wait_for_subscribers(self, topic: str, count: int, timeout: float | None) -> int:
        """See ``TopicsFace.wait_for_subscribers``."""
        return await self.audience.wait_for(topic, count, timeout)

    async def carrier(self, order: str) -> Carrier:
        """The carrier of an order, joined."""
        if order in self.carriers:
            return self.carriers[order]
        opening = self._opening.get(order)
        if opening is None or opening.done():
            opening = self._opening[order] = asyncio.ensure_future(self._open_carrier(order))
            opening.add_done_callback(_heard)
        return await asyncio.shield(opening)

    async def _open_carrier(self, order: str) -> Carrier:
        safe = order == SAFE
        offered = "total" if safe else order
        if offered not in self.bus.orders:
            raise BadInput(f"order {order!r} is not offered by the stack of this bus: use {', '.join(self.bus.orders)}")
        state = self.sharing.shares if safe else None
        group = await self.bus.group(f"{GROUP}/{order}", order=offered, safe=safe, state=state)
        made = Carrier(
            order,
            group,
            Table(self.wall),
            self.now,
            self.sharing.taken if safe else _nothing,
            self.sharing.heard if safe else _nothing,
            own=True,
        )
        made.missed = lambda: self.cut_off(made)
        if safe:
            self.sharing.begin(made)
        self.carriers[order] = made
        return made

    def _taken(self, arrived: Arrived) -> None:
        """Called with every batch, before subscriptions get it."""
        for part in arrived.batch.parts:
            if part.extras:
                self.neighbours.retained.take(arrived)
                return

    def renewed(self, topics: list[str]) -> None:
        """Two sides of a partition have met, and the other had later values of these topics: give them to
        subscribers."""
        for subscription in list(self.subscriptions):
            if subscription.retain and topics:
                self._give(subscription, self.neighbours.retained.of(subscription.interest, topics))
                subscription.arrived()

    def _give(self, subscription: Subscription[Any], values: list[Event[Any]]) -> None:
        """Give retained values; a value that may still arrive as an event is not given a second time."""
        ahead = self.neighbours.retained.ahead
        subscription.given.update(value.id for value in values if subscription.order or value.id in ahead)
        subscription.backlog.put_events(values)

    def routed(self, several: bool) -> None:
        """True if events may have to go through several carriers: then each event is looked at."""
        if self._base is not None:
            self._open = Gathering(self.bus.me, LONGEST_UNKNOWN) if several else self._base.gathering

    def cut_off(self, carrier: Carrier) -> None:
        """The primary went on without this member."""
        for reader in carrier.table.readers():
            reader.backlog.lost()
            reader.arrived()

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
        key: str | None = None,
    ) -> MessageId:
        """See ``Bus.publish``. The fast path is an append or two."""
        if key is not None:
            headers = with_key(headers, key)
        gathering: Gathering = self._open
        if type(body) is gathering.type and headers is None and parent is None and not retain and not durable:
            encoded = body if type(body) is bytes else encode_quickly(body)
            if len(encoded) <= gathering.alike:
                if topic == gathering.solo:
                    for event in gathering.ids:
                        gathering.pending.append(encoded)
                        return event
                elif gathering.solo is None and topic in gathering.places:
                    for event in gathering.ids:
                        gathering.pending.append(encoded)
                        gathering.of.append(gathering.places[topic])
                        return event
        if durable:
            await loaded(_KEEPING)
            found: MessageId = await self.bus.durable.publish(
                topic, body, headers=headers, parent=parent, timeout=timeout, id=id
            )
            if live:
                await self._publish(topic, body, _extra(headers, parent, retain), None)
            return found
        if id is not None:
            raise BadInput("id= is for events that are durable, which may be published again: leave it out")
        if headers is None and parent is None and not retain:
            base = self._base
            if base is None or base.gathering is not gathering or not base.begins_turn:
                return await self._publish(topic, body, PLAIN, timeout)
            kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
            alone = base.publish_alone(checked_topic(topic), kind, encoded, self.wall())
            return alone or await self._publish_encoded(topic, kind, encoded, PLAIN, timeout, type(body))
        return await self._publish(topic, body, _extra(headers, parent, retain), timeout)

    publish = publishes(publish, encode_quickly)

    async def _publish(self, topic: str, body: Any, extra: EventExtra, timeout: float | None) -> MessageId:
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        return await self._publish_encoded(topic, kind, encoded, extra, timeout, type(body))

    async def publish_encoded(
        self,
        topic: str,
        kind: Kind,
        encoded: bytes,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        retain: bool = False,
        timeout: float | None = None,
    ) -> MessageId:
        """For doors: publish an event that another program encoded, perhaps of a type that is not known here."""
        return await self._publish_encoded(topic, kind, encoded, _extra(headers, parent, retain), timeout, _Elsewhere)

    async def _publish_encoded(
        self, topic: str, kind: Kind, encoded: bytes, extra: EventExtra, timeout: float | None, typed: type
    ) -> MessageId:
        checked_topic(topic)
        base = self._base or await self.base()
        if base.group.closed:
            raise Closed("the bus is closed: connect again")
        if len(encoded) > base.group._channel.out.longest and not base.group._dispatch.cuts:
            base.group._channel.out.check(len(encoded) + OVERHEAD_BYTES)
        if extra.retain:
            self.neighbours.retained.check(topic)
        while True:
            carriers = (base, *self.neighbours.also(topic))
            full = next((one for one in carriers if not one.takes(topic, len(encoded), kind, extra)), None)
            if full is None:
                return self._add(carriers, topic, kind, encoded, extra, typed)
            await full.room(timeout)

    def _add(
        self, carriers: tuple[Carrier, ...], topic: str, kind: Any, encoded: bytes, extra: EventExtra, typed: type
    ) -> MessageId:
        now, number = self.wall(), None
        for carrier in carriers:
            first = carrier.gathering.empty
            found = carrier.gathering.add(topic, kind, encoded, now, extra, number, typed)
            number = found[1]
            if first:
                carrier.opened()
        return found

    async def publish_many(
        self,
        events: Iterable[Pair],
        *,
        headers: Mapping[str, Any] | None = None,
        retain: bool = False,
        durable: bool = False,
        timeout: float | None = None,
        live: bool = True,
        key: str | Sequence[str | None] | None = None,
    ) -> Sequence[MessageId]:
        """See ``TopicsFace.publish_many``."""
        pairs = events if isinstance(events, list) or key is None else list(events)
        keys = None if key is None else keys_of(key, len(cast("list[Pair]", pairs)))
        if not durable:
            if headers is None and not retain and timeout is None and keys is None:
                return [await self.publish(topic, body) for topic, body in events]
            until = None if timeout is None else self.now() + timeout
            ids = []
            for number, (topic, body) in enumerate(pairs):
                left = None if until is None else max(until - self.now(), 0.0)
                one = None if keys is None else keys[number]
                ids.append(await self.publish(topic, body, headers, retain=retain, timeout=left, key=one))
            return ids
        pairs = list(pairs)
        await loaded(_KEEPING)
        kept = await self.bus.durable.publish_many(pairs, timeout=timeout, headers=headers, keys=keys)
        for number, (topic, body) in enumerate(pairs if live else ()):
            await self.publish(topic, body, headers, retain=retain, key=None if keys is None else keys[number])
        return kept

    def publish_soon(
        self,
        topic: str,
        body: Any,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        retain: bool = False,
        durable: bool = False,
        live: bool = True,
    ) -> MessageId:
        """See ``TopicsFace.publish_soon``."""
        if durable:
            kept = self.bus.durable.publish_soon(topic, body, headers=headers, parent=parent)
            if self._base is None or not live:
                return kept
        base = self._base
        if base is None:
            raise BadInput("publish_soon needs a member that publishes already: await bus.publish or bus.flush() first")
        checked_topic(topic)
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        carriers = (base, *self.neighbours.also(topic))
        extra = _extra(headers, parent, retain)
        for carrier in carriers:
            if carrier.gathering.empty or not carrier.gathering.fits(topic, len(encoded), kind, extra):
                carrier.room_now()
        added = self._add(carriers, topic, kind, encoded, extra, type(body))
        return kept if durable else added

    async def flush(self) -> None:
        await (await self.base()).flush()
        for carrier in list(self.carriers.values()):
            await carrier.flush()
        if (keeping := self.bus.kept) is not None:
            await keeping.durable.flush()

    # Subscribing

    def subscribe(
        self,
        pattern: str | None = None,
        where: str | Filter | None = None,
        type: type | None = None,
        *,
        near: Near | None = None,
        concept: str | None = None,
        vocabulary: Vocabulary | None = None,
        object: str | None = None,
        property: str | None = None,
        guarantee: str = RELIABLE,
        deadline: float | None = None,
        backlog: int = BACKLOG_EVENTS,
        slow: str | None = None,
        retain: bool = True,
        shared: str | None = None,
        call: Call | None = None,
        bodies: bool = False,
    ) -> Subscription[Any]:
        if guarantee not in GUARANTEES:
            raise BadInput(f"guarantee={guarantee!r} is none: use {', '.join(GUARANTEES)}")
        self.bus._check_open()
        if slow is None:
            slow = SAMPLE if guarantee == BEST_EFFORT else WAIT
        if object is not None or property is not None:
            if object is None or pattern is not None or type is not None:
                raise BadInput(
                    "object= names what is watched, property= one of its properties: give no pattern or type"
                )
            pattern, type = pattern_of(object, property), Changed
        translate = None if concept is None else translation(concept, vocabulary)
        condition = near_and(near, where)
        interest = Interest(
            "#" if pattern is None else pattern,
            condition,
            type,
            now=self.wall,
            translate=translate,
            concept="" if concept is None or vocabulary is None else vocabulary.concept(concept),
        )
        if shared is not None:
            checked_name(shared, "the shared subscription")
            if near is not None:
                raise BadInput(NO_PLACES)
            self._order_of("total")  # which must be offered
            retain = False
        made: Subscription[Any] = Subscription(
            self,
            interest,
            Backlog(backlog, slow),
            order=SAFE if shared is not None else self._order_of(guarantee),
            deadline=deadline,
            retain=retain,
            shared=shared,
            call=call,
            bodies=bodies,
        )
        made.near, made.where = near, None if where is None else str(where)
        return made

    def begin_soon(self, subscription: Subscription[Any]) -> None:
        """Begin, without a caller that waits."""
        self.neighbours.task(subscription.open_quietly())

    def call_soon(self, subscription: Readable, call: Call, bodies: bool) -> None:
        """Call a function with the events of a subscription that has no call-back of its own."""
        self.neighbours.task(call_with_events(subscription, call, bodies))

    def _order_of(self, guarantee: str) -> str:
        """The order of the carrier that a subscription needs; empty: the base's order is enough."""
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

    async def begin(self, subscription: Subscription[Any]) -> Carrier:
        carrier = base = await self.base()
        order = subscription.order
        if order:
            carrier = await self.carrier(order)
        if not subscription.shared:
            carrier.table.add(subscription)
        if subscription.retain:
            self._give(subscription, self.neighbours.retained.of(subscription.interest))
        self.subscriptions[subscription] = None
        try:
            if order:
                await self.neighbours.want(base, Want(order, subscription.pattern))
            if subscription.shared:
                await self.sharing.enter(subscription)
        except Exception:
            await self.end(subscription)
            raise
        subscription.ready = True
        self.audience.changed(subscription.pattern)
        return carrier

    async def end(self, subscription: Subscription[Any]) -> None:
        """End a subscription, even one that is still beginning."""
        carrier = self.carriers.get(subscription.order) if subscription.order else self._base
        if self.subscriptions.pop(subscription, True) is not None or carrier is None:
            return
        self.audience.changed(subscription.pattern)
        if subscription.shared:
            await self.sharing.leave(subscription)
        else:
            carrier.table.remove(subscription)
        if subscription.order and self._base is not None:
            await self.neighbours.unwant(self._base, Want(subscription.order, subscription.pattern))

    async def observed(self, name: str, properties: Mapping[str, Any]) -> Observed:
        await self.base()
        made = Observed(self, name)
        await made.set(**properties)
        return made

    # Advertising

    async def advertise(self, pattern: str, type: type | None = None, about: str = "") -> None:
        await self.advertise_named(pattern, "" if type is None else type.__name__, about)

    async def advertise_named(self, pattern: str, type: str, about: str) -> None:
        """For doors: the type by its name."""
        await self.neighbours.advertise(await self.base(), Advert(pattern, type, about))

    async def unadvertise(self, pattern: str) -> None:
        await self.neighbours.unadvertise(await self.base(), pattern)

    async def topics(self, pattern: str = "#") -> list[Advertisement]:
        """Advertisements for topics that a pattern may match."""
        base = await self.base()
        names = base.group.view.names
        found: dict[tuple[str, str], Advertisement] = {}
        for member, adverts in self.neighbours.adverts(self.bus.me).items():
            for advert in adverts.values():
                if overlap(pattern, advert.pattern):
                    key = (advert.pattern, advert.type)
                    made = found.setdefault(key, Advertisement(advert.pattern, advert.type, advert.about, {}))
                    made.members[MemberId(member)] = self.bus.name if member == self.bus.me else names.get(member, "")
        return sorted(found.values(), key=lambda made: (made.pattern, made.type))

    def retained(self) -> list[str]:
        """Topics that have a last value."""
        return sorted(self.neighbours.retained.topics())

    # For subscriptions

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, call)

    def tell(self, event: BusEvent) -> None:
        self.bus._watchers.tell(event)

    # The end

    async def drain(self, timeout: float) -> None:
        """Returns when published events are sent, before the bus is closed; those that wait for slow readers included.
        ``Undelivered`` if that takes longer."""
        await each_drained([carrier.drain for carrier in self._carriers()], timeout)

    def _carriers(self) -> list[Carrier]:
        return [*([self._base] if self._base is not None else []), *self.carriers.values()]

    async def close(self) -> None:
        for subscription in list(self.subscriptions):
            await subscription.close()
        self.abandon()

    def abandon(self) -> None:
        for subscription in list(self.subscriptions):
            subscription.end()
        self.subscriptions.clear()
        self._forget_events()
        self.neighbours.abandon()
        for carrier in self._carriers():
            carrier.abandon()

    def validate(self) -> None:
        for carrier in self._carriers():
            carrier.table.validate()
        self.sharing.shares.validate()


class Advertisement(msgspec.Struct):
    """An advertisement: the topics that some members will publish."""

    pattern: str
    type: str
    about: str
    members: dict[MemberId, str]


def handled_type(call: Callable[..., Any]) -> tuple[type | None, bool]:
    """The type of the bodies that a function takes, by its first parameter, and whether it takes bodies without the
    event."""
    parameters = list(inspect.signature(call, eval_str=True).parameters.values())
    wanted = parameters[0].annotation if parameters else inspect.Parameter.empty
    if wanted in (inspect.Parameter.empty, Any, Event):
        return None, False
    if get_origin(wanted) is Event:
        (inner,) = get_args(wanted)
        return (inner if isinstance(inner, type) else None), False
    if not isinstance(wanted, type):
        raise BadInput(f"{wanted!r} is no type of bodies: annotate the parameter with a class, or with Event")
    return wanted, True


def translation(term: str, vocabulary: Vocabulary | None) -> Callable[[Event[Any]], Event[Any] | None]:
    if vocabulary is None:
        raise BadInput(f"concept={term!r} needs to be understood: give a vocabulary= too")
    concept = vocabulary.concept(term)
    return lambda event: vocabulary.translated(event, concept)


def _heard(joining: asyncio.Future[Carrier]) -> None:
    """Read the result of joining: its error concerns only tasks that wait for it."""
    if not joining.cancelled():
        joining.exception()


def _nothing(heard: Any) -> None:
    """Ignores a message; for carriers that only carry events."""


def _extra(headers: Mapping[str, Any] | None, parent: MessageId | None, retain: bool) -> EventExtra:
    if not headers and parent is None and not retain:
        return PLAIN
    wire = None if parent is None else (int(parent[0]), parent[1])
    return EventExtra(checked_headers(headers) if headers else {}, wire, retain)
