"""A group that carries events: batches go out when the loop's turn ends or they are full, and come in to a table.

The base carrier is a FIFO group in which a member does not receive its own messages: its own subscriptions get its
events when these are handed to the group. In carriers of other orders a member does receive its own messages, because
an event has its place in the order only when it comes back.

*The short way.* Frames are taken from the group by a call-back, not by a task. The engine's call-back runs it as soon
as the protocols have settled, and after it the tasks of the subscribers that it woke. So an event reaches a program
that waits for it in the turn of the loop in which its datagram came, as a message of a group does. An event that came
alone, and that one program alone wants and waits for, is handed to it; all others go through the backlogs.

*Flow.* A batch that the group has no room for waits in a queue, in front of all later ones, and a task of its own sends
it; publishers wait until the queue is short again. A received frame gives its room back to its sender when every
subscription for which publishers wait (``backlog.WAIT``) has taken its events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from functools import partial
from itertools import islice, takewhile

from ....core.errors import Closed, Excluded, MalformedFrame, Overflow, PluribusError, Undelivered
from ....core.frame import Frame, Message
from ....core.ids import MemberId, MessageId
from ....core.limits import OUTBOX_BATCHES_MAX, TURN_S_MAX
from ....group.channel import REPORT_BUSY_BYTES, REPORT_IDLE_BYTES
from ....group.dispatch import LONE_BYTES_MAX
from ....pubsub.backlog import Hold
from ....pubsub.batch import (
    Arrived,
    Batch,
    EventExtra,
    Gathering,
    checked,
    decode_batch,
    encode_batch,
    is_single,
)
from ....pubsub.table import NOBODY, Reader, Table
from ....wire.bodies import EVENTS, Kind, decode_bodies
from ...group.group import Group

log = logging.getLogger(__name__)

QUEUED = 2
"""Batches that may wait before publishers must wait."""
TOGETHER = 16
"""Batches that are looked at when there is room for some."""

Taken = Callable[[Arrived], None]
Heard = Callable[[Message], None]


class Carrier:
    """One group. ``taken`` is called with every batch that comes in, but for a plain event that is handed over, and
    ``heard`` with every other message."""

    def __init__(
        self, order: str, group: Group, table: Table, now: Callable[[], float], taken: Taken, heard: Heard, *, own: bool
    ) -> None:
        self.order = order
        self.group = group
        self.table = table
        out = group._channel.out
        self.gathering = Gathering(group.me, out.usual, long_bytes=out.longest)
        self.crowd: set[Reader] = set()
        """Readers of this member that are behind and for which publishers wait."""
        self.missed: Callable[[], None] = lambda: None
        self._own = own
        self._now = now
        self._taken = taken
        self._heard = heard
        self._queue: deque[Batch] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._scheduled = False
        self._batched = 0
        self._held = 0
        self._reporting = False
        self._failed: Exception | None = None
        self._sending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        group._readers.note_callback()
        self._loop.call_soon(self._take_frames, context=self._context)  # frames may be there already

    # Out

    def opened(self) -> None:
        """The batch got its first event: it goes out when the turn ends. It goes out at once if this seems to be a
        program that publishes and waits for an answer, so that no further event would join the batch."""
        if not self._scheduled:
            self._scheduled = True
            if self._batched <= 1:
                self.close_batch()
            self._loop.call_soon(self._turn_ended)

    @property
    def begins_turn(self) -> bool:
        """Whether the next event may go out alone: it is the first of its turn, and nothing waits."""
        return not (self._scheduled or self._batched > 1 or self._queue or self.gathering.pending or self._crowded())

    def publish_alone(self, topic: str, kind: Kind, encoded: bytes, now: float) -> MessageId | None:
        """Send an event that begins its turn in a batch of its own, as ``opened`` would, and return its identity. None:
        it is too long for that, or the group is closed."""
        if len(encoded) >= LONE_BYTES_MAX or self.group._channel.closed:
            return None
        batch = self.gathering.single(topic, kind, encoded, now)
        self._scheduled, self._batched = True, 1
        if not self.group._send_now(EVENTS, batch):
            self._enqueue(batch)
        elif not self._own and self.table.of(topic, kind) is not NOBODY:
            self.table.spread(Arrived(batch))
        self._loop.call_soon(self._turn_ended)
        return (self.group.me, batch.first)

    def close_batch(self) -> None:
        """Send the open batch, or append it to the queue."""
        if self.gathering.empty:
            return
        batches = self.gathering.close()
        self._batched = sum([part.count for batch in batches for part in batch.parts])
        group = self.group
        if len(batches) > 1 and not self._queue and group._dispatch.send_each(group._channel, batches, EVENTS):
            self._sent(batches)
            return
        for batch in batches:
            self._pass(batch)

    def _pass(self, batch: Batch) -> None:
        """Send a batch behind those that wait."""
        if self._queue or not self.group._send_now(EVENTS, batch):
            self._enqueue(batch)
        else:
            self._sent([batch])

    def _enqueue(self, batch: Batch) -> None:
        self._queue.append(batch)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_queue())

    def takes(self, topic: str, size: int, kind: Kind, extra: EventExtra) -> bool:
        """Whether an event may join the open batch, or begin one: not while earlier batches, or readers, lag behind."""
        gathering = self.gathering
        if gathering.empty:
            return len(self._queue) < QUEUED and not self._crowded()
        return gathering.fits(topic, size, kind, extra)

    async def room(self, timeout: float | None = None) -> None:
        """Close the batch, and return when the next one may begin. ``Overflow`` after ``timeout`` seconds."""
        self.close_batch()
        if len(self._queue) >= QUEUED or self._crowded():
            await self._wait_for_room(timeout)
        self._complain()

    async def _wait_for_room(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                while len(self._queue) >= QUEUED or self._crowded():
                    await self._wait()
        except TimeoutError:
            raise Overflow(f"events wait for slow readers, and for longer than {timeout:g} s: publish later") from None

    def room_now(self) -> None:
        """Close the batch; ``Overflow`` if too many wait."""
        self.close_batch()
        if len(self._queue) >= OUTBOX_BATCHES_MAX:
            raise Overflow(f"{OUTBOX_BATCHES_MAX} batches of events wait for slow readers: await bus.flush()")

    async def flush(self) -> None:
        """Returns when the group has admitted everything."""
        self.close_batch()
        while self._queue:
            await self._wait()
        self._complain()

    async def drain(self, timeout: float) -> None:
        """Like ``flush``, before the bus is closed. ``Undelivered`` if it takes longer, or cannot be sent."""
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            raise Undelivered(
                f"events wait for slow readers after {timeout:g} s: close(timeout=) gives them more time"
            ) from None
        except PluribusError as error:
            raise Undelivered(f"events could not be sent: {error}") from None

    def _complain(self) -> None:
        """Raise a failed send once, to the next caller that publishes."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _turn_ended(self) -> None:
        self._scheduled = False
        if self.gathering.empty:
            self._batched = 0
        else:
            self.close_batch()

    async def _send_queue(self) -> None:
        try:
            while self._queue:
                some, sent = list(takewhile(self._fits_a_frame, islice(self._queue, TOGETHER))), 1
                if some:
                    sent = await self.group._send_some(EVENTS, some)
                else:  # one long event
                    await self.group.send(encode_batch(self._queue[0]))
                self._sent([self._queue.popleft() for _ in range(sent)])
                self.wake()
        except Exception as error:  # noqa: BLE001 - it is told to those who publish
            self._failed = error
            self._queue.clear()
        finally:
            self._sending = None
            self.wake()

    def _fits_a_frame(self, batch: Batch) -> bool:
        return len(batch) <= self.group._channel.out.longest

    def _sent(self, batches: list[Batch]) -> None:
        if self._own:
            return
        for batch in batches:
            if self.table or any(part.extras for part in batch.parts):
                self._deliver(Arrived(batch), None)

    def _deliver(self, arrived: Arrived, hold: Hold | None) -> None:
        try:
            self._taken(arrived)
        except MalformedFrame:  # bodies of another release of a program, perhaps; subscriptions count what they get
            self.table.malformed += 1
        self.table.spread(arrived, hold)

    def _crowded(self) -> bool:
        """True if a subscription of this member has too many of our own events waiting. No window slows this member
        down for it."""
        return not self._own and bool(self.crowd)

    def wake(self) -> None:
        """There may be room."""
        woken, self._waiters = self._waiters, []
        for waiter in woken:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self) -> None:
        if self.group.closed:
            raise Closed("the bus is closed: connect again")
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    # In

    def _take_frames(self, _: object = None) -> None:
        """Frames have come, or the group was closed."""
        channel = self.group._channel
        inbox, since = channel.inbox, self._now()
        while inbox:
            frame = inbox[0]
            if type(frame) is Frame and frame.kind == EVENTS and not (frame.headers or channel.state):
                self._take_batches(inbox.popleft())
            else:
                try:
                    self._receive(*channel.take_unpaid())
                except Excluded as missed:
                    log.warning("%s", missed)
                    self.missed()
            if inbox and self._now() - since > TURN_S_MAX:
                self._loop.call_soon(self._take_frames, context=self._context)
                return
        if channel.closed:
            self.wake()
        else:
            self.group._arrivals.wait().add_done_callback(self._take_frames, context=self._context)

    def _take_batches(self, frame: Frame) -> None:
        """The usual frame: batches of events, mostly one."""
        try:
            batches = decode_bodies(EVENTS, frame.bodies, frame.count)
        except MalformedFrame:
            self.group._channel.malformed += 1
            batches = []
        if len(batches) == 1 and is_single(batch := batches[0]):
            part = batch.parts[0]
            hits = self.table.of(batch.topics[0], part.kind)
            if len(hits.plain) == 1 and not hits.checked and hits.plain[0].hand_over(batch):
                self._give_room(frame)
                return
        sender = MemberId(frame.sender)
        self._receive([Message(batch, sender, (sender, at)) for at, batch in enumerate(batches, frame.first)], frame)

    def _receive(self, messages: Iterable[Message], frame: Frame | None) -> None:
        hold = None
        if frame is not None:
            self._held += 1
            hold = Hold(partial(self._read, frame))
        for message in messages:
            try:
                self._receive_one(message, hold)
            except MalformedFrame:
                self.table.malformed += 1
            except Exception:  # in code of a program, such as the functions of a vocabulary: the next events are read
                log.exception("events that %s published did not reach all subscriptions of this member", message.sender)
        if hold is not None:
            hold.let_go()

    def _receive_one(self, message: Message, hold: Hold | None) -> None:
        body = message.body
        if type(body) is Batch:
            self._deliver(Arrived(checked(body)), hold)
        elif type(body) is bytes:  # it came in pieces
            self._deliver(Arrived(decode_batch(body)), hold)
        else:
            self._heard(message)

    def _read(self, frame: Frame) -> None:
        """Every reader has read the frame."""
        self._held -= 1
        self._give_room(frame)

    def _give_room(self, frame: Frame) -> None:
        """The frame's sender may send as much again: it is told for several frames together, and not before the
        program has this one."""
        channel = self.group._channel
        channel.pass_over(frame)
        if channel._taken_bytes >= (REPORT_BUSY_BYTES if self._held else REPORT_IDLE_BYTES) and not self._reporting:
            self._reporting = True
            self._loop.call_soon(self._report)

    def _report(self) -> None:
        self._reporting = False
        if not self.group.closed:
            self.group._dispatch.consumed(self.group._channel)

    async def close(self) -> None:
        await self.group.close()
        self.abandon()

    def abandon(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self.wake()
