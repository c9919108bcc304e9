"""Queues without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from ....filters import Filter
from ...loop.background import Background
from ...sync.face import Face, one_by_one
from .message import Browsed, QueueMessage
from .queue import CREDIT, CREDIT_BYTES, MessageQueue

PARTS = (
    *("assignment", "body", "correlation", "deliveries", "id", "key"),
    *("number", "priority", "properties", "reply_to", "sent"),
)
H = TypeVar("H", bound=Callable[[Any], Any])


class SyncMessage(Face):
    """See ``QueueMessage``. Leaving a ``with`` settles it; an exception gives it back."""

    _real: QueueMessage[Any]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._real.settled:
            self._thread.call(self._real.ack if error is None else self._real.nack)

    def __getattr__(self, name: str) -> Any:
        """The fields of a message never change, so they are read without crossing to the loop."""
        return getattr(self._real, name) if name in PARTS else super().__getattr__(name)

    @property
    def closed(self) -> bool:
        return self._real.settled


class SyncMessageQueue(Face):
    """See ``MessageQueue``."""

    _real: MessageQueue

    def __init__(self, real: MessageQueue, thread: Background) -> None:
        super().__init__(real, thread)

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
    ) -> Iterator[SyncMessage]:
        """Messages as they come; asking for the next one settles the one before, unless it was settled."""
        messages = self._thread.ask(
            self._real.messages, where, credit=credit, credit_bytes=credit_bytes, exclusive=exclusive
        )
        self._thread.call(messages.__aenter__)
        try:
            for message in one_by_one(self._thread, messages):
                yield SyncMessage(message, self._thread)
        except GeneratorExit as left:
            self._thread.call(messages.__aexit__, GeneratorExit, left, None)
            raise
        else:
            self._thread.call(messages.__aexit__, None, None, None)

    def __iter__(self) -> Iterator[SyncMessage]:
        return self.messages()

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

    def purge(self, *, dead: bool = False, progress: Callable[[int], object] | None = None) -> int:
        return self._thread.call(self._real.purge, dead=dead, progress=progress)
