"""One publisher of one durable topic: events gather into batches, and lost batches are sent again.

A publisher is a session: its events are numbered, and keepers accept them in that order, each once. Batches are sent
without waiting for the ones before. When an answer is lost, or a keeper says that a batch before is missing, the
publisher waits until nothing is under way any more, and sends everything that is not confirmed again, in order, with
the same bytes. So order and identity survive any change of keepers.

An event that is not confirmed after ``GIVE_UP_S`` is reported as ``Uncertain``, and the publisher begins a new session:
the old session may have a hole, and keepers accept nothing behind a hole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from ....core.errors import BadInput, MalformedFrame, PluribusError, Refused, TooLarge, Uncertain
from ....core.ids import Identities, MessageId
from ....core.limits import DURABLE_EVENT_BYTES_MAX
from ....pubsub.durable.batch import pack
from ....pubsub.durable.commands import REFUSED, Outcome
from ....pubsub.durable.requests import Put
from ....wire.bodies import BYTES, Kind

BATCH_BYTES = 256 << 10
BATCH_EVENTS = 8_192
OVERHEAD_BYTES = 32
"""Bytes, about, that an event adds to its batch besides its body."""
PUT_BYTES = 1 << 20
UNDER_WAY_MAX = 16
"""Puts of one publisher that are not answered."""
GIVE_UP_S = 15.0
PAUSE_S = 0.05
PAUSE_S_MAX = 1.0

_encode = msgspec.msgpack.Encoder().encode
Ask = Callable[[Put], Awaitable[list[Outcome]]]
Ended = Callable[[list[Outcome], PluribusError | None], None]
AskNow = Callable[[Put, Ended], bool]


class Confirmation:
    """The confirmation that a batch is on disk, or the reason why not. Each waiting caller has a future of its own,
    which may be cancelled without the others', and is resolved in the same turn of the loop."""

    __slots__ = ("_error", "_loop", "_waiting", "done", "soon")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[None]] = []
        self._error: PluribusError | None = None
        self.done = False
        self.soon = False
        """True if only ``flush`` waits for it."""

    def waiter(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        if self.done:
            self._tell()
        return waiter

    def confirm(self, error: PluribusError | None = None) -> None:
        if not self.done:
            self.done, self._error = True, error
            self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if waiter.done():
                continue
            if self._error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(self._error)


class UnconfirmedBatch:
    """Events that travel together."""

    __slots__ = ("count", "done", "first", "packed", "session", "since", "size")

    def __init__(
        self, session: int, first: int, count: int, packed: bytes, size: int, since: float, done: Confirmation
    ) -> None:
        self.session = session
        self.first = first
        self.count = count
        self.packed = packed
        self.since = since
        self.size = size
        """Bytes, as they were counted while the batch gathered."""
        self.done = done


class Publisher:
    """``ask`` brings a ``Put`` to any keeper; ``ask_now`` to one in the same process, if there is one, without a task.
    ``freed`` is called when waiting bytes are confirmed or given up."""

    def __init__(
        self,
        topic: str,
        sender: int,
        new_session: Callable[[], int],
        ask: Ask,
        ask_now: AskNow,
        wall: Callable[[], float],
        freed: Callable[[], None],
    ) -> None:
        self.topic = topic
        self._sender = sender
        self._new_session = new_session
        self._ask = ask
        self._ask_now = ask_now
        self._wall = wall
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self.session = new_session()
        self._next = 1
        self._closed_up_to = 1
        self._kind: Kind | None = None
        self._bodies: list[bytes] = []
        self._times: list[int] = []
        self._headers: list[dict[str, Any] | None] = []
        self._parents: list[MessageId | None] = []
        self._extra = False
        self._gathered = 0
        self._gathering: Confirmation | None = None
        self._queue: deque[UnconfirmedBatch] = deque()
        self._under_way: list[UnconfirmedBatch] = []
        self._puts = 0
        self._again = False
        self._reason = ""
        """The reason why the last request was not done."""
        self._pause_s = PAUSE_S
        self._asked_to_close = False
        self._lost: PluribusError | None = None
        """The reason why an event of ``publish_soon`` was not confirmed: ``flush`` raises it."""
        self.waiting_bytes = 0
        self.tasks: dict[asyncio.Task[None], None] = {}
        """In their order, which a set does not keep: a world must do the same every time."""

    @property
    def idle(self) -> bool:
        return not (self._bodies or self._queue or self._under_way)

    def add(
        self, kind: Kind, encoded: bytes, headers: Mapping[str, Any] | None = None, parent: MessageId | None = None
    ) -> MessageId:
        """Add an event. It leaves when the turn of the loop ends, with the others of that turn."""
        bodies = self._bodies
        size = len(encoded) + OVERHEAD_BYTES
        if headers:
            size += len(_encode(headers))
        if size > DURABLE_EVENT_BYTES_MAX:
            raise TooLarge(_too_large(size))
        if bodies and (kind != self._kind or self._gathered + size > BATCH_BYTES or len(bodies) >= BATCH_EVENTS):
            self._close_batch()
            bodies = self._bodies
        if not bodies:
            self._begin_batch(kind)
        bodies.append(encoded)
        if headers or parent is not None or self._extra:
            self._add_extra(headers, parent)
        self._gathered += size
        self.waiting_bytes += size
        number = self._next
        self._next += 1
        return (self.session, number)

    def add_bytes(self, bodies: list[bytes], size: int) -> tuple[Identities, list[Confirmation]]:
        """Add many encoded events at once, ``size`` bytes; returns their identities, and the confirmations of their
        batches."""
        first = self._next
        if self._bodies and (self._kind != BYTES or self._extra):
            self._close_batch()
        size += OVERHEAD_BYTES * len(bodies)
        if self._gathered + size <= BATCH_BYTES and len(self._bodies) + len(bodies) <= BATCH_EVENTS:
            waiting = [self._add_all(bodies, size)]
        else:
            waiting = self._add_some(bodies)
        return Identities(self.session, range(first, self._next)), waiting

    def _add_all(self, bodies: list[bytes], size: int) -> Confirmation:
        """Add all to the open batch, or to a new one."""
        if not self._bodies:
            self._begin_batch(BYTES)
        self._bodies += bodies
        self._gathered += size
        self.waiting_bytes += size
        self._next += len(bodies)
        assert self._gathering is not None
        return self._gathering

    def _add_some(self, bodies: list[bytes]) -> list[Confirmation]:
        """Add as many as a batch takes, then begin the next batch."""
        longest = max(map(len, bodies)) + OVERHEAD_BYTES
        if longest > DURABLE_EVENT_BYTES_MAX:
            raise TooLarge(_too_large(longest))
        waiting: list[Confirmation] = []
        at = 0
        while at < len(bodies):
            room = min(BATCH_EVENTS - len(self._bodies), (BATCH_BYTES - self._gathered) // longest)
            if self._bodies and not room:
                self._close_batch()
                continue
            some = bodies[at : at + max(room, 1)]
            waiting.append(self._add_all(some, sum(map(len, some)) + OVERHEAD_BYTES * len(some)))
            at += len(some)
        return waiting

    def confirmed(self) -> Confirmation:
        """The confirmation of the batch that has the last event."""
        assert self._gathering is not None, "add an event first"
        return self._gathering

    def pending(self, id: MessageId) -> Confirmation | None:
        """The confirmation of an event that is under way, if it is."""
        session, number = id
        for batch in (*self._under_way, *self._queue):
            if batch.session == session and batch.first <= number < batch.first + batch.count:
                return batch.done
        return self._gathering if session == self.session and self._closed_up_to <= number < self._next else None

    @property
    def owes(self) -> bool:
        """True if an event was published with ``publish_soon`` and is not confirmed; only ``flush`` reports its
        failure."""
        pending = [self._gathering, *(batch.done for batch in (*self._under_way, *self._queue))]
        return self._lost is not None or any(done is not None and done.soon and not done.done for done in pending)

    async def flush(self) -> None:
        """Wait until every event so far is confirmed; raises the first failure since the last ``flush``."""
        self._turn_ends()
        error: PluribusError | None = None
        for done in [batch.done for batch in (*self._under_way, *self._queue)]:
            try:
                await done.waiter()
            except PluribusError as failed:
                error = error or failed
        lost, self._lost = self._lost or error, None
        if lost is not None:
            raise lost

    def close(self) -> None:
        """Close. Events that are not confirmed are uncertain."""
        self._close_batch()
        self._give_up("the bus was closed before the keepers confirmed it")
        for task in self.tasks:
            task.cancel()

    # Gathering.

    def _begin_batch(self, kind: Kind) -> None:
        self._kind = kind
        self._gathering = Confirmation(self._loop)
        if not self._asked_to_close:
            self._asked_to_close = True
            self._loop.call_soon(self._turn_ends)

    def _add_extra(self, headers: Mapping[str, Any] | None, parent: MessageId | None) -> None:
        if not self._extra:
            self._extra = True
            self._headers = [None] * (len(self._bodies) - 1)
            self._parents = [None] * (len(self._bodies) - 1)
        self._headers.append(dict(headers) if headers else None)
        self._parents.append(None if parent is None else (int(parent[0]), parent[1]))

    def _turn_ends(self) -> None:
        self._asked_to_close = False
        self._close_batch()
        self._pump()

    def _close_batch(self) -> None:
        bodies = self._bodies
        if not bodies:
            return
        first, self._closed_up_to = self._closed_up_to, self._next
        done = self._gathering
        assert self._kind is not None and done is not None
        packed = pack(
            self.topic,
            self.session,
            first,
            self._sender,
            self._kind,
            int(self._wall() * 1e6),
            bodies,
            self._headers,
            self._parents,
        )
        batch = UnconfirmedBatch(self.session, first, len(bodies), packed, self._gathered, self._loop.time(), done)
        self._queue.append(batch)
        self._bodies, self._gathered, self._extra = [], 0, False
        self._headers, self._parents = [], []

    # Sending.

    def _pump(self) -> None:
        while self._queue and not self._again and self._puts < UNDER_WAY_MAX:
            batches, size = [self._queue.popleft()], 0
            while self._queue and size < PUT_BYTES:
                batches.append(self._queue.popleft())
                size += len(batches[-1].packed)
            self._under_way += batches
            self._puts += 1
            put = Put([batch.packed for batch in batches])
            if not self._ask_now(put, partial(self._answered, batches)):
                task = self._loop.create_task(self._put(put, batches))
                self.tasks[task] = None
                task.add_done_callback(self.tasks.pop)

    async def _put(self, put: Put, batches: list[UnconfirmedBatch]) -> None:
        try:
            outcomes = await self._ask(put)
        except PluribusError as error:
            self._answered(batches, [], error)
        else:
            self._answered(batches, outcomes, None)

    def _answered(self, batches: list[UnconfirmedBatch], outcomes: list[Outcome], error: PluribusError | None) -> None:
        self._puts -= 1
        if isinstance(error, BadInput | MalformedFrame):
            self._fail(error)
            self._go_on()
            return
        if error is not None:
            self._again = True
            self._reason = f" ({error})"
        for batch, outcome in zip(batches, outcomes, strict=False):
            if outcome.status != REFUSED:
                self._confirm(batch)
            elif outcome.number == batch.first:  # it was its turn: there is another reason
                self._fail(Refused(outcome.reason))
                break
            else:
                self._again = True
        if not self._again:
            self._pause_s = PAUSE_S
        self._go_on()

    def _go_on(self) -> None:
        if self._again and self._puts == 0:
            left = sorted((batch for batch in self._under_way), key=lambda batch: batch.first)
            self._under_way = []
            self._queue.extendleft(reversed(left))
            if self._queue and self._loop.time() - self._queue[0].since > GIVE_UP_S:
                self._give_up(f"the keepers did not confirm it in {GIVE_UP_S:g} s{self._reason}")
            self._loop.call_later(self._pause_s, self._try_again)
            self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
        else:
            self._pump()

    def _try_again(self) -> None:
        self._again = False
        self._pump()

    def _confirm(self, batch: UnconfirmedBatch) -> None:
        if batch not in self._under_way:  # it was given up meanwhile
            return
        self._under_way.remove(batch)
        self.waiting_bytes -= batch.size
        batch.done.confirm()
        self._freed()

    def _give_up(self, why: str) -> None:
        def uncertain(batch: UnconfirmedBatch) -> PluribusError:
            return Uncertain(f"{why}: publish it again with id=, which is safe", (batch.session, batch.first))

        self._end(uncertain)

    def _fail(self, error: PluribusError) -> None:
        self._end(lambda batch: error)

    def _end(self, reason: Callable[[UnconfirmedBatch], PluribusError]) -> None:
        """Give up every event that is not confirmed; the next event begins a new session."""
        self._close_batch()
        batches = [*self._under_way, *self._queue]
        self._under_way, self._queue = [], deque()
        self.session, self._next, self._closed_up_to = self._new_session(), 1, 1
        self.waiting_bytes = 0
        for batch in batches:
            error = reason(batch)
            if batch.done.soon and self._lost is None:
                self._lost = error
            batch.done.confirm(error)
        self._freed()


def _too_large(size: int) -> str:
    return f"an event of {size:,} bytes: the limit is {DURABLE_EVENT_BYTES_MAX:,}; store it elsewhere"
