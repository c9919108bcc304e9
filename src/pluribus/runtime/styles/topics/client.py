"""Topics on a client: publish and subscribe through its member.

When the member goes away, durable publishing and reading go on where they were, without loss and without duplicates. A
live subscription gets ``Gap`` in the place of the events that it may have missed. A live event that was being published
when the connection broke is ``Uncertain``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ....core.errors import BadInput, Closed, Overflow, PluribusError, Uncertain, Undelivered, Unreachable
from ....core.ids import MemberId, MessageId, checked_name
from ....core.limits import BACKLOG_EVENTS
from ....core.view import View
from ....filters import Filter
from ....pubsub.backlog import SAMPLE, TELL, checked_slow
from ....pubsub.concepts import Vocabulary
from ....pubsub.durable.batch import pack
from ....pubsub.event import keys_of, with_key
from ....pubsub.interest import Interest
from ....pubsub.objects import Changed, pattern_of
from ....pubsub.places import Near, near_and
from ....pubsub.requests import Advertise, Adverts, Gather, Heard, Listen, Subscribers, Tell
from ....pubsub.topics import checked_topic
from ....wire.asking import WAIT_S_MAX
from ....wire.bodies import BYTES, Kind, encode_body, names_of
from ...loop.callbacks import Call, Readable, call_with_events
from ..style import Style
from .client_subscription import ClientSubscription
from .observed import Observed
from .publisher import PAUSE_S, PAUSE_S_MAX
from .pubsub import BEST_EFFORT, GUARANTEES, RELIABLE, Advertisement, translation
from .worker import NO_PLACES

if TYPE_CHECKING:
    from ...clients.bus import ClientBus
    from .pubsub import Topics

log = logging.getLogger("pluribus")

TELL_EVENTS = 1_024
TELL_BYTES = 64 << 10
"""Of ``publish_soon``, in one question; one event more may follow."""
WAITING_BYTES_MAX = 64 << 20
"""Of ``publish_soon``, before ``Overflow``."""


class ClientTopicsStyle(Style):
    """``live`` has the calls of ``Topics``."""

    closes = 90

    def __init__(self, bus: ClientBus) -> None:
        super().__init__(bus)
        self.live = ClientTopics(bus)
        bus.publish = self.live.publish

    async def drain(self, timeout: float) -> None:
        await self.live.drain(timeout)

    async def close(self) -> None:
        await self.live.close()

    def abandon(self) -> None:
        self.live.abandon()

    def stats(self) -> dict[str, Any]:
        return {"subscriptions": len(self.live.subscriptions), "malformed": self.live.malformed}


class ClientTopics:
    """Live topics of one client."""

    def __init__(self, bus: ClientBus) -> None:
        self._bus = bus
        self.line = bus.line
        self.line.heard["topics"] = self._heard
        self.line.broken.append(self._broken)
        self.wall = bus._wall
        self.subscriptions: dict[int, ClientSubscription] = {}
        self.malformed = 0
        """Events that this program could not decode."""
        self._numbers = 0
        self._session = bus.new_number()
        self._told = 0
        self._waiting: deque[tuple[bytes, tuple[str, bool], MessageId]] = deque()
        """Events of ``publish_soon`` that the member was not told: packed, topic and whether to retain it, identity."""
        self._waiting_bytes = 0
        self._telling: asyncio.Task[None] | None = None
        self._failure: PluribusError | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._breaks = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.closed = False

    # Publishing.

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
        """See ``Publish``; a live event returns when the member has published it."""
        if key is not None:
            headers = with_key(headers, key)
        self._bus._check_open()
        given = dict(headers) if headers else None
        if durable:
            kept = await self._bus.durable.publish(topic, body, headers=given, parent=parent, timeout=timeout, id=id)
            if live:
                await self._publish([(topic, body)], given, parent, retain, None)
            return kept
        if id is not None:
            raise BadInput("id= is for events that are durable, which may be published again: leave it out")
        return (await self._publish([(topic, body)], given, parent, retain, timeout))[0]

    async def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        headers: Mapping[str, Any] | None = None,
        retain: bool = False,
        durable: bool = False,
        timeout: float | None = None,
        live: bool = True,
        key: str | Sequence[str | None] | None = None,
    ) -> Sequence[MessageId]:
        """See ``TopicsFace.publish_many``."""
        self._bus._check_open()
        pairs = list(events)
        keys = keys_of(key, len(pairs))
        given = dict(headers) if headers else None
        if durable:
            kept = await self._bus.durable.publish_many(pairs, timeout=timeout, headers=given, keys=keys)
            if not live:
                return kept
        told: list[MessageId] = []
        for at in range(0, len(pairs), TELL_EVENTS):
            patience = None if durable else timeout
            some = None if keys is None else keys[at : at + TELL_EVENTS]
            told += await self._publish(pairs[at : at + TELL_EVENTS], given, None, retain, patience, some)
        return kept if durable else told

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
        """See ``TopicsFace.publish_soon``. Live events are told to the member in the background, in their order. The
        member gives them identities of its own: for ``parent=`` use ``publish``, or the event's ``id``."""
        self._bus._check_open()
        if live and self._waiting_bytes > WAITING_BYTES_MAX:
            raise Overflow(f"{self._waiting_bytes:,} bytes wait for the member: await bus.flush()")
        given = dict(headers) if headers else None
        kept = self._bus.durable.publish_soon(topic, body, headers=given, parent=parent) if durable else None
        if kept is not None and not live:
            return kept
        batches, ids = self._packed([(topic, body)], given, parent)
        (packed,) = batches
        self._waiting.append((packed, (topic, retain), ids[0]))
        self._waiting_bytes += len(packed)
        if self._telling is None:
            self._telling = asyncio.ensure_future(self._tell_all())
        return ids[0] if kept is None else kept

    async def _tell_all(self) -> None:
        """Tell the member what ``publish_soon`` left: events of one topic together, because the member decides by topic
        whether it allows them. The first failure is kept for ``flush``."""
        await asyncio.sleep(0)  # what is published in the same turn goes with it
        try:
            while self._waiting:
                packed, where, first = self._waiting.popleft()
                together, size = [packed], len(packed)
                while self._waiting and self._waiting[0][1] == where and size < TELL_BYTES:
                    together.append(self._waiting.popleft()[0])
                    size += len(together[-1])
                try:
                    await self._told_to(together, where[1], None, first)
                except PluribusError as error:
                    self._failure = self._failure or error
                finally:
                    self._waiting_bytes -= size
        finally:
            self._telling = None

    async def _all_told(self) -> None:
        """Returns when the member has what ``publish_soon`` left."""
        while self._telling is not None:
            await asyncio.wait([self._telling])

    async def flush(self) -> None:
        """Returns when the member has published every event, and the durable ones are on disk."""
        await self._all_told()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        await self._bus.durable.flush()

    async def _publish(
        self,
        events: Sequence[tuple[str, Any]],
        headers: Any,
        parent: MessageId | None,
        retain: bool,
        timeout: float | None,
        keys: Sequence[str | None] | None = None,
    ) -> list[MessageId]:
        if self._telling is not None:  # what was published before goes first
            await self._all_told()
        batches, ids = self._packed(events, headers, parent, keys)
        return await self._told_to(batches, retain, timeout, ids[0])

    async def _told_to(
        self, batches: list[bytes], retain: bool, timeout: float | None, first: MessageId
    ) -> list[MessageId]:
        """The identities that subscribers see."""
        try:
            told: list[tuple[int, int]] = await self.line.ask(Tell(batches, retain, timeout))
        except Closed as error:
            raise Uncertain(f"{error}; it may have been published or not", first) from None
        return [(MemberId(sender), number) for sender, number in told]

    def _packed(
        self,
        events: Sequence[tuple[str, Any]],
        headers: Any,
        parent: MessageId | None,
        keys: Sequence[str | None] | None = None,
    ) -> tuple[list[bytes], list[MessageId]]:
        """Packed as durable batches are, with the identities of the events."""
        batches: list[bytes] = []
        run: list[bytes] = []
        of: tuple[str, Kind] | None = None
        me = int(self._bus.me)
        first, time_us = self._told + 1, int(self.wall() * 1e6)

        def close() -> None:
            if run and of is not None:
                start = self._told - len(run) + 1
                every = [headers] * len(run) if headers else []
                if keys is not None:
                    of_run = keys[start - first : start - first + len(run)]
                    every = [dict(with_key(headers, one) or {}) or None for one in of_run]
                parents = [parent] * len(run) if parent is not None else []
                batches.append(pack(of[0], self._session, start, me, of[1], time_us, run, every, parents))
                run.clear()

        for topic, body in events:
            checked_topic(topic)
            kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
            if (topic, kind) != of:
                close()
                of = (topic, kind)
            run.append(encoded)
            self._told += 1
        close()
        return batches, [(self._session, number) for number in range(first, self._told + 1)]

    # Subscribing.

    def subscribe(
        self,
        pattern: str | None = None,
        where: str | Filter | None = None,
        type: type[Any] | None = None,
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
    ) -> ClientSubscription:
        """See ``TopicsFace.subscribe``. The member filters by topic and condition; types, places and concepts are known
        only to this program, which filters by them here. A client that reads slowly is told how many events it missed,
        unless it asks for another policy: publishers do not wait for clients."""
        self._bus._check_open()
        if guarantee not in GUARANTEES:
            raise BadInput(f"guarantee={guarantee!r} is none: use {', '.join(GUARANTEES)}")
        if object is not None or property is not None:
            if object is None or pattern is not None or type is not None:
                raise BadInput(
                    "object= names what is watched, property= one of its properties: give no pattern or type"
                )
            pattern, type = pattern_of(object, property), Changed
        if deadline is not None and not deadline > 0:
            raise BadInput(f"deadline={deadline!r} is no time that an event may take: give seconds above 0")
        if shared is not None:
            checked_name(shared, "the shared subscription")
            if near is not None:
                raise BadInput(NO_PLACES)
            if concept is not None:
                raise BadInput("the member of a client does not know its concepts: leave out shared=, or concept=")
        text = None if where is None else str(where)
        condition = near_and(near, where)
        translate = None if concept is None else translation(concept, vocabulary)
        interest = Interest("#" if pattern is None else pattern, condition, type, now=self.wall, translate=translate)
        self._numbers += 1
        listen = Listen(
            self._numbers,
            interest.pattern,
            text or "" if translate is None else "",
            cast(Any, guarantee),
            deadline,
            backlog,
            cast(Any, checked_slow(slow or (SAMPLE if guarantee == BEST_EFFORT else TELL), backlog)),
            retain,
            shared,
            interest.type_name if shared is not None else "",
            names_of(type) if shared is not None and type is not None else [],
        )
        made = ClientSubscription(self, listen, interest, call, bodies)
        made.near, made.where = near, text
        self.subscriptions[self._numbers] = made
        return made

    def begin_soon(self, subscription: ClientSubscription) -> None:
        """Begin, without a caller that waits."""
        self.task(subscription.open_quietly())

    def call_soon(self, subscription: Readable, call: Call, bodies: bool) -> None:
        """Call a function with the events of a subscription that has no call-back of its own."""
        self.task(call_with_events(subscription, call, bodies))

    def task(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def observed(self, name: str, properties: Mapping[str, Any]) -> Observed:
        """See ``TopicsFace.observed``; from a client, change it with ``await observed.set(...)``."""
        made = Observed(cast("Topics", self), name)
        await made.set(**properties)
        return made

    # Who is there, and with what.

    async def wait_for(self, members: int, timeout: float | None) -> View:
        """See ``TopicsFace.wait_for``; the view has the members of the bus, and not this client."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            left = WAIT_S_MAX if until is None else min(max(until - loop.time(), 0.0), WAIT_S_MAX)
            there: dict[int, str] = await self.line.ask(Gather(members, left))
            if len(there) >= members:
                return View(0, tuple(map(MemberId, there)), there)
            if until is not None and loop.time() >= until:
                raise TimeoutError

    async def wait_for_subscribers(self, topic: str, count: int, timeout: float | None) -> int:
        """See ``TopicsFace.wait_for_subscribers``."""
        checked_topic(topic)
        if count < 0:
            raise BadInput(f"{count} subscribers is no number to wait for: give 1 or more")
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            left = WAIT_S_MAX if until is None else min(max(until - loop.time(), 0.0), WAIT_S_MAX)
            there: int = await self.line.ask(Subscribers(topic, count, left))
            if there >= count:
                return there
            if until is not None and loop.time() >= until:
                raise TimeoutError(f"{there} of {count} subscribers to {topic!r} were there after {timeout:g} s")

    async def advertise(self, pattern: str, type: type[Any] | None, about: str) -> None:
        await self.line.ask(Advertise(pattern, "" if type is None else type.__name__, about))

    async def unadvertise(self, pattern: str) -> None:
        await self.line.ask(Advertise(pattern, withdrawn=True))

    async def topics(self, pattern: str) -> list[Advertisement]:
        found = await self.line.ask(Adverts(pattern))
        return [
            Advertisement(one.pattern, one.type, one.about, {MemberId(who): name for who, name in one.members.items()})
            for one in found
        ]

    # The connection.

    def _heard(self, heard: Heard) -> None:
        subscription = self.subscriptions.get(heard.number)
        if subscription is not None:
            subscription.heard(heard)

    def _broken(self) -> None:
        self._breaks += 1
        for subscription in self.subscriptions.values():
            subscription.gap()
        if self.subscriptions and (self._restoring is None or self._restoring.done()):
            self._restoring = asyncio.ensure_future(self._restore())

    async def _restore(self) -> None:
        """Begin live subscriptions again, at the new member. A subscription that a caller is just opening is left to
        that caller: a second request would lose the events between the two."""
        pause_s = PAUSE_S
        while not self.closed:
            breaks = self._breaks
            try:
                await self.line.connected()
                for subscription in list(self.subscriptions.values()):
                    if subscription.begun and not (subscription.closed or subscription.ended):
                        await self._begin_again(subscription)
                if self._breaks == breaks:  # else the connection broke again after the last answer
                    return
            except PluribusError:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _begin_again(self, subscription: ClientSubscription) -> None:
        """Begin one subscription again. If it is refused, it ends, so that the others do not begin again and again
        because of it."""
        try:
            await subscription.listen()
        except (Closed, Unreachable):
            raise
        except PluribusError as error:
            subscription.end(error)

    # The end.

    async def drain(self, timeout: float) -> None:
        """Returns when the member has what ``publish_soon`` left; other live events have left when ``publish``
        returns."""
        try:
            async with asyncio.timeout(timeout):
                await self._all_told()
        except TimeoutError:
            count = len(self._waiting)
            raise Undelivered(f"{count} events of publish_soon wait for the member: give close() more time") from None
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self.closed = True
        for subscription in list(self.subscriptions.values()):
            await subscription.close()
        self.abandon()

    def abandon(self) -> None:
        self.closed = True
        for task in (*self._tasks, self._restoring, self._telling):
            if task is not None:
                task.cancel()
