"""The receiving side of a queue: one consumer, its line to the queue, and the messages that it holds.

A consumer attaches, tells the queue its credit (how many messages and bytes it has room for), and is told which
messages it was assigned, as soon as there are some. Settlements are gathered, and sent with the next credit in one
command. One such command is under way at a time; it has a number, so that a repeated command gets the answer of the
first.

*Breaks.* After any break the consumer attaches again. It may still settle the messages that it still holds; to settle
any other raises ``LeaseEnded``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ....core.errors import Closed, LeaseEnded, NotPrimary, PluribusError, Refused
from ....group.host.demand import UNLIMITED
from ....group.host.requests import Given
from ....queues import words
from ....queues.words import ENDED, REFUSED, Outcome
from ...machines.line import MachineLine
from .message import QueueMessage, Slice, unpacked

log = logging.getLogger(__name__)

WAIT_S = 20.0
"""How long one question for messages waits; asking renews the lease."""
SETTLES_MAX = 8_192
"""Settlements in one command."""
PAUSE_S = 0.05
CLOSED = "the consumer was closed before the queue confirmed that the message is settled: it may come again"
LEAVE_S = 5.0
"""Seconds for which closing a consumer waits until the queue knows it."""
TOLD_S = 10.0
"""Seconds for which a demand that ends waits to be told of a message that was given. One that is told of later is given
back."""

Settling = tuple[QueueMessage[Any], int, int, str, "asyncio.Future[None] | None"]


class QueueConsumer:
    """``owner`` identifies the process that has the lease; ``number`` is drawn for this consumer. ``keep``
    is given tasks that end with the queue."""

    def __init__(
        self,
        line: MachineLine[Outcome],
        number: int,
        owner: Callable[[], int],
        lease_s: float,
        selector: bytes,
        exclusive: bool,
        keep: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._line = line
        self._owner = owner
        self._lease_us = int(lease_s * 1e6)
        self._selector = selector
        self._exclusive = exclusive
        self._keep = keep
        self.number = number
        self.epoch = 0
        self._after = 0
        self._serial = 0
        self._credit = (0, 0, UNLIMITED)
        """The credit: messages, bytes, and how many messages in all."""
        self._changed = False
        """True if the queue must be told the credit."""
        self.hands: dict[int, int] = {}
        """Messages that this consumer was told of and has not settled, with the numbers of their assignments."""
        self.arrived: deque[QueueMessage[Any]] = deque()
        self._slice: Slice | None = None
        """The latest batch; further messages of it may be told later."""
        self._something = asyncio.Event()
        self._settles: deque[Settling] = deque()
        self._numbers = 0
        self._coming: set[int] = set()
        """Messages that it held when its demand ended, and was not told of yet."""
        self._settling: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self.failure: PluribusError | None = None
        self.late = 0
        """Messages that were handled here, and whose lease ended before they were settled in the background."""
        self.closed = False
        self.on_arrival: Callable[[int], None] | None = None
        """Called with the number of messages that came."""
        self.ahead: Callable[[], int] | None = None
        """Called when messages are acknowledged: returns how many more are wanted. The same command asks for them."""

    async def open(self, things: int, size: int, want: int = UNLIMITED) -> None:
        self._credit = (things, size, want)
        self._changed = True
        await self._attach_again()
        self._listening = asyncio.ensure_future(self._listen())
        self._settle_soon()

    async def _attach_again(self) -> None:
        attach = words.Attach(self.number, self._owner(), self._lease_us, self._selector, self._exclusive)
        outcome = await self._line.call(words.encode(attach), None)
        if outcome.status == REFUSED:
            raise Refused(outcome.reason)
        self.epoch, self._after, self._serial = outcome.number, 0, 0
        held = {int(thing) for thing, _ in outcome.things}
        self.hands = {thing: number for thing, number in self.hands.items() if thing in held}
        self.arrived = deque(one for one in self.arrived if one.number in held)
        self._coming &= held
        self._something.set()
        self._changed = True

    # Messages that come.

    async def _listen(self) -> None:
        while not self.closed:
            try:
                told = await self._line.given(self.number, self.epoch, self._after, wait_s=WAIT_S, timeout=None)
                if told.ended:
                    await self._attach_again()
                    self._settle_soon()
                    continue
            except (NotPrimary, Closed):
                await asyncio.sleep(PAUSE_S)
                continue
            except PluribusError as error:
                self.failure = error
                self._something.set()
                return
            for one in told.given:
                self._take(one)
            if told.given:
                self._something.set()
                if self.on_arrival is not None:
                    self.on_arrival(len(told.given))

    def _take(self, given: Given) -> None:
        self._after = max(self._after, given.number)
        self._coming.discard(given.thing)
        if self.hands.get(given.thing) == given.number:
            return  # told before a break
        self.hands[given.thing] = given.number
        if given.note:  # one of several in a batch, which the first of them brought
            if given.bodies:
                self._slice = None if given.bodies[0] is None else unpacked(given.bodies[0])
            if self._slice is None:
                self._refuse(given, "its body is damaged")
                return
            place = int.from_bytes(given.note, "little")
            message: QueueMessage[Any] = QueueMessage.of(self, given.thing, given.delivery, self._slice, place)
            if isinstance(message.body, PluribusError):
                self._refuse(given, str(message.body))
                return
            message.assignment = given.number
            self.arrived.append(message)
            return
        packed = given.bodies[0] if given.bodies else None
        if packed is None or None in given.bodies:  # the only copy is damaged
            self._refuse(given, "its body is damaged")
            return
        long = b"".join(piece for piece in given.bodies[1:] if piece is not None) if len(given.bodies) > 1 else None
        try:
            whole: QueueMessage[Any] = QueueMessage(self, given.thing, given.delivery, packed, long)
            whole.assignment = given.number
            self.arrived.append(whole)
        except PluribusError as error:  # of a type that this program cannot make the body of
            self._refuse(given, str(error))

    def _refuse(self, given: Given, reason: str) -> None:
        """Make a message a dead letter, because this program cannot read it."""
        lost: QueueMessage[Any] = QueueMessage.__new__(QueueMessage)
        lost.number, lost.deliveries, lost.settled = given.thing, given.delivery, True
        lost.assignment = given.number
        self.settle_later(lost, words.REJECT, 0, reason[:1_024])

    async def next(self, timeout: float | None) -> QueueMessage[Any] | None:
        """The next message; None if none came in time."""
        if not self.arrived:
            await self.comes(timeout)
        return self.arrived.popleft() if self.arrived else None

    async def comes(self, timeout: float | None) -> None:
        """Returns when a message is here, or after ``timeout`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self.arrived:
                    self.check()
                    self._something.clear()
                    await self._something.wait()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise Closed("this consumer was closed: receive again")

    # Settlements.

    async def settle(self, message: QueueMessage[Any], verb: int = 0, wait_us: int = 0, reason: str = "") -> None:
        """Returns when it is done; ``LeaseEnded`` if this consumer does not hold the message any more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settle_later(message, verb, wait_us, reason, future)
        await future

    def settle_later(
        self,
        message: QueueMessage[Any],
        verb: int = 0,
        wait_us: int = 0,
        reason: str = "",
        future: asyncio.Future[None] | None = None,
    ) -> None:
        self._settles.append((message, verb, wait_us, reason, future))
        self._settle_soon()

    def want(self, things: int, size: int, want: int = UNLIMITED) -> None:
        """Set another credit from now on."""
        self._credit = (things, size, want)
        self._changed = True
        self._settle_soon()

    async def told(self) -> None:
        """Returns when the queue knows every settlement and the credit."""
        self._settle_soon()
        await self.settled()

    async def cancel(self, want: int) -> bool:
        """Set the demand to ``want`` from now on. True if a message is here, which was given before."""
        things, size, _ = self._credit
        self._credit, self._changed = (things, size, want), True
        self._coming = set()
        await self.settled()
        await self.told()
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_S):
                while self._coming and not self.arrived:
                    self.check()
                    self._something.clear()
                    await self._something.wait()
        return bool(self.arrived)

    @property
    def rests(self) -> bool:
        """True if it wants nothing, the queue knows that, and every message that it was given is here."""
        return not (self._credit[2] or self._changed or self._settling or self._coming or self.arrived)

    def _settle_soon(self) -> None:
        if self._settling is None and not self.closed and self.epoch:
            self._settling = asyncio.ensure_future(self._settle_all())

    async def _settle_all(self) -> None:
        await asyncio.sleep(0)  # what is settled in the same turn goes with it
        try:
            while (self._settles or self._changed) and not self.closed:
                await self._settle_some()
        finally:
            self._settling = None

    async def _settle_some(self) -> None:
        taken = [self._settles.popleft() for _ in range(min(len(self._settles), SETTLES_MAX))]
        here: list[Settling] = []
        for one in taken:
            if self.hands.get(one[0].number) == one[0].assignment:
                here.append(one)
            else:
                self._count_late([one])
                _end(one[4], _late(one[0].number))
        acked, deliveries = _runs(sorted((one[0].number, one[0].deliveries) for one in here if not one[1]))
        others = [(message.number, verb, wait, reason) for message, verb, wait, reason, _ in here if verb]
        deliveries += [one[0].deliveries for one in here if one[1]]
        if acked and self.ahead is not None and not self._changed and (more := self.ahead()):
            self._credit, self._changed = (*self._credit[:2], more), True
        self._numbers += 1
        things, size, want = self._credit
        changed, self._changed = self._changed, False
        if changed:
            self._serial += 1
        epoch, serial = self.epoch, self._serial if changed else 0
        command = words.Settle(self.number, epoch, acked, others, serial, things, size, want, self._numbers, deliveries)
        try:
            outcome = await self._line.call(words.encode(command), None)
        except PluribusError as error:
            for *_, future in here:
                _end(future, error)
            return
        except asyncio.CancelledError:
            for *_, future in here:
                _end(future, Closed(CLOSED))
            raise
        if outcome.status == ENDED:
            if epoch != self.epoch:  # it attached again meanwhile: once more, for what it still holds
                self._settles.extendleft(reversed(here))
                self._changed = True
                return
            self._count_late(here)
            for message, *_, future in here:
                self.hands.pop(message.number, None)
                _end(future, _late(message.number))
            await self._attach_again()
            return
        if serial and not want:
            self._coming = {int(thing) for thing, _ in outcome.things} - self.hands.keys()
        lost = set(outcome.lost)
        self._count_late([one for one in here if one[0].number in lost])
        for message, verb, _, _, future in here:
            ended = verb != words.EXTEND or message.number in lost
            if ended and self.hands.get(message.number) == message.assignment:
                del self.hands[message.number]
            _end(future, _late(message.number) if message.number in lost else None)

    def _count_late(self, settles: list[Settling]) -> None:
        """Count and log messages whose lease ended before they were settled in the background: no caller waits for
        these answers."""
        count = sum(1 for _, verb, _, _, future in settles if future is None and not verb)
        if count:
            self.late += count
            log.warning(
                "%d messages of %s were handled, but not in their lease: they are handed out again; "
                "use a longer lease=, or m.extend()",
                count,
                self._line.name,
            )

    async def settled(self) -> None:
        """Returns when every settlement is answered."""
        while self._settling is not None:
            await asyncio.wait([self._settling])

    async def close(self) -> None:
        """Give back, unseen, every message that is not settled. That goes on when the caller gives up: else they would
        be held as long as this process has another consumer at the queue."""
        if self.closed:
            return
        leaving = self.leave()
        await self.settled()
        await asyncio.wait([leaving], timeout=LEAVE_S)

    def leave(self) -> asyncio.Task[None]:
        """Close without waiting; the task is done when the queue knows."""
        if self._leaving is None:
            self._leaving = asyncio.ensure_future(self._leave())
            self._keep(self._leaving)
        return self._leaving

    async def _leave(self) -> None:
        try:
            await self.settled()
        finally:
            self.abandon()
        with suppress(PluribusError):
            await self._line.call(words.encode(words.Detach(self.number)), None)

    def abandon(self) -> None:
        self.closed = True
        for task in (self._listening, self._settling):
            if task is not None:
                task.cancel()
        for *_, future in self._settles:
            _end(future, Closed(CLOSED))
        self._something.set()


def _runs(things: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Runs of messages with consecutive numbers and the same number of deliveries, each with that number."""
    runs: list[tuple[int, int]] = []
    deliveries: list[int] = []
    for thing, delivery in things:
        if runs and runs[-1][0] + runs[-1][1] == thing and deliveries[-1] == delivery:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((thing, 1))
            deliveries.append(delivery)
    return runs, deliveries


def _late(number: int) -> LeaseEnded:
    return LeaseEnded(
        f"message {number} is not held any more: its lease ended, and it is handed out again; make what is done with "
        "it repeatable, or ask for a longer lease"
    )


def _end(future: asyncio.Future[None] | None, error: PluribusError | None) -> None:
    if future is not None and not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
