"""Moves messages from one queue to another, transformed on the way, each once.

Theory of operation
-------------------
A transformer is a consumer of its source. It transforms the messages that it
holds outside of any transaction, because a function may take long. Then one transaction settles these messages and
sends their results: both or neither, so a message is in the source or in the target, and never in both. When a
transformer dies, its lease ends, and another one gets its messages: a message may be transformed twice, so a function
should change nothing else.

Between queues of which one is in memory there is no transaction. Then a message is sent with its ``id`` first, and
settled after that. If a transformer dies in between, the next one sends it again, and the target drops the duplicate,
as long as the ``id`` is within its window.

A message that cannot be transformed is rejected with the reason. A commit that is refused, for instance because the
target is full, is tried again with the messages that are still held; that does not count as a try. A commit whose
answer is lost is repeated until its outcome is known.

*Order.* Messages are transformed one after another, and sent in the order in which the source handed them out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar

import msgspec

from ....core.errors import BadInput, NotTransformed, PluribusError, TransactionEnded, Uncertain
from ....core.ids import checked_name
from ....filters import Filter
from ....queues import words
from ....transformations.chain import Chain, Step, failed
from ....transformations.registry import function_of, is_coroutine
from ....wire.bodies import encode_body
from ...loop.futures import in_a_thread
from ...machines.line import TRANSIENT
from ..queues.consumer import QueueConsumer
from ..queues.looking import PAGE
from ..queues.message import QueueMessage
from ..queues.options import selector_of
from ..queues.outgoing import OutgoingMessage
from ..queues.queue import CREDIT, CREDIT_BYTES, MessageQueue, Queues
from ..queues.sender import encoded_properties
from ..style import Style
from ..transactions.transaction import Transaction
from ..transactions.transactions import TransactionsStyle

log_ = logging.getLogger("pluribus")

BATCH_BYTES = 1 << 20
"""Bytes of bodies in one transaction; a longer message is alone in its transaction."""
LINGER_S = 0.1
"""Seconds after which transformed messages are sent, although the consumer holds more."""
LOOK_S = 0.05
"""With ``once``: seconds without a message after which the queue is asked whether any is there."""
THREAD_BYTES = 64 << 10
"""Bytes of a body above which formats are read and written in a thread."""
COMMIT_S = 30.0
OPEN_S = 15.0
END_S = 5.0
"""Seconds for which closing a transformer waits for messages under way."""
PAUSE_S, PAUSE_S_MAX = 0.05, 2.0

Made = tuple[QueueMessage[Any], OutgoingMessage]


class Transformers(Style):
    """All transformers that run on one bus."""

    on_clients: ClassVar[str] = "pluribus.runtime.styles.transformations.transformer:Transformers"
    closes: ClassVar[int] = 20

    def __init__(self, bus: Any) -> None:
        super().__init__(bus)
        self.running: dict[Transformer, None] = {}

    def make(
        self,
        source: str | MessageQueue,
        target: str | MessageQueue,
        chain: str,
        where: str | Filter | None,
        timeout: float,
    ) -> Transformer:
        if not 0 < timeout <= 86_400:
            raise BadInput(f"timeout={timeout!r}: give seconds for one message, from 0 to 86,400")
        parsed = Chain.parse(chain)
        parsed.check_registered()
        return Transformer(self, source, target, parsed, selector_of(where), timeout)

    def told(self) -> dict[str, dict[str, Any]]:
        found = {
            f"{one.source} to {one.target}": {"transformed": one.transformed, "failed": one.failed}
            for one in list(self.running)[:10]
        }
        return {"transformers": found} if found else {}

    async def close(self) -> None:
        for one in list(self.running):
            await one.stop()

    def abandon(self) -> None:
        for one in list(self.running):
            one.abandon()


class Transformer:
    """Made by ``bus.transformer(...)``. Enter it, or await ``run``."""

    def __init__(
        self,
        style: Transformers,
        source: str | MessageQueue,
        target: str | MessageQueue,
        chain: Chain,
        selector: bytes,
        timeout: float,
    ) -> None:
        self.chain = chain
        self.transformed = 0
        """Messages that were sent to the target."""
        self.failed = 0
        """Messages that became dead letters."""
        self.waits_for = ""
        """The reason why the target accepts no messages now."""
        self._style = style
        self._queues = (source, target)
        self._selector = selector
        self._timeout_s = timeout
        self._task: asyncio.Task[int] | None = None
        self._ending = False
        self._idle = False
        """True if it waits for a message, and nothing is under way."""
        for queue in self._queues:
            if isinstance(queue, str):
                checked_name(queue, "the queue")
        if (self.source, _durable(source)) == (self.target, _durable(target)):
            raise BadInput(f"{self.source!r} is both the source and the target: choose two queues")

    @property
    def source(self) -> str:
        return _name(self._queues[0])

    @property
    def target(self) -> str:
        return _name(self._queues[1])

    @property
    def closed(self) -> bool:
        return self._ending

    async def run(self, *, once: bool = False) -> int:
        """Move messages until cancelled or closed; with ``once``, the messages that are there. Returns how many were
        transformed.

        Other members may transform the same queue: each message is moved by one of them."""
        if self._ending or self in self._style.running:
            raise BadInput("a transformer runs once: make another")
        self._style.running[self] = None
        before = self.transformed
        consumer: QueueConsumer | None = None
        source: MessageQueue | None = None
        try:
            source, target = [await self._opened(queue) for queue in self._queues]
            consumer = await source._consumer(self._selector, CREDIT, CREDIT_BYTES)
            await self._move_all(source, target, consumer, once)
        finally:
            self._style.running.pop(self, None)
            if consumer is not None and source is not None:
                source._consumers.pop(consumer, None)
                await consumer.close()
        return self.transformed - before

    async def _opened(self, queue: str | MessageQueue) -> MessageQueue:
        if isinstance(queue, MessageQueue):
            return queue
        queues: Queues = self._style.bus._style(Queues)
        return await queues.open(queue, True, None, OPEN_S)

    async def _move_all(self, source: MessageQueue, target: MessageQueue, consumer: QueueConsumer, once: bool) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending:
            message = await self._next(source, consumer, once)
            if message is None:
                return
            made: list[Made] = []
            size, until = 0, loop.time() + LINGER_S
            while message is not None:
                outgoing = await self._made(source, message)
                if outgoing is not None:
                    made.append((message, outgoing))
                    size += len(outgoing.body)
                full = size > BATCH_BYTES or len(made) >= CREDIT or loop.time() > until
                message = None if full or self.closed or not consumer.arrived else consumer.arrived.popleft()
            await self._move(source, target, consumer, made)

    async def _next(self, source: MessageQueue, consumer: QueueConsumer, once: bool) -> QueueMessage[Any] | None:
        """A message; None when there is none, with ``once``, or at the end."""
        if once and not consumer.arrived:
            await consumer.settled()  # the queue is told how much room there is
            while (message := await consumer.next(LOOK_S)) is None:
                if not await self._is_there(source):
                    return await consumer.next(None) if await consumer.cancel(0) else None
            return message
        if consumer.arrived:
            return consumer.arrived.popleft()
        self._idle = True
        try:
            return await consumer.next(None)
        finally:
            self._idle = False

    async def _is_there(self, source: MessageQueue) -> bool:
        """True if a message waits that this transformer would be given; with a selector the search may take time."""
        if (await source.stats()).state.paused:
            return False
        start = 0
        while True:
            look = words.encode(words.Look(start, PAGE, self._selector))
            looked = msgspec.msgpack.decode(await source._line.inspect(look, timeout=None), type=words.Looked)
            if any(seen.state == "ready" for seen in looked.found):
                return True
            start = looked.then
            if not start:
                return False

    # One message.

    async def _made(self, source: MessageQueue, message: QueueMessage[Any]) -> OutgoingMessage | None:
        """The result of a message; None if there is none: the message is settled already."""
        try:
            ttl_us = await _left_us(source, message) if message.ttl else 0
            if ttl_us < 0:
                with suppress(PluribusError):  # its time is over: the queue deals with it as with any expired message
                    await message.release()
                return None
            kind, encoded = await self._in_time(self._transform(message.body))
        except NotTransformed as error:
            await self._reject(message, str(error))
            return None
        texts = (message.key, message.id, message.correlation, message.reply_to)
        return OutgoingMessage(
            kind, encoded, message.priority, ttl_us, 0, *texts, encoded_properties(message.properties)
        )

    async def _in_time(self, work: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotTransformed(f"it took more than {self._timeout_s:g} s") from None

    async def _transform(self, body: Any) -> tuple[int | str, bytes]:
        for at, step in enumerate(self.chain.steps, 1):
            try:
                body = await self._step(step, body)
            except Exception as error:  # noqa: BLE001 - of the user's own function: whatever it is, it is the reason
                raise failed(at, step, error) from None
        try:
            return encode_body(body)
        except BadInput as error:
            raise NotTransformed(f"what {self.chain.steps[-1].name} made cannot be sent: {error}") from None

    async def _step(self, step: Step, body: Any) -> Any:
        apart = self._style.bus.eager
        if step.format is not None:
            long = isinstance(body, bytes | str) and len(body) > THREAD_BYTES
            return await in_a_thread(step.apply, body) if apart and long else step.apply(body)
        function = function_of(step.name)
        if function is None:
            raise NotTransformed(f"no function {step.name!r} is registered here any more")
        if is_coroutine(function):
            made = await function(body)
        else:
            made = await in_a_thread(function, body) if apart else function(body)
        if made is None:
            raise NotTransformed("the function returned None: let it return what the next step gets")
        return made

    async def _reject(self, message: QueueMessage[Any], reason: str) -> None:
        self.failed += 1
        with suppress(PluribusError):  # then this consumer does not hold it any more, and another one gets it
            await message.reject(f"did not transform: {reason}"[:1_024])

    # All of them.

    async def _move(
        self, source: MessageQueue, target: MessageQueue, consumer: QueueConsumer, made: list[Made]
    ) -> None:
        """Settle these messages and send their results."""
        if source.durable and target.durable:
            await self._move_together(source, target, consumer, made)
            return
        for message, outgoing in made:
            try:
                await target.pass_on(outgoing)
            except BadInput as error:
                await self._reject(message, str(error))
                continue
            with suppress(PluribusError):  # another consumer gets it then, and the target drops the duplicate
                await message.ack()
            self.transformed += 1

    async def _move_together(
        self, source: MessageQueue, target: MessageQueue, consumer: QueueConsumer, made: list[Made]
    ) -> None:
        """Move them in one transaction, repeated as often as needed."""
        pause_s = PAUSE_S
        while made:
            transaction = self._style.bus._style(TransactionsStyle).begin(COMMIT_S, 0)
            try:
                async with transaction:
                    for message, outgoing in made:
                        await self._pass_on(source, target, transaction, message, outgoing)
            except Uncertain:
                if not await self._known(transaction):
                    continue
            except _Unfit as unfit:
                made = [one for one in made if one[0] is not unfit.message]
                await self._reject(unfit.message, str(unfit))
                continue
            except (TransactionEnded, *TRANSIENT) as error:
                if consumer.closed:
                    raise
                if self._ending:
                    return  # the messages go back
                made = [one for one in made if consumer.hands.get(one[0].number) == one[0].assignment]
                if not self.waits_for and made:
                    log_.warning("the transformer from %r to %r waits: %s", self.source, self.target, error)
                self.waits_for = str(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
                continue
            self.waits_for = ""
            self.transformed += len(made)
            return

    async def _known(self, transaction: Transaction) -> bool:
        """True if a transaction whose answer was lost is committed; asks until that is known."""
        while True:
            try:
                await transaction.commit()
                return True
            except Uncertain:
                if self._style.bus.closed:
                    raise
                await asyncio.sleep(PAUSE_S)
            except TransactionEnded:
                return False

    async def _pass_on(
        self,
        source: MessageQueue,
        target: MessageQueue,
        transaction: Transaction,
        message: QueueMessage[Any],
        outgoing: OutgoingMessage,
    ) -> None:
        transaction.settle(source, message)
        try:
            await transaction.pass_on(target, msgspec.structs.replace(outgoing))
        except BadInput as error:  # too long, for example
            raise _Unfit(message, str(error)) from None

    # Its life.

    def __repr__(self) -> str:
        return f"<transformer from {self.source!r} to {self.target!r}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> Transformer:
        if self._task is not None:
            raise BadInput("a transformer is entered once: make another")
        self._task = asyncio.create_task(self.run())
        self._task.add_done_callback(self._ended)
        return self

    def _ended(self, task: asyncio.Task[int]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log_.error("the transformer from %r to %r ended: %s", self.source, self.target, task.exception())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except PluribusError as late:
            if error is None:
                raise
            error.add_note(str(late))

    async def close(self) -> None:
        """Close. Transformed messages are sent first; the others are given back. If the transformer ended by an error,
        that error is raised."""
        await self.stop()
        if self._task is not None and not self._task.cancelled():
            self._task.result()

    async def stop(self) -> None:
        """Like ``close``, and raises nothing."""
        self._ending = True
        task = self._task
        if task is None or task.done():
            return
        if self._idle:
            task.cancel()
        _, late = await asyncio.wait([task], timeout=END_S)
        if late:
            task.cancel()
            await asyncio.wait([task])

    def abandon(self) -> None:
        self._ending = True
        if self._task is not None:
            self._task.cancel()


class _Unfit(Exception):
    """A message that every transaction refuses."""

    def __init__(self, message: QueueMessage[Any], text: str) -> None:
        super().__init__(text)
        self.message = message


async def _left_us(source: MessageQueue, message: QueueMessage[Any]) -> int:
    """The rest of a message's time, by the time of the log; less than 0: none."""
    consumer = message._consumer
    assert consumer is not None
    await source._line.call(words.encode(words.Settle(consumer.number, consumer.epoch)))  # so that the time is now
    look = words.encode(words.Look(message.number, 1))
    looked = msgspec.msgpack.decode(await source._line.inspect(look, timeout=None), type=words.Looked)
    counted = await source._line.inspect(words.encode(words.Count()), timeout=None)
    now_us = msgspec.msgpack.decode(counted, type=words.Stats).now_us
    for seen in looked.found:
        if seen.thing == message.number and seen.expiry_us:
            return max(seen.expiry_us - now_us, -1) or -1
    return -1


def _durable(queue: str | MessageQueue) -> bool:
    return isinstance(queue, str) or queue.durable


def _name(queue: str | MessageQueue) -> str:
    return queue if isinstance(queue, str) else queue.name
