"""Ways to receive: one message at a time, and messages as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, Closed, LeaseEnded, PluribusError
from ....group.host.demand import CREDIT_MAX
from ....queues import words
from .consumer import QueueConsumer
from .looking import has_ready
from .message import QueueMessage

if TYPE_CHECKING:
    from .queue import MessageQueue

AHEAD_S = 0.02
"""Seconds for which a message that was asked for ahead waits for the next receive."""
BYTES = 1 << 40
"""Single receives have no limit in bytes."""

IDLE_S = 10.0
"""Seconds without a receive after which a consumer of single receives is closed: the queue does not count it any
more."""

FOUND_S = 0.05
"""Seconds in which keepers find what a look from here has found, before it is looked for again."""
SEARCH_S_MAX = 10.0
"""Seconds for which a receive that does not wait looks for a message in a long queue, while others take those that it
finds."""

Handler = Callable[[QueueMessage[Any]], Awaitable[object] | object]


class Singles:
    """Single receives with one selector share a consumer, which wants as many messages as there are receives.

    A program that receives one message after another would cost three entries in the log for each: sent, wanted,
    acknowledged. From the second receive on, the acknowledgement also asks for the next message. If there is no receive
    within ``AHEAD_S``, that message is given back unseen.
    """

    def __init__(self, queue: MessageQueue, selector: bytes) -> None:
        self._queue = queue
        self._selector = selector
        self._consumer: QueueConsumer | None = None
        self._opening = asyncio.Lock()
        self._waiting = 0
        self._asked = 0
        """Messages that are wanted and have not come."""
        self._streak = 0
        self._idle: asyncio.TimerHandle | None = None
        """While it is set, one message may wait here for the next receive."""
        self._used = 0.0
        self._leaving: asyncio.Task[None] | None = None

    async def receive(self, timeout: float | None) -> QueueMessage[Any] | None:
        self._used = asyncio.get_running_loop().time()
        consumer = await self._opened()
        self._streak += 1
        self._waiting += 1
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            if timeout == 0:
                return await self._at_once(consumer)
            self._want_enough(consumer)
            message = await consumer.next(timeout)
            return message if message is not None else await self._cancelled(consumer)
        except asyncio.CancelledError:
            self._want(consumer, self._waiting - 1)
            raise
        finally:
            self._waiting -= 1
            self._give_back(consumer)

    async def _at_once(self, consumer: QueueConsumer) -> QueueMessage[Any] | None:
        """What is there now."""
        if not consumer.arrived:
            if not self._asked and await self._is_empty(consumer):
                self._streak = 0
                return None
            self._want_enough(consumer)
            await consumer.told()
            if self._selector:
                await self._searched(consumer)
        return await (consumer.next(None) if consumer.arrived else self._cancelled(consumer))

    async def _is_empty(self, consumer: QueueConsumer) -> bool:
        """Whether the queue has nothing to give. That is a question and no command, so to find nothing costs little."""
        await consumer.settled()
        now = await self._queue._now()
        return consumer.rests and (now.paused or not now.ready)

    async def _searched(self, consumer: QueueConsumer) -> None:
        """Returns when a message has come, or when none that matches is ready. Keepers search a long queue outside of
        commands, and do not say that they found nothing; so the queue is looked through from here, too."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SEARCH_S_MAX
        while not consumer.arrived and loop.time() < until and not (await self._queue._now()).paused:
            if not await has_ready(self._queue._line, self._selector, lambda: bool(consumer.arrived)):
                return
            await consumer.comes(FOUND_S)  # unless it went to another consumer meanwhile

    def _want_enough(self, consumer: QueueConsumer) -> None:
        needed = self._waiting - len(consumer.arrived)
        if needed > self._asked:
            self._want(consumer, needed)

    def _want(self, consumer: QueueConsumer, count: int) -> None:
        self._asked = count
        consumer.want(CREDIT_MAX, BYTES, count)

    async def _opened(self) -> QueueConsumer:
        async with self._opening:
            consumer = self._consumer
            if consumer is None or consumer.closed or consumer.failure is not None:
                self._asked = self._streak = 0
                consumer = self._consumer = await self._queue._consumer(self._selector, CREDIT_MAX, BYTES, 0)
                consumer.on_arrival = self._came
                consumer.ahead = self._ahead
                if self._leaving is None:
                    self._leaving = asyncio.ensure_future(self._leave_when_idle())
                    self._queue.ends_with_it(self._leaving)
            return consumer

    async def _leave_when_idle(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._consumer is not None and not self._consumer.closed:
                await asyncio.sleep(max(self._used + IDLE_S - loop.time(), IDLE_S / 10))
                if loop.time() - self._used >= IDLE_S:
                    await self.leave()
        finally:
            self._leaving = None

    async def leave(self) -> None:
        """Close the consumer, unless a receive waits or a message of it is not settled."""
        async with self._opening:
            consumer = self._consumer
            if consumer is None or self._waiting or consumer.hands or consumer.closed:
                return
            self._consumer = None
            await consumer.close()
            self._queue._consumers.pop(consumer, None)
            if self._queue._singles.get(self._selector) is self:
                del self._queue._singles[self._selector]

    async def _cancelled(self, consumer: QueueConsumer) -> QueueMessage[Any] | None:
        """Take the demand back. A message that was assigned just before is returned."""
        self._streak = 0
        await consumer.told()  # that one is wanted, before it is taken back: else nothing would ever be there at once
        if consumer.arrived:
            return await consumer.next(None)
        self._asked = self._waiting - 1
        return await consumer.next(None) if await consumer.cancel(self._waiting - 1) else None

    def _came(self, count: int) -> None:
        consumer = self._consumer
        self._asked = max(self._asked - count, 0)
        if consumer is None:
            return
        missing = self._waiting - len(consumer.arrived)
        if missing > self._asked:  # the message could not be read, and is a dead letter
            self._want(consumer, missing)
        self._give_back(consumer)

    def _ahead(self) -> int:
        consumer = self._consumer
        if self._streak < 2 or self._waiting or self._asked or self._idle is not None or consumer is None:
            return 0
        if consumer.arrived:
            return 0
        self._asked = 1
        self._idle = asyncio.get_running_loop().call_later(AHEAD_S, self._rest)
        return 1

    def _rest(self) -> None:
        """No receive came for a while."""
        self._idle = None
        self._streak = 0
        consumer = self._consumer
        if consumer is None or consumer.closed or self._waiting:
            return
        if self._asked:
            self._want(consumer, 0)
        self._give_back(consumer)

    def _give_back(self, consumer: QueueConsumer) -> None:
        """Give back messages that came when no receive waited any more."""
        kept = self._waiting + (self._idle is not None)
        while len(consumer.arrived) > kept and not consumer.closed:
            consumer.settle_later(consumer.arrived.pop(), words.RELEASE)


class Receiving:
    """One receive, to be awaited or used with ``async with``."""

    def __init__(self, queue: MessageQueue, selector: bytes, timeout: float | None) -> None:
        self._queue = queue
        self._selector = selector
        self._timeout = timeout
        self._message: QueueMessage[Any] | None = None

    def __await__(self) -> Generator[Any, None, QueueMessage[Any] | None]:
        return self._queue._single(self._selector).receive(self._timeout).__await__()

    async def __aenter__(self) -> QueueMessage[Any] | None:
        self._message = await self
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        message = self._message
        if message is None or message.settled:
            return
        if error is None:
            await message.ack()
        else:
            try:
                await message.nack()
            except PluribusError as late:
                error.add_note(str(late))


class Messages:
    """Messages as they come; each is settled when the next one is asked for."""

    def __init__(self, queue: MessageQueue, selector: bytes, credit: int, credit_bytes: int, exclusive: bool) -> None:
        self._queue = queue
        self._selector = selector
        self._credit = (credit, credit_bytes)
        self._exclusive = exclusive
        self._consumer: QueueConsumer | None = None
        self._before: QueueMessage[Any] | None = None

    @property
    def late(self) -> int:
        """Messages that were settled too late: their lease had ended, and they are delivered again."""
        return 0 if self._consumer is None else self._consumer.late

    async def __aenter__(self) -> Messages:
        self._consumer = await self._queue._consumer(self._selector, *self._credit, exclusive=self._exclusive)
        return self

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> QueueMessage[Any]:
        consumer = self._consumer
        if consumer is None:
            raise BadInput("enter it first: async with q.messages() as messages")
        before = self._before
        if before is not None and not before.settled:
            before.settled = True
            consumer.settle_later(before)
        self._before = None
        if consumer.arrived:
            self._before = consumer.arrived.popleft()
            return self._before
        try:
            message = await consumer.next(None)
        except Closed:
            raise StopAsyncIteration from None
        if message is None:
            raise StopAsyncIteration
        self._before = message
        return message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The last message is settled if the block ended well, and given back if it raised."""
        consumer, before = self._consumer, self._before
        if consumer is None:
            return
        if before is not None and not before.settled and not consumer.closed:
            before.settled = True
            given_back = kind is not None and not issubclass(kind, GeneratorExit | asyncio.CancelledError)
            verb = 0 if kind is None else words.BACK if given_back else words.RELEASE
            consumer.settle_later(before, verb)
        self._queue._consumers.pop(consumer, None)
        await consumer.close()


async def all_settled(settling: Iterable[Awaitable[None]]) -> None:
    """Raises the first failure among these settlements."""
    for found in await asyncio.gather(*settling, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


async def call_with(messages: Messages, handler: Handler) -> None:
    async with messages:
        async for message in messages:
            try:
                found = handler(message)
                if isawaitable(found):
                    await found
            except Exception:  # noqa: BLE001 - whatever the handler raised, the message is not done
                if not message.settled:
                    try:
                        await message.nack()
                    except LeaseEnded:
                        continue
