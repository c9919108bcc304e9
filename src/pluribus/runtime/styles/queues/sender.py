"""The sending side of a queue: messages gather into batches, and lost batches are sent again.

A sender is a session: its messages are numbered, and the queue accepts them in that order, each once. Several batches
are under way at a time. When an answer says that a batch before is missing, or that the queue is full, the sender waits
until nothing is under way any more, and sends everything that is not confirmed again, in order. A refused batch is
reported to its senders. The queue has accepted none of the batches behind it; they are sent in a new session, because a
late copy of the refused batch must not be taken for another message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ....core.errors import BadInput, Closed, Overflow, PluribusError, Refused, TooLarge, Uncertain
from ....core.ids import MessageId
from ....queues import batch, words
from ....queues.words import AGAIN, DONE, FULL, NEXT, UNLIKE, Outcome
from ....wire.bodies import BYTES
from ...machines.line import MachineLine
from .arriving import transformed
from .outgoing import OutgoingMessage, extra_of

BATCH_BYTES = 256 << 10
BATCH_MESSAGES = 4_096
ORDER_BYTES = 1 << 20
UNDER_WAY_MAX = 4
WAITING_BYTES_MAX = 64 << 20
"""Bytes that ``send_soon`` accepts before it raises ``Overflow``."""
PAUSE_S = 0.01
PAUSE_S_MAX = 0.5

_encode = msgspec.msgpack.encode


class _Batch:
    """Messages that travel together. ``chain`` made their bodies from those of ``originals``."""

    __slots__ = ("chain", "count", "done", "first", "messages", "originals", "packed", "plain", "size", "soon")

    def __init__(self, plain: bool, chain: str = "") -> None:
        self.messages: list[OutgoingMessage] = []
        self.chain = chain
        self.originals: list[OutgoingMessage] = [] if chain else self.messages
        self.plain = plain
        self.size = 0
        self.count = 0
        self.first = 0
        self.packed = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.soon = False
        """True if a part of it was sent with ``send_soon``: ``flush`` reports its failure."""

    def add(self, message: OutgoingMessage) -> None:
        self.messages.append(message)
        self.size += len(message.body) + len(message.properties) + 16
        self.count += 1

    def takes(self, message: OutgoingMessage, plain: bool) -> bool:
        if self.size + len(message.body) > BATCH_BYTES or self.count >= BATCH_MESSAGES:
            return False
        return self.messages[0].kind == message.kind and self.plain == plain

    def pack(self, session: int, first: int, time_us: int) -> None:
        self.first = first
        bodies = [one.body for one in self.messages]
        extra = None if self.plain and not self.chain else extra_of(self.messages, self.chain)
        self.packed = batch.pack(session, first, time_us, self.messages[0].kind, bodies, extra)


class Sender:
    """``new_number`` draws a number that no other session has; ``wall`` is the clock of this process."""

    def __init__(self, line: MachineLine[Outcome], new_number: Callable[[], int], wall: Callable[[], float]) -> None:
        self._line = line
        self._new_number = new_number
        self._session = new_number()
        self._wall = wall
        self._next = 1
        """The sequence of the first message that is not packed yet."""
        self._gathering: deque[_Batch] = deque()
        self._sent: deque[_Batch] = deque()
        """Batches that are packed and not confirmed, in order."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._rewind = False
        self._pause_s = PAUSE_S
        self._pumping: asyncio.TimerHandle | asyncio.Handle | None = None
        self._failure: PluribusError | None = None
        self._waiting_bytes = 0
        self._numbers = 0
        self._closed = False
        self.chain = ""
        """The chain by which the queue transforms arriving messages, as far as it is known here."""

    # What callers do.

    def put(self, message: OutgoingMessage, soon: bool = False) -> tuple[asyncio.Future[None], MessageId]:
        """Send a message; the future is done when its batch is confirmed. With ``soon`` no caller looks at the
        future."""
        if self._closed:
            raise Closed("the queue is closed: open it again")
        last = self._gathered(message)
        last.soon |= soon
        self._numbers += 1
        if self._pumping is None:
            self._pumping = asyncio.get_running_loop().call_soon(self._pump)
        return last.done, (self._session, self._numbers)

    def _gathered(self, original: OutgoingMessage) -> _Batch:
        """The batch that a message travels in."""
        message = transformed(original, self.chain) if self.chain else original
        plain = message.plain
        last = self._gathering[-1] if self._gathering else None
        if last is None or last.chain != self.chain or not last.takes(message, plain):
            last = _Batch(plain, self.chain)
            last.done.add_done_callback(_looked_at)
            self._gathering.append(last)
        if self.chain:
            last.originals.append(original)
        last.add(message)
        self._waiting_bytes += len(message.body)
        return last

    def put_soon(self, message: OutgoingMessage) -> MessageId:
        if self._waiting_bytes > WAITING_BYTES_MAX:
            raise Overflow(f"{WAITING_BYTES_MAX:,} bytes wait to be sent: await flush() now and then")
        return self.put(message, True)[1]

    @property
    def unconfirmed(self) -> int:
        return sum(one.count for one in (*self._gathering, *self._sent))

    async def flush(self) -> None:
        """Returns when everything that was sent is confirmed; raises the first failure that was not raised to a
        caller."""
        while self._gathering or self._sent:
            last = self._gathering[-1] if self._gathering else self._sent[-1]
            await asyncio.wait([last.done])
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def drain(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            raise Uncertain(
                f"{self.unconfirmed:,} messages were sent and are not confirmed after {timeout:g} s"
            ) from None

    def close(self) -> None:
        self._closed = True
        if self._pumping is not None:
            self._pumping.cancel()
        for task in self._under_way:
            task.cancel()
        for one in (*self._gathering, *self._sent):
            if not one.done.done():
                one.done.set_exception(Uncertain("the queue was closed before the message was confirmed"))
        self._gathering.clear()
        self._sent.clear()

    # Batches under way.

    def _pump(self) -> None:
        self._pumping = None
        if self._closed or self._rewind:
            return
        while self._gathering and len(self._under_way) < UNDER_WAY_MAX:
            taken: list[_Batch] = []
            size = 0
            while self._gathering and (not taken or size + self._gathering[0].size <= ORDER_BYTES):
                one = self._gathering.popleft()
                try:
                    one.pack(self._session, self._next, int(self._wall() * 1e6))
                except TooLarge as error:
                    self._end(one, error)
                    continue
                self._next += one.count
                self._sent.append(one)
                taken.append(one)
                size += one.size
            if taken:
                self._start(taken)

    def _start(self, taken: list[_Batch]) -> None:
        task = asyncio.ensure_future(self._order(taken))
        self._under_way.add(task)
        task.add_done_callback(self._ordered)

    def _ordered(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._closed or task.cancelled():
            return
        if task.exception() is not None:
            self._rewind = True
        if self._rewind:
            if not self._under_way:
                self._pumping = asyncio.get_running_loop().call_later(self._pause_s, self._again)
                self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        else:
            self._pause_s = PAUSE_S
            self._pump()

    def _again(self) -> None:
        """Nothing is under way: send everything that is not confirmed once more, in order."""
        self._pumping = None
        self._rewind = False
        if self._sent:
            taken: list[_Batch] = []
            size = 0
            for one in self._sent:
                if taken and size + one.size > ORDER_BYTES:
                    break
                taken.append(one)
                size += one.size
            self._rewind = len(taken) < len(self._sent)  # the others behind these
            self._start(taken)
        else:
            self._pump()

    async def _order(self, taken: list[_Batch]) -> None:
        try:
            outcomes = await self._line.order([one.packed for one in taken], None)
        except Refused as error:  # an access list does not allow it: repeating the command would not help
            for one in taken:
                if not one.done.done() and one.chain == self.chain:
                    self._sent.remove(one)
                    self._end(one, error)
            self._begin_anew()
            return
        refused = False
        for one, outcome in zip(taken, outcomes, strict=True):
            if one.done.done() or one.chain != self.chain:
                continue  # another answer has already said what became of it
            if outcome.status in (DONE, AGAIN):
                self._sent.remove(one)
                self._end(one, None)
            elif outcome.status in (FULL, NEXT):
                self._rewind = True
            elif outcome.status == UNLIKE:
                self._send_as(one, outcome.reason)
                return
            else:
                self._were_taken(one)
                self._sent.remove(one)
                self._end(one, Refused(outcome.reason))
                refused = True
        if refused:
            self._begin_anew()

    def _send_as(self, refused: _Batch, chain: str) -> None:
        """The queue transforms by another chain than the one that made this batch: make this batch, and all behind it,
        anew."""
        self._were_taken(refused)
        self.chain = chain
        before = [*self._sent, *self._gathering]
        self._sent.clear()
        self._gathering.clear()
        for one in before:
            self._waiting_bytes -= sum(len(message.body) for message in one.messages)
            self._divide(one)
        self._begin_anew()

    def _were_taken(self, refused: _Batch) -> None:
        """The batches in front of a refused one were accepted, though their answers may be lost: the queue looks at a
        batch only after accepting those before it."""
        while self._sent and self._sent[0] is not refused:
            self._end(self._sent.popleft(), None)

    def _divide(self, before: _Batch) -> None:
        """Divide the messages of a batch among other batches; the batch is done when these are."""
        batches: dict[_Batch, None] = {}
        failure: PluribusError | None = None
        for original in before.originals:
            try:
                gathered = self._gathered(original)
            except PluribusError as error:
                failure = failure or error
            else:
                gathered.soon |= before.soon
                batches[gathered] = None

        def ended(_: asyncio.Future[None] | None = None) -> None:
            if before.done.done() or not all(one.done.done() for one in batches):
                return
            errors = [one.done.exception() for one in batches if not one.done.cancelled()]
            found = next((error for error in errors if error is not None), failure)
            if found is None:
                before.done.set_result(None)
            else:
                before.done.set_exception(found)

        if failure is not None and before.soon:
            self._failure = self._failure or failure
        for one in batches:
            one.done.add_done_callback(ended)
        ended()

    def _begin_anew(self) -> None:
        """Begin a new session: the queue has accepted nothing behind a batch that it refused."""
        self._rewind = True
        self._session, self._next = self._new_number(), 1
        for one in self._sent:
            one.pack(self._session, self._next, int(self._wall() * 1e6))
            self._next += one.count

    def _end(self, one: _Batch, error: PluribusError | None) -> None:
        self._waiting_bytes -= sum(len(message.body) for message in one.messages)
        if one.done.done():
            return
        if error is None:
            one.done.set_result(None)
        else:
            if one.soon:
                self._failure = self._failure or error
            one.done.set_exception(error)


def _looked_at(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


def checked(message: OutgoingMessage) -> OutgoingMessage:
    """Raises ``BadInput`` for a message that the queue does not accept."""
    if not 0 <= message.priority < words.PRIORITIES:
        raise BadInput(f"priority={message.priority}: priorities are 0 to {words.PRIORITIES - 1}, the highest is first")
    for what in ("key", "id", "correlation", "reply_to"):
        if len(getattr(message, what)) > batch.KEY_CHARS_MAX:
            raise BadInput(f"{what}= of {len(getattr(message, what))} characters: at most {batch.KEY_CHARS_MAX}")
    if len(message.properties) > batch.PROPERTIES_BYTES_MAX:
        raise TooLarge(
            f"properties of {len(message.properties):,} bytes: at most {batch.PROPERTIES_BYTES_MAX:,}; use the body"
        )
    return message


def encoded_properties(given: Any) -> bytes:
    """A dictionary of plain values."""
    if not given:
        return b""
    if len(given) > batch.PROPERTIES_MAX:
        raise BadInput(f"{len(given)} properties: at most {batch.PROPERTIES_MAX}; put them in the body")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, bool | int | float | str | None):
            raise BadInput(
                f"the property {name!r} is {value!r}: names are texts, values numbers, texts, booleans, None"
            )
    return _encode(dict(given))


__all__ = ["BYTES", "OutgoingMessage", "Sender", "checked", "encoded_properties"]
