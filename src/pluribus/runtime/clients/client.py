"""A client: a program that is no member, and speaks to one. What ``connect("client://…")`` gives.

It has the face of a bus as far as topics go: publish and subscribe, live and durable, logs, mailboxes. A member that
goes away is replaced by another of the URL: durable publishing and reading go on where they were, without loss and
without anything twice; a live subscription gets ``Gap`` in the place of what it may have missed. A live event that was
being published when the connection broke is ``Uncertain``.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import time
from types import MappingProxyType, TracebackType
from typing import Any

import msgspec

from ...core.errors import BadInput, Closed, Gap, MalformedFrame, Overflow, PluribusError, Uncertain, Unreachable
from ...core.ids import MemberId, MessageId
from ...core.secret import Secret
from ...core.url import BusUrl
from ...pubsub.durable.batch import pack
from ...pubsub.durable.requests import Heard, Listen, Live, Read, Tell, Unlisten
from ...pubsub.event import NO_HEADERS, Event
from ...pubsub.topics import checked_topic, levels_of
from ...wire.bodies import BYTES, Kind, array_header, checked_type, decode_bodies, encode_body
from ..keepers.keepers import Keepers
from ..loop.callbacks import call_with_events
from ..styles.queues.face import QueuesFace
from ..styles.style import S, StylesInUse
from ..styles.topics.durable import Durable, Log
from ..styles.topics.follower import Mailbox
from ..styles.topics.publisher import PAUSE_S, PAUSE_S_MAX
from ..styles.topics.pubsub import F, handled_type
from .socket_line import SocketLine

READ_EVENTS = 1_024
"""Events after which the member hears that they were read."""
TELL_EVENTS = 1_024


class ClientBus(QueuesFace):
    """A bus as seen from outside. ``me`` is a number of its own, not a member's."""

    def __init__(self, url: BusUrl, name: str, secret: Secret | None) -> None:
        self.url = url
        self.name = name
        chance = random.SystemRandom()
        self.me = MemberId(chance.getrandbits(62) + 1)
        self._line = SocketLine(url, name, secret)
        self._line.heard = self._heard
        self._line.broken = self._broken
        self.durable = Durable(self._line, int(self.me), lambda: chance.getrandbits(62) + 1, time)
        self._styles = StylesInUse()
        self._subscriptions: dict[int, ClientSubscription] = {}
        self._numbers = 0
        self._session = chance.getrandbits(62) + 1
        self._told = 0
        self._soon: list[tuple[str, Any, dict[str, Any]]] = []
        self._restoring: asyncio.Task[None] | None = None
        self._breaks = 0
        self.malformed = 0
        self._calling: set[asyncio.Task[None]] = set()
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        """What a bus has and a client has not is refused in words."""
        from ..bus import Bus

        if name.startswith("_") or not hasattr(Bus, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(
            f"bus.{name} is for members, and client:// is none, it has topics, logs, mailboxes and queues: connect to "
            f"the bus itself, for instance multicast://{self.url.bus}"
        )

    def _style(self, kind: type[S]) -> S:
        self._check_open()
        return self._styles.get(kind, self)

    async def open(self) -> None:
        """``Unreachable`` or ``Refused``, at once, if none of the hosts can be used."""
        await self._line.connected()

    @property
    def keepers(self) -> Keepers:
        """See ``Bus.keepers``; a backup is made where the keeper is."""
        return Keepers(self.durable)

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
    ) -> MessageId:
        """See ``Bus.publish``; a live event returns when the member has published it."""
        self._check_open()
        given = dict(headers) if headers else None
        if durable:
            kept = await self.durable.publish(topic, body, headers=given, parent=parent, timeout=timeout, id=id)
            if live:
                await self._publish([(topic, body)], given, parent, retain)
            return kept
        if id is not None:
            raise BadInput("id= is for events that are durable, which may be published again: leave it out")
        return (await self._publish([(topic, body)], given, parent, retain))[0]

    async def publish_many(
        self, events: Iterable[tuple[str, Any]], *, durable: bool = False, live: bool = True, **options: Any
    ) -> Sequence[MessageId]:
        """See ``Bus.publish_many``."""
        self._check_open()
        pairs = list(events)
        kept = await self.durable.publish_many(pairs, **options) if durable else []
        told: list[MessageId] = []
        if not durable or live:
            for at in range(0, len(pairs), TELL_EVENTS):
                told += await self._publish(pairs[at : at + TELL_EVENTS], options.get("headers"), None, False)
        return kept or told

    def publish_soon(self, topic: str, body: Any, *, durable: bool = False, **options: Any) -> Any:
        """See ``Bus.publish_soon``; from a client only durable events can wait."""
        if not durable:
            raise BadInput("publish_soon from a client is for durable events: use publish_many for live ones")
        options.pop("live", None)
        return self.durable.publish_soon(topic, body, **options)

    async def flush(self) -> None:
        """Returns when everything durable that was published is on disk."""
        await self.durable.flush()

    async def _publish(
        self, events: Sequence[tuple[str, Any]], headers: Any, parent: MessageId | None, retain: bool
    ) -> list[MessageId]:
        batches: list[bytes] = []
        run: list[bytes] = []
        of: tuple[str, Kind] | None = None
        first, time_us = self._told + 1, int(time() * 1e6)

        def close() -> None:
            if run and of is not None:
                start = self._told - len(run) + 1
                every = [headers] * len(run) if headers else []
                parents = [parent] * len(run) if parent is not None else []
                batches.append(pack(of[0], self._session, start, int(self.me), of[1], time_us, run, every, parents))
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
        ids = [(self._session, number) for number in range(first, self._told + 1)]
        try:
            await self._line.ask(Tell(batches, retain))
        except Closed as error:
            raise Uncertain(f"{error}; it may have been published or not", ids[0]) from None
        return ids

    # Subscribing.

    def subscribe(self, pattern: str, where: Any = None, type: type | None = None, **options: Any) -> Any:
        """See ``Bus.subscribe``. Live subscriptions take ``retain``, ``guarantee``, ``deadline``, ``backlog`` and
        ``shared``."""
        self._check_open()
        levels_of(pattern)
        if "durable" in options or "start" in options:
            name = options.pop("durable", None)
            return self.durable.subscribe(pattern, where=where, type=type, name=name, **options)
        checked_type(type)
        self._numbers += 1
        subscription = ClientSubscription(
            self, self._numbers, pattern, str(where) if where is not None else "", type, options
        )
        self._subscriptions[self._numbers] = subscription
        return subscription

    def on(self, pattern: str, **options: Any) -> Callable[[F], F]:
        """See ``Bus.on``: the function is called with every event, or its body if that is what it is annotated with."""

        def decorated(call: F) -> F:
            wanted, bodies = handled_type(call)
            subscription = self.subscribe(pattern, **{"type": wanted, **options})
            task = asyncio.ensure_future(call_with_events(subscription, call, bodies))
            self._calling.add(task)
            task.add_done_callback(self._calling.discard)
            call.subscription = subscription  # type: ignore[attr-defined]
            return call

        return decorated

    def log(self, topic: str) -> Log:
        """See ``Bus.log``."""
        return self.durable.log(topic)

    def mailbox(self, name: str, topics: str | Sequence[str] = ()) -> Mailbox:
        """See ``Bus.mailbox``."""
        return self.durable.mailbox(name, topics)

    def _heard(self, heard: Heard) -> None:
        subscription = self._subscriptions.get(heard.number)
        if subscription is not None:
            subscription.heard(heard)

    def _broken(self) -> None:
        self._breaks += 1
        for subscription in self._subscriptions.values():
            subscription.gap()
        if self._subscriptions and (self._restoring is None or self._restoring.done()):
            self._restoring = asyncio.ensure_future(self._restore())

    async def _restore(self) -> None:
        """Live subscriptions begin again, at whichever member there is. Those that somebody is opening are asked for by
        whoever does: one that is asked for twice misses what comes between."""
        pause_s = PAUSE_S
        while not self.closed:
            breaks = self._breaks
            try:
                await self._line.connected()
                for subscription in list(self._subscriptions.values()):
                    if subscription.begun and not (subscription.closed or subscription.ended):
                        await self._begin_again(subscription)
                if self._breaks == breaks:  # else it broke again behind the last answer
                    return
            except PluribusError:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _begin_again(self, subscription: ClientSubscription) -> None:
        """One that is refused ends: the others must not begin again and again because of it."""
        try:
            await subscription.listen()
        except (Closed, Unreachable):
            raise
        except PluribusError as error:
            subscription.end(error)

    # The end.

    def stats(self) -> dict[str, dict[str, Any]]:
        connections, subscriptions = self._line.connections, len(self._subscriptions)
        return {"client": {"connections": connections, "subscriptions": subscriptions, "malformed": self.malformed}}

    async def close(self) -> None:
        """What was published durably is confirmed first, or raises as ``flush`` does."""
        if self.closed:
            return
        try:
            await self.durable.flush()
            for style in self._styles.all():
                await style.close()
        finally:
            self.closed = True
            await self.durable.close()
            for subscription in list(self._subscriptions.values()):
                await subscription.close()
            for task in (*self._calling, *([self._restoring] if self._restoring is not None else [])):
                task.cancel()
            await self._line.close()

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the client is closed: connect again")

    async def _closed_after(self, error: BaseException | None) -> None:
        try:
            await self.close()
        except PluribusError as lost:
            if error is None:
                raise
            error.add_note(str(lost))

    async def __aenter__(self) -> ClientBus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closed_after(error)


class ClientSubscription:
    """A live subscription of a client; use it with ``async with`` and ``async for``."""

    def __init__(
        self, bus: ClientBus, number: int, pattern: str, where: str, kind: type | None, options: dict[str, Any]
    ) -> None:
        self._bus = bus
        self._number = number
        self.pattern = pattern
        self._where = where
        self._type = kind
        self._options = options
        self._shared = options.get("shared") is not None
        self._events: deque[Event[Any] | Gap] = deque()
        self._unread = 0
        self._under_way = False
        """Of a shared subscription: an event was handed out, and is finished when the next one is asked for."""
        self._arrival = asyncio.Event()
        self.begun = self.closed = False
        self.ended: PluribusError | None = None
        """Why there will be no more events, if it ended by itself."""
        self._opening: asyncio.Future[None] | None = None

    async def open(self) -> ClientSubscription:
        while not self.begun:
            self._check_open()
            if self._opening is None or self._opening.done():
                self._opening = asyncio.ensure_future(self.listen())
            await asyncio.shield(self._opening)  # once, however many read
            self._check_open()
            self.begun = True
        return self

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the subscription to {self.pattern!r} is closed: subscribe again")

    async def listen(self) -> None:
        self._unread, self._under_way = 0, False
        if self._shared:  # what came from another member is given to others, who are told so
            self._events = deque(event for event in self._events if isinstance(event, Gap))
        await self._bus._line.ask(Listen(self._number, self.pattern, self._where, self._options))

    def heard(self, heard: Heard) -> None:
        if heard.missed:
            self._events.append(Gap(f"{heard.missed} events of {self.pattern!r} were not read in time", heard.missed))
        kind = self._type
        for live in heard.events:
            try:
                event = _event(live)
            except MalformedFrame:  # of another release of the program, perhaps: no reason to break with the member
                self._bus.malformed += 1
                self._read_one()
                continue
            if kind is None or isinstance(event.body, kind):
                self._events.append(event)
            else:
                self._read_one()
        if heard.ended:
            self.ended = Overflow(heard.ended)
        self._arrival.set()

    def end(self, error: PluribusError) -> None:
        self.ended = error
        self._arrival.set()

    def gap(self) -> None:
        """The connection broke: events may be missing."""
        if self.begun and not self.ended:
            self._events.append(Gap(f"the connection broke, and events of {self.pattern!r} may be missing here"))
            self._arrival.set()

    def _read_one(self) -> None:
        self._unread += 1
        if self._unread >= (1 if self._shared else READ_EVENTS):
            self._bus._line.tell(0, Read(self._number, self._unread))
            self._unread = 0

    async def receive(self, timeout: float | None = None) -> Event[Any]:
        """The next event; ``Gap`` in the place of missing ones; ``Overflow`` at the end of one that was too slow and
        had asked for that; ``TimeoutError``, ``Closed`` as with groups."""
        async with asyncio.timeout(timeout):
            await self.open()
            if self._under_way:
                self._under_way = False
                self._read_one()
            while not self._events:
                self._check_open()
                if self.ended is not None:
                    raise self.ended
                self._arrival.clear()
                await self._arrival.wait()
        event = self._events.popleft()
        if isinstance(event, Gap):
            raise event
        if self._shared:
            self._under_way = True
        else:
            self._read_one()
        return event

    async def receive_many(self, most: int = 4_096, timeout: float | None = None) -> list[Event[Any]]:
        """At least one event, and as many as are there."""
        events = [await self.receive(timeout)]
        while self._events and not self._shared and len(events) < most and isinstance(self._events[0], Event):
            events.append(await self.receive(0))
        return events

    def __aiter__(self) -> AsyncIterator[Event[Any]]:
        return self

    async def __anext__(self) -> Event[Any]:
        try:
            return await self.receive()
        except Closed:
            if not self.closed:  # the connection broke before it had begun
                raise
            raise StopAsyncIteration from None

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._arrival.set()
            self._bus._subscriptions.pop(self._number, None)
            with suppress(PluribusError):
                if self._opening is not None and not self._opening.done():  # else the member would begin it afterwards
                    await asyncio.wait([self._opening])
                if self._opening is not None and not self._bus.closed:
                    await self._bus._line.ask(Unlisten(self._number))

    async def __aenter__(self) -> ClientSubscription:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _event(live: Live) -> Event[Any]:
    body: Any = live.body
    if live.kind != BYTES:
        body = decode_bodies(live.kind, msgspec.Raw(array_header(1) + live.body), 1)[0]
    headers = MappingProxyType(live.headers) if live.headers else NO_HEADERS
    return Event(
        body, live.sender, live.id, live.topic, live.time, headers, live.parent, live.retained, again=live.again
    )
