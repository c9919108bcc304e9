"""A subscription as a program holds it: ``async with bus.subscribe(...) as events: async for event in events``.

It may also be awaited (``events = await bus.subscribe(...)``, closed by hand), or be given a call-back. Reading works
as in groups: the iterator makes events from whole runs and gives the loop a turn after ``TURN_S_MAX`` of work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from itertools import islice
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...._speed.quick import flatten
from ...._speed.waiting import Arrivals
from ....core.errors import BadInput, Closed, Gap, MalformedFrame, Overflow
from ....core.events import Missed
from ....core.ids import MessageId
from ....core.limits import STALL_S, TURN_S_MAX
from ....filters import Filter
from ....pubsub.backlog import WAIT, Backlog
from ....pubsub.batch import Batch, single_event
from ....pubsub.event import Event
from ....pubsub.interest import Interest
from ....pubsub.places import Near, near_and
from ...loop.callbacks import Call, call_with_events
from ...loop.futures import looked_at
from .worker import KEEPS_ITS_CONDITION, Worker

if TYPE_CHECKING:
    from .carrier import Carrier
    from .pubsub import Topics

log = logging.getLogger(__name__)

B = TypeVar("B")

RECEIVE_MANY = 4_096
LOOK_S_MIN = 0.01
"""The shortest deadline: a shorter one could never be measured by the clock."""


class Subscription(Generic[B]):
    """Made by ``bus.subscribe``. It begins when it is entered or awaited, and ends with ``close`` or with the bus."""

    def __init__(
        self,
        topics: Topics,
        interest: Interest,
        backlog: Backlog,
        *,
        order: str = "",
        deadline: float | None = None,
        retain: bool = True,
        shared: str | None = None,
        call: Call | None = None,
        bodies: bool = False,
    ) -> None:
        if deadline is not None and not deadline > 0:
            raise BadInput(f"deadline={deadline!r} is no time that an event may take: give seconds above 0")
        self.interest = interest
        self.backlog = backlog
        self.order = order
        self.deadline = deadline
        self.retain = retain
        self.near: Near | None = None
        self.where: str | None = None
        self.shared = shared or ""
        self._worker = Worker(self, topics) if shared else None
        """Of a shared subscription."""
        self.given: set[MessageId] = set()
        """Retained values that it was given, and that may still arrive as events."""
        self.late = 0
        """Events that were dropped because they came after the deadline."""
        self.closed = False
        self.ready = False
        """True if it gets events that are published from now on."""
        self._topics = topics
        self._call = call
        self._bodies = bodies
        """True if the call-back is given the body alone."""
        self._carrier: Carrier | None = None
        self._opening: asyncio.Future[Carrier] | None = None
        self._current: Iterator[Event[B]] = iter(())
        self._run: Iterator[Event[B]] = self._current
        """The run of events before late ones are left out: its rest tells whether the program still reads."""
        self._left = 0
        self._handed = False
        """Whether ``_current`` is an event that was handed over."""
        self._arrivals = Arrivals(topics.line)
        self._now = topics.now
        self._taken_at = 0.0
        self._watched = False
        self._calling: asyncio.Task[None] | None = None

    @property
    def pattern(self) -> str:
        return self.interest.pattern

    @property
    def missed(self) -> int:
        """Events that were dropped because the program did not read them in time."""
        return self.backlog.missed

    @property
    def waiting(self) -> int:
        """Events that wait to be read; of a shared subscription, those of its set that nobody has yet."""
        return self.backlog.waiting if self._worker is None else self._worker.waiting

    # Beginning and end

    async def open(self) -> Subscription[B]:
        self._check_open()
        if self._carrier is None:
            if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
                self._opening = asyncio.ensure_future(self._topics.begin(self))
                self._opening.add_done_callback(looked_at)
            opening = self._opening
            await asyncio.wait([opening])  # others may wait for the task too: it goes on when this caller gives up
            self._check_open()
            self._carrier = opening.result()
            if self._call is not None and self._calling is None:
                self._calling = asyncio.get_running_loop().create_task(call_with_events(self, self._call, self._bodies))
        return self

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the subscription to {self.pattern!r} is closed: subscribe again")

    async def open_quietly(self) -> None:
        """Open, without a caller that waits."""
        await self.open()

    async def close(self) -> None:
        """Unsubscribe. Events that were not read are dropped."""
        if self.closed:
            return
        self.end()
        try:
            if self._opening is not None and not self._opening.done():
                self._opening.cancel()
                await asyncio.wait([self._opening])
        finally:  # also if the caller gives up: others must not go on with it
            await self._topics.end(self)
        if self._calling is not None and self._calling is not asyncio.current_task():
            self._calling.cancel()
            await asyncio.gather(self._calling, return_exceptions=True)

    def end(self) -> None:
        """No more events will come."""
        self.closed = True
        if self._worker is not None:
            self._worker.end()
        self._current = iter(())
        self.backlog.close()
        if self._carrier is not None:
            self._carrier.crowd.discard(self)
        self._arrivals.wake()

    def __await__(self) -> Generator[Any, None, Subscription[B]]:
        return self.open().__await__()

    async def __aenter__(self) -> Subscription[B]:
        try:
            return await self.open()
        except asyncio.CancelledError:  # this subscription is never entered then, so its events would not be read
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Called by the table

    def arrived(self) -> None:
        backlog = self.backlog
        if backlog.slow == WAIT:
            if not self._watched:
                self._watched = True
                self._taken_at, self._left = self._now(), length_hint(self._run)
                self._topics.later(STALL_S, self._look)
            if self._carrier is not None and backlog.waiting > backlog.limit:
                self._carrier.crowd.add(self)
        elif backlog.missed and self._report_missed():
            pass
        self._arrivals.wake()

    def hand_over(self, batch: Batch) -> bool:
        """Give the only event of a batch to a program that waits for it, if nothing is there that comes before it."""
        if not self._arrivals._waiters or self.backlog or self.given or self.deadline is not None:
            return False
        try:
            event = single_event(batch)
        except MalformedFrame:
            return False
        self._current, self._handed = iter((event,)), True
        self._arrivals.wake()
        return True

    _reported = 0

    def _report_missed(self) -> bool:
        new = self.backlog.missed - self._reported
        self._reported = self.backlog.missed
        if new:
            self._topics.tell(Missed(self.pattern, new, "slow"))
        return new > 0

    def _look(self) -> None:
        """Check whether a reader for which publishers wait still reads."""
        self._watched = False
        if self.closed or not self.backlog.waiting:
            return
        left = length_hint(self._run)
        if left != self._left:  # it is still busy with the events that it took
            self._left, self._taken_at = left, self._now()
        if self._now() - self._taken_at >= STALL_S:
            dropped = self.backlog.give_up()
            log.warning("%d events of %r were dropped: nobody has read them for %g s", dropped, self.pattern, STALL_S)
            self._relieved()
            self._report_missed()
            self._arrivals.wake()
        else:
            self._watched = True
            self._topics.later(max(STALL_S - (self._now() - self._taken_at), LOOK_S_MIN), self._look)

    def _relieved(self) -> None:
        if self._carrier is not None and self in self._carrier.crowd and self.backlog.waiting <= self.backlog.limit:
            self._carrier.crowd.discard(self)
            self._carrier.wake()

    # Reading

    def _take(self) -> Iterator[Event[B]]:
        self._taken_at = self._now()
        events = self.backlog.take_some()
        if self.given:
            events = self._new(events)
        if self._carrier is not None and self._carrier.crowd:
            self._relieved()
        self._run = iter(events)
        return self._run if self.deadline is None else self._in_time(self._run, self.deadline)

    def _new(self, events: list[Event[B]]) -> list[Event[B]]:
        """Leave out events that were already given as retained values."""
        again = {event.id for event in events if event.id in self.given and not event.retained}
        self.given -= again
        return [event for event in events if event.retained or event.id not in again] if again else events

    def _in_time(self, events: Iterator[Event[B]], deadline: float) -> Iterator[Event[B]]:
        """The events within the deadline. It is checked event by event, when the reader comes to it: an event that
        arrived in time may be late by then."""
        wall, late = self._topics.wall, 0
        for event in events:
            if wall() - event.time > deadline:
                late += 1
                continue
            if late:  # now, because the program may not ask for the rest
                self._report_late(late)
                late = 0
            yield event
        if late:
            self._report_late(late)

    def _is_late(self, event: Event[B]) -> bool:
        """Whether the deadline of an event is over, which is reported."""
        if self.deadline is None or self._topics.wall() - event.time <= self.deadline:
            return False
        self._report_late(1)
        return True

    def _report_late(self, late: int) -> None:
        self.late += late
        self._topics.tell(Missed(self.pattern, late, "late"))

    def __aiter__(self) -> AsyncIterator[Event[B]]:
        return flatten(self._runs() if self._worker is None else self._singles())

    async def _singles(self) -> AsyncGenerator[Iterator[Event[B]], None]:
        """One event at a time: asking for the next one finishes it."""
        while True:
            try:
                event = await self.receive()
            except Closed:
                return
            yield iter((event,))

    async def _runs(self) -> AsyncGenerator[Iterator[Event[B]], None]:
        await self.open()
        since = self._now()
        while True:
            yield self._current
            if self._now() - since > TURN_S_MAX:
                await asyncio.sleep(0)
                since = self._now()
            while not self.backlog:
                if self._over():
                    return
                await self._arrivals.wait()
                since = self._now()
                if self._handed:
                    break
            if self._handed:
                self._handed = False
            else:
                self._current = self._take()

    def _over(self) -> bool:
        if self.backlog.ended:
            self.backlog.take()  # which raises
        return self.closed

    async def receive(self, timeout: float | None = None) -> Event[B]:
        """The next event; ``TimeoutError`` after ``timeout`` seconds, ``Closed`` when there will be none."""
        for event in self._current:
            return event
        if self._carrier is None or self._worker is not None:
            return await self._receive_first(timeout)
        deadline = None if timeout is None else self._now() + timeout
        while True:
            while not self.backlog:
                if self._over():
                    raise Closed(f"the subscription to {self.pattern!r} is closed: subscribe again")
                await self._arrivals.wait(None if deadline is None else deadline - self._now())
                for event in self._current:  # it was handed over, or another task took several
                    return event
            self._current = self._take()
            for event in self._current:
                return event

    async def _receive_first(self, timeout: float | None) -> Event[B]:
        """Open the subscription, and receive; also every time if it is shared."""
        async with asyncio.timeout(timeout):
            await self.open()
            return await self.receive() if self._worker is None else (await self._worker.take(1))[0]

    async def receive_many(self, most: int = RECEIVE_MANY, timeout: float | None = None) -> list[Event[B]]:
        """At least one event, and as many as are there, up to ``most``; raises as ``receive`` does."""
        if self._worker is not None:
            async with asyncio.timeout(timeout):
                await self.open()
                return await self._worker.take(most)
        events = [await self.receive(timeout)]
        while len(events) < most:
            events += islice(self._current, most - len(events))
            if not self.backlog or len(events) >= most:
                break
            try:
                self._current = self._take()
            except Gap as gap:
                self.backlog.put_back(gap)
                break
            except Overflow:  # the event comes again by itself
                break
        return events

    # Moving

    def move(self, latitude: float, longitude: float) -> None:
        """Move the place of the subscriber; events that arrive from now on are near the new place."""
        if self.near is None:
            raise BadInput(f"the subscription to {self.pattern!r} is not bound to a place: subscribe with near=")
        self.near = self.near.moved(latitude, longitude)
        self._choose(self.near.condition(self.where))

    def set_where(self, where: str | Filter | None) -> None:
        """Set another condition, for events that arrive from now on; None: no condition. ``near=`` stays."""
        self._choose(near_and(self.near, where))
        self.where = None if where is None else str(where)

    def _choose(self, where: str | Filter | None) -> None:
        if self.shared:
            raise BadInput(KEEPS_ITS_CONDITION)
        before = self.interest.filter is not None and self.interest.by_body
        self.interest.set_where(where)
        if self._carrier is not None:
            self._carrier.table.changed(self, before)

    def stats(self) -> dict[str, int]:
        return {"waiting": self.waiting, "missed": self.missed, "late": self.late, "malformed": self.backlog.malformed}

    def __repr__(self) -> str:
        return f"<subscription to {self.pattern!r}>"
