"""The application's hold on a slot: ``send``, ``ask``, ``port``, ``move``, ``drop_out``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ....core.errors import (
    BadBody,
    BadInput,
    Closed,
    Expired,
    MalformedFrame,
    Overflow,
    PluribusError,
    Refused,
    RemoteError,
    Uncertain,
)
from ....core.limits import SLOT_REPORTS_MAX
from ....slots.carry import Carry
from ....slots.language import end_of
from ....slots.map import Change
from ....slots.occupant import ENROLLED, LEAVING, OUT_OF_IT, ArrivedMessage, Occupant
from ....slots.outbox import Queued
from ....slots.plan import ANSWERS, ASKS, CAPACITY, IN, OUT, TTL_S, Connection, End
from ....slots.words import SlotChanged
from ....wire.bodies import BYTES, DATA, TEXT, Kind, Opaque
from ....wire.questions import Wrapped, unwrapped, wrapped
from ...loop.futures import in_a_thread

if TYPE_CHECKING:
    from .station import Station

FIRST, ALL_OF_THEM = "first", "all"
WAITS = (None, FIRST, ALL_OF_THEM)
KINDS: dict[str, Kind] = {"bytes": BYTES, "text": TEXT, "data": DATA}
LEAVE_S = 10.0


class SlotMessage:
    """A message on a port. Asking for the next message acknowledges it; ``acknowledge`` does it earlier."""

    __slots__ = ("_arrived", "_slot", "body")

    def __init__(self, slot: EnrolledSlot, arrived: ArrivedMessage) -> None:
        self._slot = slot
        self._arrived = arrived
        try:
            self.body = unwrapped(arrived.body)
        except MalformedFrame:
            self.body = Opaque(str(arrived.body[0]), arrived.body[1])

    @property
    def id(self) -> tuple[int, int]:
        """The identity of the message: the occupancy that sent it, wherever that has moved, and the message's number
        there."""
        return self._arrived.id

    @property
    def port(self) -> str:
        return self._arrived.target.port

    @property
    def source(self) -> str:
        """The port that it was sent on, as ``slot.port``."""
        return str(self._arrived.source)

    @property
    def asks(self) -> bool:
        """True if its sender awaits an answer: ``reply``."""
        return self._arrived.asks

    def acknowledge(self) -> None:
        """Tell the sender now that it was accepted. A question that was not answered is answered with an error."""
        failure = f"slot {self._slot.name!r} did not answer" if self.asks else ""
        self._slot._acknowledge(self._arrived, None, failure)

    def withhold(self) -> None:
        """Do not acknowledge it: the message stays queued at its sender and is delivered again."""
        self._slot._withhold(self._arrived)

    def reply(self, body: Any) -> None:
        """Answer it, which acknowledges it. The answer goes to the asking program, and is sent again if it is lost."""
        if not self.asks:
            raise BadInput("this message asks nothing: look at m.asks before m.reply")
        self._slot._acknowledge(self._arrived, self._slot._answer(self.port, body), "")

    def fail(self, reason: str) -> None:
        """Answer it with an error: the asking program gets ``RemoteError``."""
        self._slot._acknowledge(self._arrived, None, reason[:1_000] or "failed")

    def __repr__(self) -> str:
        return f"<message {self.id[1]} from {self.source} on {self._arrived.target}>"


class SlotPort:
    """A port that receives: iterate it, or ``receive`` one message at a time."""

    def __init__(self, slot: EnrolledSlot, name: str) -> None:
        self._slot = slot
        self.name = name
        self._hand: SlotMessage | None = None

    async def receive(self, timeout: float | None = None) -> SlotMessage:
        """The next message; the one before is acknowledged now. ``TimeoutError`` after ``timeout`` seconds; raises
        ``Refused`` when this program does not occupy the slot any more."""
        if self._hand is not None:
            self._hand.acknowledge()
            self._hand = None
        self._hand = await self._slot._next(self.name, timeout)
        return self._hand

    async def __aiter__(self) -> AsyncIterator[SlotMessage]:
        """Messages; each is acknowledged when its turn in the loop is over. Ends when this program leaves the slot."""
        while True:
            try:
                message = await self._slot._next(self.name, None)
            except (Refused, Closed):
                if self._slot.state == OUT_OF_IT or self._slot.closed:
                    return
                raise
            yield message
            message.acknowledge()

    async def handle(self, handler: Callable[[SlotMessage], Any]) -> None:
        """Call ``handler`` with every message. On a port that answers, its result is the answer, and its exception an
        error for the asking program. A coroutine function is awaited, a plain function runs in a thread."""
        waits = asyncio.iscoroutinefunction(handler)
        async for message in self:
            handled: Awaitable[Any] = handler(message) if waits else in_a_thread(handler, message)
            if not message.asks:
                await handled
                continue
            try:
                answer = self._slot._answer(message.port, await handled)
            except Exception as error:  # noqa: BLE001 - it is the asker's to handle
                message.fail(f"{type(error).__name__}: {error}")
            else:
                self._slot._acknowledge(message._arrived, answer, "")


class Sent:
    """A message that was sent: how many acknowledgements are expected, and how many have come."""

    __slots__ = ("_queued", "_slot")

    def __init__(self, slot: EnrolledSlot, queued: Queued) -> None:
        self._slot = slot
        self._queued = queued

    @property
    def id(self) -> tuple[int, int]:
        return (self._slot._occupant.origin, self._queued.number)

    @property
    def count(self) -> int:
        return self._queued.counted or 0

    @property
    def ttl_s(self) -> float:
        return self._queued.ttl_s

    @property
    def acknowledged(self) -> int:
        return self._queued.acknowledged

    @property
    def done(self) -> bool:
        return self._queued.done

    async def delivered(self, timeout: float | None = None) -> None:
        """Return when all expected acknowledgements have come; ``Expired`` if they did not come in time."""
        await self._slot._wait(self._queued, ALL_OF_THEM, timeout)

    def __repr__(self) -> str:
        return f"<sent {self._queued.number}: {self.acknowledged} of {self.count} acknowledged>"


class EnrolledSlot:
    """One occupancy of one slot; ``bus.enroll`` makes it."""

    def __init__(
        self, station: Station, bus_name: str, occupant: Occupant, left: Callable[[EnrolledSlot], None]
    ) -> None:
        self._station = station
        self._occupant = occupant
        self._left = left
        self.bus_name = bus_name
        self.closed = False
        self._arrivals: dict[str, asyncio.Event] = {}
        self._ports: dict[str, SlotPort] = {}
        self._changes: list[asyncio.Future[None]] = []
        self._waiters: dict[int, list[tuple[str | None, asyncio.Future[None]]]] = {}
        self._routed: dict[int, asyncio.Future[str]] = {}
        self._denied: dict[int, str] = {}
        self._reported: dict[int, int] = {}
        self.expired: deque[Expired] = deque(maxlen=SLOT_REPORTS_MAX)
        """Reports of messages that expired, the oldest first."""
        self.expired_count = 0
        self._listeners: list[Callable[[Expired], None]] = []
        self._watchers: list[deque[Change]] = []
        self._seen: dict[str, tuple[int, int]] = {}
        """The latest change of each slot, and (under no name) of the routes, that was told to watchers."""
        self.leave: Callable[[bool], Awaitable[None]] | None = None
        """How to leave where there is no router to tell."""
        self.change: Callable[[Connection | tuple[End, End]], Awaitable[None]] | None = None
        """How to change routes where there is no router."""

    @property
    def name(self) -> str:
        return self._occupant.slot

    @property
    def state(self) -> str:
        """``enrolled``, ``leaving``, ``out`` or ``expelled``."""
        return OUT_OF_IT if self.closed else self._occupant.state

    @property
    def ticket(self) -> int:
        return self._occupant.ticket

    @property
    def waiting(self) -> tuple[str, ...]:
        """Required slots that lack occupants; the bus runs when there are none."""
        return self._occupant.waiting

    @property
    def queued(self) -> int:
        """Messages that lack an expected acknowledgement."""
        return len(self._occupant.outbox.queue)

    def stats(self) -> dict[str, Any]:
        """Counters: queued and expired messages, and messages that were ignored, with the reasons."""
        return {"queued": self.queued, "expired": self.expired_count, "unheard": dict(self._occupant.unheard)}

    def on_expired(self, listener: Callable[[Expired], None]) -> Callable[[], None]:
        """Call ``listener`` with each report of an expired message; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Sending

    async def send(
        self,
        port: str,
        body: Any,
        *,
        wait: str | None = None,
        to: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Sent:
        """Send on a port. Returns when the message is queued here and its receivers are counted; with ``wait="first"``
        at the first acknowledgement, with ``wait="all"`` at the last.

        ``to`` names some of the connected ports, as ``slot.port`` (source routing). Raises ``Overflow`` if the queue or
        a connection is full, ``Refused`` if the ticket is not valid any more, ``Expired`` if the message's time is over
        before the acknowledgements came, and ``Uncertain`` after ``timeout`` seconds: the message is still queued then.
        Messages of one port may overtake each other when one is sent again.
        """
        if wait not in WAITS:
            raise BadInput(f"wait={wait!r} is none: use 'first', 'all', or leave it out")
        queued = self._send(port, OUT, body, tuple(map(end_of, to)))
        if not (queued.done or (wait is None and queued.counted is not None)):
            await self._wait(queued, wait, timeout)
        elif queued.expired and wait is not None:
            raise self._expiry(queued)
        return Sent(self, queued)

    async def ask(self, port: str, body: Any, *, timeout: float | None = None) -> Any:
        """Send a question, and return the first answer. ``RemoteError`` is the exception of the answering program."""
        queued = self._send(port, ASKS, body, ())
        await self._wait(queued, FIRST, timeout)
        good = [answer for answer, failure in queued.answers if not failure]
        if good:
            return None if good[0] is None else unwrapped(good[0])
        if not queued.answers:
            raise Refused(f"nobody is connected with {self.name}.{port}: add a route")
        raise RemoteError(queued.answers[0][1])

    def _send(self, port: str, kind: str, body: Any, to: tuple[End, ...]) -> Queued:
        self._check()
        found = self._occupant.port(port, kind)
        encoded = wrapped(body)
        check_type(f"port {port!r}", found.type, encoded)
        self._station.check_size(len(encoded[1]))
        queued = self._occupant.send(port, encoded, self._station.now(), asks=kind == ASKS, destinations=to)
        self._station.flush()
        return queued

    async def _wait(self, queued: Queued, wait: str | None, timeout: float | None) -> None:
        if not _reached(queued, wait):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = (wait, future)
            self._waiters.setdefault(queued.number, []).append(waiting)
            try:
                async with asyncio.timeout(timeout):
                    await future
            except TimeoutError:
                if not _reached(queued, wait):
                    id = (self._occupant.origin, queued.number)
                    what = f"message {queued.number} is not {_word(wait)} after {timeout:g} s, and queued"
                    raise Uncertain(what, id) from None
            finally:
                others = self._waiters.get(queued.number, [])
                if waiting in others:
                    others.remove(waiting)
                if not others:
                    self._waiters.pop(queued.number, None)
        if queued.number in self._denied:
            raise Refused(self._denied.pop(queued.number))
        if queued.expired and wait is not None and (wait == ALL_OF_THEM or not queued.acknowledged):
            raise self._expiry(queued)

    def _expiry(self, queued: Queued) -> Expired:
        missing = [str(end) for end in queued.expired]
        where = ", ".join(missing)
        what = f"message {queued.number} of {self.name}.{queued.port}"
        return Expired(f"{what} outlived its time without the acknowledgement of {where}", missing)

    # Receiving

    def port(self, name: str) -> SlotPort:
        """A port that receives or answers."""
        self._occupant.port(name, IN, ANSWERS)
        return self._ports.setdefault(name, SlotPort(self, name))

    async def _next(self, port: str, timeout: float | None) -> SlotMessage:
        event = self._arrivals.setdefault(port, asyncio.Event())
        async with asyncio.timeout(timeout):
            while True:
                if self.closed:
                    raise Closed("the bus is closed: connect again")
                event.clear()
                if self.state == ENROLLED:
                    arrived = self._occupant.take_next(port, self._station.now())
                    if arrived is not None:
                        return SlotMessage(self, arrived)
                else:
                    raise self._occupant.refusal()
                await event.wait()

    def _answer(self, port: str, body: Any) -> Wrapped:
        answer = wrapped(body)
        check_type(f"an answer on port {port!r}", self._occupant.port(port, ANSWERS).answer, answer)
        self._station.check_size(len(answer[1]))
        return answer

    def _acknowledge(self, arrived: ArrivedMessage, answer: Wrapped | None, failure: str) -> None:
        self._occupant.acknowledge(arrived, (answer, failure))
        self._station.flush()

    def _withhold(self, arrived: ArrivedMessage) -> None:
        self._occupant.withhold(arrived)

    # Reconfiguring

    async def add_route(
        self, source: str, target: str, *, capacity: int = CAPACITY, ttl_s: float = TTL_S, timeout: float | None = 10.0
    ) -> None:
        """Connect two ports, named as ``slot.port``. ``Refused`` says which role may, or what does not fit."""
        if not 0 < capacity < 1 << 31 or not 0 < ttl_s < 1e9:
            raise BadInput(f"a connection with capacity {capacity} and {ttl_s} s cannot be: both are more than 0")
        await self._change(Connection(end_of(source), end_of(target), capacity, ttl_s), timeout)

    async def del_route(self, source: str, target: str, *, timeout: float | None = 10.0) -> None:
        """Delete the connection of two ports; one that is not there is no error."""
        await self._change((end_of(source), end_of(target)), timeout)

    async def _change(self, change: Connection | tuple[End, End], timeout: float | None) -> None:
        self._check()
        if self.change is not None:
            await self.change(change)
            return
        nonce = self._station_nonce()
        future = self._routed[nonce] = asyncio.get_running_loop().create_future()
        try:
            self._occupant.route(nonce, change, self._station.now())
            self._station.flush()
            async with asyncio.timeout(timeout):
                reason = await future
        except TimeoutError:
            raise Uncertain(
                f"the router did not answer within {timeout:g} s: the route may be changed or not"
            ) from None
        finally:
            del self._routed[nonce]
            self._occupant.forget_request(nonce)
        if reason:
            raise Refused(reason)

    def _station_nonce(self) -> int:
        self._nonces = getattr(self, "_nonces", self._occupant.nonce) + 1
        return self._nonces

    async def running(self, timeout: float | None = None) -> None:
        """Return when every required slot is occupied."""
        await self._until(lambda: not self.waiting, timeout)

    async def changes(self) -> AsyncIterator[Change]:
        """Changes of the bus from now on: ``RouteAdded``, ``RouteDeleted``, ``SlotChanged`` (the occupants of a slot).
        Ends when this program leaves its slot. A bus that is ``quiet`` reports no changes. Raises ``Overflow`` for a
        reader that is too slow."""
        seen: deque[Change] = deque()
        self._watchers.append(seen)
        try:
            while True:
                while seen:
                    yield seen.popleft()
                    if len(seen) >= SLOT_REPORTS_MAX:
                        raise Overflow(f"{SLOT_REPORTS_MAX} changes wait to be read: read faster, or look at the map")
                if self.state not in (ENROLLED, LEAVING):
                    return
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changes.append(future)
                await future
        finally:
            self._watchers.remove(seen)

    def _saw(self, change: Change) -> None:
        """A change came; it may come several times until it is acknowledged."""
        if isinstance(change, SlotChanged):
            key, known = change.slot, (change.epoch, change.generation)
        else:
            key, known = "", change.version
        if known > self._seen.get(key, (0, 0)):
            self._seen[key] = known
            for watcher in self._watchers:
                if len(watcher) < SLOT_REPORTS_MAX:
                    watcher.append(change)

    # Leaving

    async def drop_out(self, *, timeout: float = LEAVE_S) -> None:
        """Leave for good. When the slot has no occupant any more, its routes are deleted, and every member is told
        first. Queued messages are sent before, for at most ``timeout`` seconds; then ``Expired`` says how many are
        given up."""
        await self._drain(timeout)
        await self._go(True, timeout)
        if self._occupant.outbox.queue:
            raise Expired(f"slot {self.name!r} was left with {self.queued} messages that not everybody acknowledged")

    async def move(self, *, drain: bool = False, timeout: float = LEAVE_S) -> Carry:
        """Leave to go on elsewhere: routes stay, and messages queue at their senders. Queued messages go along: give
        the result to ``bus.enroll(..., carry=...)``, there or here. With ``drain=True`` they are sent first."""
        if drain:
            await self._drain(timeout)
        await self._go(False, timeout)
        return self.carry()

    def carry(self) -> Carry:
        """The state that an expelled program takes along when it enrols again."""
        return self._occupant.carry(self._station.now())

    async def _drain(self, timeout: float) -> None:
        with suppress(TimeoutError):
            await self._until(lambda: not self._occupant.outbox.queue, timeout)

    async def _go(self, end: bool, timeout: float) -> None:
        if self.state == ENROLLED:
            for port in self._ports.values():
                if port._hand is not None:
                    port._hand.acknowledge()
                    port._hand = None
            self._occupant.drop_out(self._station.now(), end=end)
            self._station.flush()
            if self.leave is not None:
                await self.leave(end)
                self._occupant.left()
        try:
            await self._until(lambda: self.state != LEAVING, timeout)
        except TimeoutError:
            pass  # no answer; the router will notice that this program is silent
        finally:
            if self._occupant.state == LEAVING:
                self._occupant.left()
            self._left(self)

    async def close(self) -> None:
        """Leave as with ``move``, and give up queued messages."""
        await self._go(False, 1.0)

    def abandon(self) -> None:
        self.closed = True
        self._wake_all()

    async def __aenter__(self) -> EnrolledSlot:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Called by the machine

    def _on_event(self, what: str, about: Any) -> None:
        if what == "arrived":
            event = self._arrivals.get(about)
            if event is not None:
                event.set()
        elif what == "queued":
            self._settle(about)
        elif what == "denied":
            number, self._denied[about[0]] = about
            for _, future in self._waiters.pop(number, ()):
                _finish(future)
        elif what == "routed":
            routed = self._routed.get(about[0])
            if routed is not None and not routed.done():
                routed.set_result(about[1])
        elif what in ("route", "slot"):
            self._saw(about)
        elif what == "state":
            self._wake_all()
        self._notify()

    def _settle(self, queued: Queued) -> None:
        waiting = self._waiters.get(queued.number)
        if waiting:
            for wait, future in waiting:
                if _reached(queued, wait):
                    _finish(future)
        if len(queued.expired) > self._reported.get(queued.number, 0):
            self._reported[queued.number] = len(queued.expired)
            report = self._expiry(queued)
            self.expired.append(report)
            self.expired_count += 1
            for listener in list(self._listeners):
                listener(report)
        if queued.done:
            self._reported.pop(queued.number, None)

    def _wake_all(self) -> None:
        for event in self._arrivals.values():
            event.set()
        if self.closed or self.state not in (ENROLLED, LEAVING):
            error = Closed("the bus is closed: connect again") if self.closed else self._occupant.refusal()
            for waiters in self._waiters.values():
                for _, future in waiters:
                    _finish(future, error)
            for routed in self._routed.values():
                if not routed.done():
                    routed.set_exception(error)
            self._waiters.clear()
        self._notify()

    def _notify(self) -> None:
        woken, self._changes = self._changes, []
        for future in woken:
            _finish(future)

    async def _until(self, found: Callable[[], bool], timeout: float | None) -> None:
        async with asyncio.timeout(timeout):
            while not found():
                self._check()
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changes.append(future)
                await future

    def _check(self) -> None:
        if self.closed:
            raise Closed("the bus is closed: connect again")
        if self.state not in (ENROLLED, LEAVING):
            raise self._occupant.refusal()

    def __repr__(self) -> str:
        return f"<slot {self.name!r} of {self.bus_name!r}, {self.state}>"


def check_type(where: str, type: str, body: Wrapped) -> None:
    """``BadBody`` if a body is not of the type that the plan gives it."""
    if type and body[0] != KINDS.get(type, type):
        got = next((name for name, kind in KINDS.items() if kind == body[0]), body[0])
        raise BadBody(f"{where} takes {type!r} and this is {got!r}: send that, or change the plan")


def _reached(queued: Queued, wait: str | None) -> bool:
    if queued.done:
        return True
    if wait is None:
        return queued.counted is not None
    return wait == FIRST and queued.counted is not None and queued.acknowledged > 0


def _word(wait: str | None) -> str:
    return "counted" if wait is None else "acknowledged"


def _finish(future: asyncio.Future[None], error: PluribusError | None = None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
