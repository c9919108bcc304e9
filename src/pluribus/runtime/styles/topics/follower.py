"""Durable subscriptions and mailboxes: reading durable topics from the last committed offset on.

The keepers keep the offsets of a subscription that has a name. ``async for`` hands out one event after another; when
the next one is asked for, the last one counts as handled, and its offset is committed soon, several at a time. A crash
in between brings the last few again. With ``commit="manual"`` only ``await subscription.commit()`` commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ....core.errors import BadInput, Closed, PluribusError, Refused
from ....core.ids import MessageId
from ....pubsub.durable import commands
from ....pubsub.durable.batch import StoredBatch
from ....pubsub.durable.commands import EARLIEST, LATEST
from ....pubsub.durable.requests import FETCH_BYTES, At, Find, Follow, Followed, Known, Watch
from ....pubsub.event import NO_HEADERS, Event
from ....wire.bodies import checked_type

if TYPE_CHECKING:
    from .durable import Durable

B = TypeVar("B")

AUTO, MANUAL = "auto", "manual"
WAIT_S = 20.0
MAILBOXES = "mailbox"

Start = str | int | float | datetime


def refuse_live(**options: Any) -> None:
    """``BadInput`` if an option is given that only live events have."""
    if options.pop("shared") is not None:
        raise BadInput(
            "shared= is for live events, and durable= and start= read kept ones: share live events, or subscribe with "
            "durable= and a name of its own for each"
        )
    for name, value in options.items():
        if value is not None:
            raise BadInput(f"{name}= is for live events: leave it out, or leave out durable= and start=")


def unpacked(batch: StoredBatch) -> list[Event[Any]]:
    """The events of a batch, as subscribers get them."""
    head, topic, extra = batch.head, batch.topic, batch.extra
    headers, parents, ids, senders = extra.headers, extra.parents, extra.ids, extra.senders
    times = (batch.times / 1e6).tolist()
    offsets = batch.offsets.tolist()
    shift = head.first - batch.offset
    events: list[Event[Any]] = []
    for place, body in enumerate(batch.decoded()):
        offset = offsets[place]
        given = headers[place] if headers else None
        events.append(
            Event(
                body,
                senders[place] if senders else head.sender,
                ids[place] if ids else (head.session, offset + shift),
                topic,
                times[place],
                MappingProxyType(given) if given else NO_HEADERS,
                parents[place] if parents else None,
                False,
                offset,
            )
        )
    return events


class DurableSubscription(Generic[B]):
    """Made by ``bus.subscribe(topic, durable=name)``; use it with ``async with`` and ``async for``.

    ``start`` is ``"earliest"``, ``"latest"``, an offset (int) or a time (seconds since 1970 as float, or a datetime);
    it is used when the name is new; later the committed offsets are used. Without a name no offsets are kept: a replay
    from ``start`` on. ``where`` is a filter that the keeper applies. A second subscriber of a name takes over at once;
    the first one is told so, drops the events that it had fetched, and its reading ends with ``Refused``.
    """

    def __init__(
        self,
        durable: Durable,
        patterns: Sequence[str],
        *,
        name: str | None = None,
        start: Start = "latest",
        where: Any = None,
        type: type[B] | None = None,
        commit: str = AUTO,
        max_bytes: int = FETCH_BYTES,
    ) -> None:
        if commit not in (AUTO, MANUAL):
            raise BadInput(f"commit={commit!r} is none: use {AUTO!r} or {MANUAL!r}")
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise BadInput(f"start={start!r} is none: use 'earliest', 'latest', an offset, or a time")
        self._durable = durable
        self._patterns = list(patterns)
        self.name = name
        self._start = start
        self._where = str(where) if where is not None else ""
        self._type = checked_type(type)
        self._auto = commit == AUTO and name is not None
        self._max_bytes = max_bytes
        self._epoch = 0
        self._offsets: dict[str, int] = {}
        """By topic: the offset at which to read on."""
        self._ready: list[Event[B]] = []
        self._at = 0
        self._handled: dict[str, int] = {}
        """By topic with offsets to commit: the offset behind the last event that was handled."""
        self._read: dict[str, int] = {}
        """By topic: the offset behind the last event that was read, handled or not, since everything was committed."""
        self._committing: asyncio.Task[None] | None = None
        self._refused: PluribusError | None = None
        self._reading: asyncio.Task[Followed] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._begun = self.closed = False

    @property
    def pattern(self) -> str:
        return ", ".join(self._patterns)

    async def open(self) -> None:
        """Attach; ``async with`` does it."""
        if self._begun:
            return
        starts = await self._starts()
        if self.name is None:
            self._offsets = starts
        else:
            start = {"earliest": EARLIEST, "latest": LATEST}.get(str(self._start), -1)
            if isinstance(self._start, int):
                start = self._start
            attach = commands.Attach(self.name, self._durable._new_number(), self._patterns, start, starts)
            outcome = await self._durable.do(attach)
            self._epoch, self._offsets = outcome.number, dict(outcome.offsets)
            self._watching = asyncio.ensure_future(self._watch(self.name))
        self._begun = True

    async def _watch(self, name: str) -> None:
        """When another subscriber takes over, drop events that were fetched and not handed out: they are the
        other's."""
        while not self.closed:
            try:
                taken = await self._durable.ask(Watch(name, self._epoch, WAIT_S), None)
            except PluribusError:  # an older keeper does not know: then the next commit tells
                return
            if taken:
                self._refused = self._refused or Refused(f"another consumer took over the subscription {name!r}")
                del self._ready[self._at :]
                if self._reading is not None:
                    self._reading.cancel()
                return

    async def _starts(self) -> dict[str, int]:
        """Offsets of existing topics, where the keepers cannot tell them from ``start`` alone."""
        timed = not isinstance(self._start, (str, int))
        if self.name is not None and not timed:
            return {}
        starts: dict[str, int] = {}
        for pattern in self._patterns:
            known: list[Known] = await self._durable.ask(Find(pattern))
            for one in known:
                starts[one.topic] = await self._start_of(one)
        return starts

    async def _start_of(self, known: Known) -> int:
        start = self._start
        if isinstance(start, str):
            return known.first if start == "earliest" else known.end
        if isinstance(start, int):
            return min(max(start, known.first), known.end)
        seconds = start.timestamp() if isinstance(start, datetime) else start
        found: int = await self._durable.ask(At(known.topic, int(seconds * 1e6)))
        return found

    # Reading.

    def __aiter__(self) -> AsyncIterator[Event[B]]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event[B]]:
        while True:
            try:
                event = await self.receive()
            except Closed:
                return
            yield event

    async def receive(self, timeout: float | None = None) -> Event[B]:
        """The next event; ``TimeoutError`` after ``timeout`` seconds, ``Closed`` when the subscription is closed."""
        while self._at >= len(self._ready):  # another reader may have taken the events
            await self._fill(timeout)
        event = self._ready[self._at]
        self._at += 1
        if self._auto and self._at > 1:
            self._handle(self._ready[self._at - 2])
        return event

    async def receive_many(self, most: int = 4_096, timeout: float | None = None) -> list[Event[B]]:
        """At least one event, and as many as are there; the next call counts them as handled."""
        while self._at >= len(self._ready):
            await self._fill(timeout)
        events = self._ready[self._at : self._at + most]
        self._at += len(events)
        return events

    def not_read(self, count: int) -> None:
        """The caller did not look at the last ``count`` events: they are handed out again, and closing does not commit
        them. For callers that fetch more at a time than they show (``pluribus.sync``)."""
        assert count <= self._at
        self._at -= count

    async def _fill(self, timeout: float | None) -> None:
        if self._auto and self._ready:
            self._handle_all()
        self._note_read()
        self._ready, self._at = [], 0
        if self.closed:
            raise Closed("this subscription is closed: subscribe again")
        if timeout is None:
            await self._more()
        else:
            async with asyncio.timeout(timeout):
                await self._more()

    async def _more(self) -> None:
        """Fetch more. The request goes on when its caller gives up: its events are for the next call."""
        await self.open()
        while not self._ready:
            if self._refused is not None:
                raise self._refused
            if self.closed:
                raise Closed("this subscription is closed: subscribe again")
            if self._reading is None:
                follow = Follow(self._patterns, self._offsets, self._max_bytes, WAIT_S, self._where)
                self._reading = asyncio.ensure_future(self._durable.ask(follow, None))
            reading = self._reading
            await asyncio.wait([reading])
            if self._reading is reading:
                self._reading = None
                if reading.cancelled():
                    continue
                self._take(reading.result())

    def _take(self, found: Followed) -> None:
        kind = self._type
        for offset, packed in found.pieces:
            batch = StoredBatch(packed, offset)
            batch = batch.cut(self._offsets.get(batch.topic, 0), 1 << 62)
            events = unpacked(batch)
            self._ready += events if kind is None else [event for event in events if isinstance(event.body, kind)]
        for topic, offset in found.offsets.items():
            self._offsets[topic] = max(self._offsets.get(topic, 0), offset)

    # Committing.

    def _handle(self, event: Event[B]) -> None:
        assert event.offset is not None
        self._handled[event.topic] = event.offset + 1
        self._commit_soon()

    def _handle_all(self) -> None:
        for event in self._ready:
            assert event.offset is not None
            self._handled[event.topic] = event.offset + 1
        self._commit_soon()

    def _note_read(self) -> None:
        if self.name is not None:
            for event in self._ready[: self._at]:
                assert event.offset is not None
                self._read[event.topic] = event.offset + 1

    def _commit_soon(self) -> None:
        if self._committing is None and self.name is not None:
            self._committing = asyncio.ensure_future(self._commit_handled())

    async def _commit_handled(self) -> None:
        """Commit, one request at a time; events that are handled meanwhile go with the next."""
        try:
            await asyncio.sleep(0.01)
            while self._handled:
                await self._commit_now()
        except Refused as error:
            self._refused = error
        except PluribusError:
            pass  # tried long enough: events that are not committed are delivered again
        finally:
            self._committing = None

    async def _commit_now(self) -> None:
        handled, self._handled = self._handled, {}
        assert self.name is not None
        try:
            await self._durable.do(commands.Commit(self.name, self._epoch, handled))
        except BaseException:  # to be committed with the next
            self._handled_up_to(handled)
            raise

    def _handled_up_to(self, offsets: dict[str, int]) -> None:
        for topic, offset in offsets.items():
            self._handled[topic] = max(self._handled.get(topic, 0), offset)

    async def commit(self, event: Event[B] | None = None) -> None:
        """Commit everything up to this event of its topic, or everything that was read; returns when a majority of the
        voters have that on disk. ``Refused`` if another subscriber took over."""
        if self.name is None:
            raise BadInput("this subscription has no name, so nothing is kept of it: subscribe with durable=NAME")
        if event is None:
            self._note_read()
            read, self._read = self._read, {}
            self._handled_up_to(read)
        else:
            assert event.offset is not None
            self._handled_up_to({event.topic: event.offset + 1})
        if self._handled:
            await self._commit_now()

    @property
    def offsets(self) -> dict[str, int]:
        """By topic: the offset at which reading goes on."""
        return dict(self._offsets)

    # The end.

    async def close(self) -> None:
        """Close. Events that were handed out by iterating count as handled, and are committed."""
        if self.closed:
            return
        if self._auto and self._begun:
            for event in self._ready[: self._at]:
                assert event.offset is not None
                self._handled[event.topic] = event.offset + 1
        try:
            with suppress(PluribusError):
                if self._committing is not None:
                    await self._committing
                if self._handled and self._refused is None:
                    await self._commit_now()
        finally:  # also if the caller gives up
            self.abandon()

    def abandon(self) -> None:
        self.closed = True
        for task in (self._reading, self._committing, self._watching):
            if task is not None:
                task.cancel()
        self._durable.forgotten(self)

    def __repr__(self) -> str:
        name = "without a name" if self.name is None else repr(self.name)
        return f"<durable subscription {name} to {self.pattern!r}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._auto = False  # the event that was being handled is delivered again
        await self.close()


class Mailbox(DurableSubscription[Any]):
    """Notifications that are kept until their owner has dealt with them. Made by ``bus.mailbox(name)``.

    Events that are posted to a mailbox, and the events of the topics that it watches, wait on the keepers' disks. The
    owner asks for them (``receive``, ``async for``) and acknowledges each when it is done with it. After a crash of the
    owner or of a keeper, every event that was not acknowledged is delivered again, in order, to the next program that
    opens the mailbox.
    """

    def __init__(self, durable: Durable, name: str, topics: Sequence[str]) -> None:
        self.address = f"{MAILBOXES}/{name}"
        super().__init__(durable, [self.address, *topics], name=self.address, start="latest", commit=MANUAL)

    async def acknowledge(self, event: Event[Any]) -> None:
        """Acknowledge this event, and those of its topic before it: they are not delivered again."""
        await self.commit(event)

    async def post(
        self,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        id: MessageId | None = None,
    ) -> MessageId:
        """Post an event to this mailbox; the options are those of ``bus.publish``."""
        return await self._durable.publish(self.address, body, headers=headers, parent=parent, timeout=timeout, id=id)
