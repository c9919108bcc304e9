"""Queues without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ....core.ids import MessageId
from ....filters import Filter
from ....queues.words import PRIORITY
from ...loop.background import Background
from ...sync.face import Closing, StandIn, one_by_one
from ..tables.face import ROWS_MAX, TIMEOUT_S
from .message import Browsed, QueueMessage
from .queue import CREDIT, CREDIT_BYTES, MessageQueue, Progress
from .receiving import Messages
from .stats import QueueStats

if TYPE_CHECKING:
    from ....tables.result import SqlTable

H = TypeVar("H", bound=Callable[[Any], Any])


class SyncMessage(StandIn):
    """See ``QueueMessage``. Leaving a ``with`` settles it; an exception gives it back.

    The fields of a message never change, so they are read without crossing to the loop."""

    _real: QueueMessage[Any]

    @property
    def body(self) -> Any:
        return self._real.body

    @property
    def number(self) -> int:
        return self._real.number

    @property
    def deliveries(self) -> int:
        return self._real.deliveries

    @property
    def sent(self) -> float:
        return self._real.sent

    @property
    def priority(self) -> int:
        return self._real.priority

    @property
    def key(self) -> str:
        return self._real.key

    @property
    def id(self) -> str:
        return self._real.id

    @property
    def correlation(self) -> str:
        return self._real.correlation

    @property
    def reply_to(self) -> str:
        return self._real.reply_to

    @property
    def properties(self) -> Mapping[str, Any]:
        return self._real.properties

    @property
    def ttl(self) -> float:
        return self._real.ttl

    @property
    def settled(self) -> bool:
        return self._real.settled

    def ack(self) -> None:
        self._thread.call(self._real.ack)

    def nack(self, delay: float | None = None) -> None:
        self._thread.call(self._real.nack, delay)

    def reject(self, reason: str = "") -> None:
        self._thread.call(self._real.reject, reason)

    def release(self) -> None:
        self._thread.call(self._real.release)

    def extend(self, seconds: float) -> None:
        self._thread.call(self._real.extend, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._real.settled:
            self._thread.call(self._real.ack if error is None else self._real.nack)


class SyncMessages(StandIn):
    """See ``Messages``. With ``with``, leaving the block settles the last message, or gives it back if the block
    raised; without it, leaving the iteration settles the last message."""

    _real: Messages

    def __init__(self, real: Messages, thread: Background) -> None:
        super().__init__(real, thread)
        self._entered = False

    @property
    def late(self) -> int:
        return self._thread.ask(lambda: self._real.late)

    def __iter__(self) -> Iterator[SyncMessage]:
        if self._entered:
            yield from self._coming()
            return
        self.__enter__()
        try:
            yield from self._coming()
        except BaseException as left:
            self.__exit__(type(left), left, None)
            raise
        else:
            self.__exit__(None, None, None)

    def _coming(self) -> Iterator[SyncMessage]:
        for message in one_by_one(self._thread, self._real):
            yield SyncMessage(message, self._thread)

    def __enter__(self) -> Self:
        self._thread.call(self._real.__aenter__)
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        self._thread.call(self._real.__aexit__, kind, error, trace)


class SyncMessageQueue(Closing):
    """See ``MessageQueue``. Several threads may use every method at once."""

    _real: MessageQueue

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def durable(self) -> bool:
        return self._real.durable

    def send(
        self,
        body: Any,
        *,
        priority: int = PRIORITY,
        ttl: float | None = None,
        delay: float | None = None,
        properties: Mapping[str, Any] | None = None,
        key: str = "",
        id: str = "",
        correlation: str = "",
        reply_to: str = "",
        durable: bool = True,
        timeout: float | None = None,
    ) -> MessageId:
        return self._thread.call(
            self._real.send,
            body,
            priority=priority,
            ttl=ttl,
            delay=delay,
            properties=properties,
            key=key,
            id=id,
            correlation=correlation,
            reply_to=reply_to,
            durable=durable,
            timeout=timeout,
        )

    def send_many(self, bodies: Iterable[Any], *, timeout: float | None = None) -> list[MessageId]:
        return self._thread.call(self._real.send_many, list(bodies), timeout=timeout)

    def send_soon(
        self,
        body: Any,
        *,
        priority: int = PRIORITY,
        ttl: float | None = None,
        delay: float | None = None,
        properties: Mapping[str, Any] | None = None,
        key: str = "",
        id: str = "",
        correlation: str = "",
        reply_to: str = "",
    ) -> MessageId:
        return self._thread.ask(
            self._real.send_soon,
            body,
            priority=priority,
            ttl=ttl,
            delay=delay,
            properties=properties,
            key=key,
            id=id,
            correlation=correlation,
            reply_to=reply_to,
        )

    def flush(self) -> None:
        self._thread.call(self._real.flush)

    def arrived(self, where: str | Filter | None = None, timeout: float | None = None) -> bool:
        return self._thread.call(self._real.arrived, where, timeout)

    def receive(self, where: str | Filter | None = None, timeout: float | None = None) -> SyncMessage | None:
        """One message; None if none came in ``timeout`` seconds."""

        async def received() -> QueueMessage[Any] | None:
            return await self._real.receive(where, timeout)

        message = self._thread.call(received)
        return None if message is None else SyncMessage(message, self._thread)

    @contextmanager
    def receiving(
        self, where: str | Filter | None = None, timeout: float | None = None
    ) -> Iterator[SyncMessage | None]:
        """``with q.receiving(timeout=1) as m:``, where leaving settles it; ``m`` is None if none came."""
        message = self.receive(where, timeout)
        if message is None:
            yield None
            return
        with message:
            yield message

    def messages(
        self,
        where: str | Filter | None = None,
        *,
        credit: int = CREDIT,
        credit_bytes: int = CREDIT_BYTES,
        exclusive: bool = False,
    ) -> SyncMessages:
        """Messages as they come; asking for the next one settles the one before, unless it was settled."""
        options: dict[str, Any] = {"credit": credit, "credit_bytes": credit_bytes, "exclusive": exclusive}
        return SyncMessages(self._thread.ask(self._real.messages, where, **options), self._thread)

    def __iter__(self) -> Iterator[SyncMessage]:
        return iter(self.messages())

    def on(
        self, where: str | Filter | None = None, *, credit: int = CREDIT, exclusive: bool = False
    ) -> Callable[[H], H]:
        """A decorator: the function is called with every message, in a thread. If it returns, the message is settled;
        if it raises, the message is given back."""

        def decorated(call: H) -> H:
            self.call(call, where, credit=credit, exclusive=exclusive)
            return call

        return decorated

    def call(
        self,
        handler: Callable[[SyncMessage], object],
        where: str | Filter | None = None,
        *,
        credit: int = CREDIT,
        exclusive: bool = False,
    ) -> Callable[[], None]:
        """Call a function with every message, one after another, in a thread, until the returned function is called."""

        async def handled(message: QueueMessage[Any]) -> None:
            await asyncio.to_thread(handler, SyncMessage(message, self._thread))

        task = self._thread.ask(self._real.call, handled, where, credit=credit, exclusive=exclusive)

        def stop() -> None:
            self._thread.ask(task.cancel)

        return stop

    def ack(self, messages: Iterable[SyncMessage]) -> None:
        """Settle several messages together. ``LeaseEnded`` names the first that is not held any more."""
        self._thread.call(self._real.ack, [one._real for one in messages])

    def nack(self, messages: Iterable[SyncMessage], delay: float | None = None) -> None:
        self._thread.call(self._real.nack, [one._real for one in messages], delay)

    def reject(self, messages: Iterable[SyncMessage], reason: str = "") -> None:
        self._thread.call(self._real.reject, [one._real for one in messages], reason)

    def extend(self, messages: Iterable[SyncMessage], seconds: float) -> None:
        self._thread.call(self._real.extend, [one._real for one in messages], seconds)

    def browse(
        self, where: str | Filter | None = None, *, dead: bool = False, limit: int | None = None
    ) -> Iterator[Browsed]:
        return one_by_one(self._thread, self._real.browse(where, dead=dead, limit=limit))

    def sql(self, statement: str, *, rows_max: int = ROWS_MAX, timeout: float = TIMEOUT_S) -> SqlTable:
        return self._thread.call(self._real.sql, statement, rows_max=rows_max, timeout=timeout)

    def stats(self) -> QueueStats:
        return self._thread.call(self._real.stats)

    def purge(self, *, dead: bool = False, progress: Progress | None = None) -> int:
        return self._thread.call(self._real.purge, dead=dead, progress=progress)

    def redrive(self, limit: int | None = None, *, progress: Progress | None = None) -> int:
        return self._thread.call(self._real.redrive, limit, progress=progress)

    def pause(self) -> None:
        self._thread.call(self._real.pause)

    def resume(self) -> None:
        self._thread.call(self._real.resume)

    def configure(
        self,
        *,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        full: str | None = None,
        tries: int | None = None,
        backoff: tuple[float, float] | None = None,
        window: float | None = None,
        lease: float | None = None,
        dead_max: int | None = None,
        dead_expired: bool | None = None,
        transform: str | None = None,
    ) -> None:
        self._thread.call(
            self._real.configure,
            messages_max=messages_max,
            bytes_max=bytes_max,
            full=full,
            tries=tries,
            backoff=backoff,
            window=window,
            lease=lease,
            dead_max=dead_max,
            dead_expired=dead_expired,
            transform=transform,
        )
