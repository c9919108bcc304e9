"""Topics on one member: live topics, and the answers to clients."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from ....core.errors import Closed, Gap, Overflow, TooLarge
from ....core.limits import CLIENT_EVENTS_MAX
from ....pubsub.durable.batch import StoredBatch, checked
from ....pubsub.event import Event
from ....pubsub.requests import (
    Advertise,
    Advertised,
    Adverts,
    Gather,
    Heard,
    Listen,
    Live,
    Read,
    SetWhere,
    Subscribers,
    Tell,
    Unlisten,
)
from ....wire.bodies import Opaque, encode_body
from ..style import Asker, Style
from .pubsub import Topics
from .subscription import Subscription

PUSH_EVENTS_MAX = 1_024
LISTENS_MAX = 1_024
"""Live subscriptions of one client."""

log = logging.getLogger("pluribus")


class TopicsStyle(Style):
    """``live`` publishes and subscribes; the questions are those of ``pubsub/requests.py``."""

    closes = 90
    on_clients = "pluribus.runtime.styles.topics.client:ClientTopicsStyle"

    def __init__(self, bus: Any) -> None:
        super().__init__(bus)
        self.live = Topics(bus)
        bus.publish = self.live.publish  # the same, a call less for every event

    async def drain(self, timeout: float) -> None:
        await self.live.drain(timeout)

    async def close(self) -> None:
        await self.live.close()

    def abandon(self) -> None:
        self.live.abandon()

    def validate(self) -> None:
        self.live.validate()

    # Questions of clients.

    async def handle(self, request: Any, asker: Asker) -> Any:
        live = self.live
        if isinstance(request, Read):
            if (listening := asker.held.get(("listen", request.number))) is not None:
                assert isinstance(listening, Listening)
                listening.read(request.count)
            return None
        if isinstance(request, SetWhere):
            if (listening := asker.held.get(("listen", request.number))) is not None:
                assert isinstance(listening, Listening)
                listening.set_where(request.where or None)
            return None
        if isinstance(request, Tell):
            return await self._tell(request)
        if isinstance(request, Listen):
            return await self._listen(request, asker)
        if isinstance(request, Unlisten):
            ended = asker.held.pop(("listen", request.number), None)
            return None if ended is None else await ended()
        if isinstance(request, Adverts):
            found = await live.topics(request.pattern)
            return [
                Advertised(one.pattern, one.type, one.about, {int(who): name for who, name in one.members.items()})
                for one in found
            ]
        if isinstance(request, Advertise):
            return await self._advertise(request, asker)
        if isinstance(request, Gather):
            with suppress(TimeoutError):
                await live.wait_for(request.members, request.wait_s)
            view = (await live.base()).group.view
            return {int(member): view.names.get(member, "") for member in view.members}
        if isinstance(request, Subscribers):
            try:
                return await live.wait_for_subscribers(request.topic, request.count, request.wait_s)
            except TimeoutError:
                return await live.wait_for_subscribers(request.topic, 0, None)
        return await super().handle(request, asker)

    async def _tell(self, request: Tell) -> list[tuple[int, int]]:
        ids: list[tuple[int, int]] = []
        for packed in request.batches:
            checked(packed)
            batch = StoredBatch(packed, 0)
            ends, data, extra, topic, kind = batch.ends.tolist(), batch.bodies, batch.extra, batch.topic, batch.kind
            for place in range(len(batch)):
                body = bytes(data[ends[place] : ends[place + 1]])
                headers = extra.headers[place] if extra.headers else None
                parent = extra.parents[place] if extra.parents else None
                sent = (topic, kind, body, headers, parent, request.retain, request.timeout_s)
                sender, number = await self.live.publish_encoded(*sent)
                ids.append((int(sender), number))
        return ids

    async def _listen(self, request: Listen, asker: Asker) -> None:
        if sum(key[0] == "listen" for key in asker.held) >= LISTENS_MAX:
            raise Overflow(f"{LISTENS_MAX:,} live subscriptions of one client: close some")
        before = asker.held.pop(("listen", request.number), None)
        if before is not None:  # the client asked twice: its events come once
            await before()
        listening = asker.held["listen", request.number] = Listening(asker, request, self.live)
        await listening.start()

    async def _advertise(self, request: Advertise, asker: Asker) -> None:
        withdraw = asker.held.pop(("advert", request.pattern), None)
        if request.withdrawn:
            return None if withdraw is None else await withdraw()
        await self.live.advertise_named(request.pattern, request.bodies, request.about)

        async def unadvertise() -> None:
            with suppress(Closed):
                await self.live.unadvertise(request.pattern)

        asker.held["advert", request.pattern] = unadvertise
        return None


class Listening:
    """One live subscription of one client: events are pushed to the client, as far as it has room. Calling it ends
    it."""

    def __init__(self, asker: Asker, request: Listen, live: Topics) -> None:
        self._asker = asker
        self._number = request.number
        self._subscription: Subscription[Any] = live.subscribe(
            request.pattern,
            request.where or None,
            guarantee=request.guarantee,
            deadline=request.deadline_s,
            backlog=request.backlog,
            slow=request.slow,
            retain=request.retain,
            shared=request.shared,
        )
        if request.shared and request.bodies:
            self._subscription.interest.of_types(request.bodies, request.kinds)
        shares = bool(self._subscription.shared)
        self._push_events_max = 1 if shares else PUSH_EVENTS_MAX
        self._under_way_max = 1 if shares else CLIENT_EVENTS_MAX
        """Of a shared subscription, the client gets one event at a time, when it asks."""
        self._under_way = 1 if shares else 0
        self._room = asyncio.Event()
        if not shares:
            self._room.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._subscription.open()
        self._task = asyncio.ensure_future(self._push())

    def read(self, count: int) -> None:
        if not count and self._subscription._worker is not None:
            self._subscription._worker.give_back()
        self._under_way = max(self._under_way - count, 0)
        if self._under_way < self._under_way_max:
            self._room.set()

    def set_where(self, where: str | None) -> None:
        self._subscription.set_where(where)

    async def _push(self) -> None:
        subscription = self._subscription
        late = 0
        with suppress(OSError):
            while not subscription.closed:
                await self._room.wait()
                missed = 0
                events: list[Event[Any]] = []
                try:
                    events = await subscription.receive_many(self._push_events_max)
                except Gap as gap:
                    missed = max(gap.missed, 1)
                except Overflow as error:  # with slow="disconnect", a client that reads too slowly is cut off
                    await self._asker.push("topics", Heard(self._number, [], 0, str(error)))
                    return
                except Closed:
                    return
                self._under_way += len(events)
                if self._under_way >= self._under_way_max:
                    self._room.clear()
                await self._tell([_live(event) for event in events], missed, subscription.late - late)
                late = subscription.late

    async def _tell(self, events: list[Live], missed: int, late: int) -> None:
        """Send the events in as many frames as needed. An event that is too long for any frame counts as missed."""
        try:
            await self._asker.push("topics", Heard(self._number, events, missed, "", late))
        except TooLarge as error:
            if len(events) == 1:
                log.warning("a client missed an event of %s: %s", events[0].topic, error)
                self._under_way -= 1
                await self._tell([], missed + 1, late)
                return
            half = len(events) // 2
            await self._tell(events[:half], missed, late)
            await self._tell(events[half:], 0, 0)

    async def __call__(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await self._subscription.close()


def _live(event: Event[Any]) -> Live:
    body = event.body
    kind, encoded = (body.kind, body.encoded) if isinstance(body, Opaque) else encode_body(body)
    headers = dict(event.headers) if event.headers else None
    parent = None if event.parent is None else (int(event.parent[0]), event.parent[1])
    id = (int(event.id[0]), event.id[1])
    return Live(
        event.topic, kind, encoded, int(event.sender), id, event.time, headers, parent, event.retained, event.again
    )
