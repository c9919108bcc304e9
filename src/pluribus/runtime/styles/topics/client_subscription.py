"""A live subscription of a client: its member sends what it wants, and this program counts what it has read."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ....core.errors import BadInput, Closed, Gap, MalformedFrame, Overflow, PluribusError
from ....filters import Filter
from ....pubsub.event import NO_HEADERS, Event
from ....pubsub.interest import Interest
from ....pubsub.places import Near, near_and
from ....pubsub.requests import Heard, Listen, Live, Read, SetWhere, Unlisten
from ....wire.bodies import BYTES, array_header, decode_bodies
from ...loop.callbacks import Call, call_with_events
from .worker import HELD_S, KEEPS_ITS_CONDITION

if TYPE_CHECKING:
    from .client import ClientTopics

log = logging.getLogger("pluribus")

READ_EVENTS = 1_024
"""Events after which the member is told how far the client has read."""


class ClientSubscription:
    """A live subscription of a client; use it with ``async with`` and ``async for``."""

    def __init__(
        self, topics: ClientTopics, listen: Listen, interest: Interest, call: Call | None, bodies: bool
    ) -> None:
        self._topics = topics
        self._listen = listen
        self.interest = interest
        self.near: Near | None = None
        self.where: str | None = None
        self.shared = listen.shared or ""
        self._call, self._bodies = call, bodies
        self._calling: asyncio.Task[None] | None = None
        self._events: deque[Event[Any] | Gap] = deque()
        self._unread = 0
        self._asked = False
        """Of a shared subscription: it has asked for an event. Asking finishes the event before."""
        self._listening = False
        self._readers = 0
        self._arrival = asyncio.Event()
        self.begun = self.closed = False
        self.missed = 0
        """Events that were dropped because the program did not read them in time, or while there was no connection."""
        self.late = 0
        """Events that were dropped because they came after the deadline."""
        self.malformed = 0
        """Events that this program could not decode."""
        self._chooses = False
        """True if the condition has changed: what the member sent before is checked here."""
        self.ended: PluribusError | None = None
        """Why there will be no more events, if the subscription ended by itself."""
        self._opening: asyncio.Future[None] | None = None

    @property
    def pattern(self) -> str:
        return self.interest.pattern

    @property
    def waiting(self) -> int:
        """Events that wait to be read."""
        return len(self._events)

    async def open(self) -> ClientSubscription:
        while not self.begun:
            self._check_open()
            if self._opening is None or self._opening.done():
                self._opening = asyncio.ensure_future(self.listen())
            await asyncio.shield(self._opening)  # once, however many read
            self._check_open()
            self.begun = True
        if self._call is not None and self._calling is None:
            self._calling = asyncio.ensure_future(call_with_events(self, self._call, self._bodies))
        return self

    async def open_quietly(self) -> None:
        """Open, without a caller that waits."""
        try:
            await self.open()
        except PluribusError as error:
            if not self.closed:
                log.error("the call-back of %r is called no more: its subscription failed: %s", self.pattern, error)

    def move(self, latitude: float, longitude: float) -> None:
        """See ``Subscription.move``."""
        if self.near is None:
            raise BadInput(f"the subscription to {self.pattern!r} is not bound to a place: subscribe with near=")
        self.near = self.near.moved(latitude, longitude)
        self.interest.set_where(self.near.condition(self.where))

    def set_where(self, where: str | Filter | None) -> None:
        """See ``Subscription.set_where``."""
        if self.shared:
            raise BadInput(KEEPS_ITS_CONDITION)
        self.interest.set_where(near_and(self.near, where))
        self.where, self._chooses = None if where is None else str(where), True
        if self.interest.translate is None:  # else the member does not know the words of the condition
            self._listen = msgspec.structs.replace(self._listen, where=self.where or "")
            if self._opening is not None and not self.closed:
                self._topics.line.tell(0, SetWhere(self._listen.number, self.where or ""))

    def stats(self) -> dict[str, int]:
        return {"waiting": self.waiting, "missed": self.missed, "late": self.late, "malformed": self.malformed}

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the subscription to {self.pattern!r} is closed: subscribe again")

    async def listen(self) -> None:
        self._unread, self._listening = 0, True
        if self.shared:  # events from another member are given to other subscribers, which are told so
            self._events = deque(event for event in self._events if isinstance(event, Gap))
        try:
            await self._topics.line.ask(self._listen)
        finally:
            self._listening = self._asked = False
            self._arrival.set()

    def heard(self, heard: Heard) -> None:
        self.missed += heard.missed
        self.late += heard.late
        if heard.missed:
            self._events.append(Gap(f"{heard.missed} events of {self.pattern!r} were not read in time", heard.missed))
            self._asked = False
        for live in heard.events:
            try:
                event = _event(live)
            except MalformedFrame:  # of another release of the program, perhaps: no reason to close the connection
                self.malformed += 1
                self._topics.malformed += 1
                self._read_one()
                continue
            wanted = self._wanted(event)
            if wanted is None:
                self._read_one()
            else:
                self._events.append(wanted)
        if heard.ended:
            self.ended = Overflow(heard.ended)
        self._arrival.set()
        self._soon_given_back()

    def _wanted(self, event: Event[Any]) -> Event[Any] | None:
        """Apply the conditions that the member cannot check: types and concepts of this program."""
        interest = self.interest
        if interest.type is not None and not isinstance(event.body, interest.type):
            return None
        if interest.translate is None and self.near is None and not self._chooses:
            return event
        chosen = interest.chosen([event])
        return chosen[0] if chosen else None

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
        if self._unread >= (1 if self.shared else READ_EVENTS):
            self._topics.line.tell(0, Read(self._listen.number, self._unread))
            self._unread = 0

    async def receive(self, timeout: float | None = None) -> Event[Any]:
        """The next event; ``Gap`` in the place of missing ones; ``Overflow`` at the end of a subscription with
        ``slow="disconnect"`` that was too slow; ``TimeoutError``, ``Closed`` as with groups."""
        async with asyncio.timeout(timeout):
            self._readers += 1
            try:
                await self.open()
                await self._arrived()
            finally:
                self._readers -= 1
                self._soon_given_back()
        event = self._events.popleft()
        if isinstance(event, Gap):
            raise event
        if self.shared:
            self._asked = False
        else:
            self._read_one()
        return event

    async def _arrived(self) -> None:
        while not self._events:
            self._check_open()
            if self.ended is not None:
                raise self.ended
            if self.shared and not self._asked and not self._listening:
                self._asked = True
                self._read_one()
            self._arrival.clear()
            await self._arrival.wait()

    def _soon_given_back(self) -> None:
        """An event that came for a reader that has asked and gone away goes to another subscriber."""
        if self.shared and self._events and not self._readers:
            asyncio.get_running_loop().call_later(HELD_S, self._give_back)

    def _give_back(self) -> None:
        if self._readers or self._listening or self.closed or not self._asked:
            return
        before = len(self._events)
        self._events = deque(event for event in self._events if isinstance(event, Gap))
        if len(self._events) < before:
            self._asked = False
            self._topics.line.tell(0, Read(self._listen.number, 0))

    async def receive_many(self, most: int = 4_096, timeout: float | None = None) -> list[Event[Any]]:
        """At least one event, and as many as are there."""
        events = [await self.receive(timeout)]
        while self._events and not self.shared and len(events) < most and isinstance(self._events[0], Event):
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
            if self._calling is not None and self._calling is not asyncio.current_task():
                self._calling.cancel()
            self._topics.subscriptions.pop(self._listen.number, None)
            with suppress(PluribusError):
                if self._opening is not None and not self._opening.done():  # else the member would begin it afterwards
                    await asyncio.wait([self._opening])
                if self._opening is not None and not self._topics.closed:
                    await self._topics.line.ask(Unlisten(self._listen.number))

    def __repr__(self) -> str:
        return f"<subscription to {self.pattern!r} of a client>"

    def __await__(self) -> Generator[Any, None, ClientSubscription]:
        return self.open().__await__()

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
