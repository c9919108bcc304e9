"""Ways to receive: one message at a time, and messages as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, Closed, LeaseEnded, PluribusError
from ....group.host.demand import CREDIT_MAX
from ....queues import words
from .consumer import Consumer
from .message import QueueMessage

if TYPE_CHECKING:
    from .queue import MessageQueue

Handler = Callable[[QueueMessage[Any]], Awaitable[object] | object]


class Singles:
    """Single receives with one selector share a consumer, which wants as many messages as there are receives."""

    def __init__(self, queue: MessageQueue, selector: bytes) -> None:
        self._queue = queue
        self._selector = selector
        self._consumer: Consumer | None = None
        self._opening = asyncio.Lock()
        self._waiting = 0

    async def receive(self, timeout: float | None) -> QueueMessage[Any] | None:
        consumer = await self._opened()
        self._waiting += 1
        try:
            consumer.want(CREDIT_MAX, 1 << 40, self._waiting)
            if timeout == 0:
                await consumer.settled()
                return await self._cancelled(consumer)
            message = await consumer.next(timeout)
            return message if message is not None else await self._cancelled(consumer)
        except asyncio.CancelledError:
            consumer.want(CREDIT_MAX, 1 << 40, self._waiting - 1)
            raise
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._give_back(consumer)

    async def _opened(self) -> Consumer:
        async with self._opening:
            consumer = self._consumer
            if consumer is None or consumer.closed or consumer.failure is not None:
                consumer = self._consumer = await self._queue._consumer(self._selector, CREDIT_MAX, 1 << 40, 0)
                consumer.on_arrival = lambda: self._give_back(consumer)
            return consumer

    async def _cancelled(self, consumer: Consumer) -> QueueMessage[Any] | None:
        """Take the demand back; if a message was given just before, that is it."""
        given = await consumer.cancel(self._waiting - 1)
        if not given:
            return None
        return await consumer.next(None)

    def _give_back(self, consumer: Consumer) -> None:
        """A message that came when nobody waited any more."""
        while len(consumer.arrived) > self._waiting:
            consumer.settle_later(consumer.arrived.pop(), words.RELEASE)


class Receiving:
    """One receive, to be awaited or entered."""

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
        self._consumer: Consumer | None = None
        self._before: QueueMessage[Any] | None = None

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
