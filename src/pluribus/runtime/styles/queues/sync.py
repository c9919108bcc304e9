"""Queues without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ....filters import Filter
from ...loop.background import Background
from ...sync.face import Face, one_by_one
from .message import QueueMessage
from .queue import CREDIT, Browsed, MessageQueue


class SyncMessage(Face):
    """See ``QueueMessage``. Leaving a ``with`` settles it; an exception gives it back."""

    _real: QueueMessage[Any]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._real.settled:
            self._thread.call(self._real.ack if error is None else self._real.nack)

    @property
    def body(self) -> Any:
        return self._real.body

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

    def messages(self, where: str | Filter | None = None, *, credit: int = CREDIT) -> Iterator[QueueMessage[Any]]:
        """Messages as they come; asking for the next one settles the one before."""
        messages = self._thread.ask(self._real.messages, where, credit=credit)
        self._thread.call(messages.__aenter__)
        try:
            yield from one_by_one(self._thread, messages)
        except GeneratorExit as left:
            self._thread.call(messages.__aexit__, GeneratorExit, left, None)
            raise
        else:
            self._thread.call(messages.__aexit__, None, None, None)

    def __iter__(self) -> Iterator[QueueMessage[Any]]:
        return self.messages()

    def browse(
        self, where: str | Filter | None = None, *, dead: bool = False, limit: int | None = None
    ) -> Iterator[Browsed]:
        return one_by_one(self._thread, self._real.browse(where, dead=dead, limit=limit))

    def purge(self, *, dead: bool = False, progress: Callable[[int], object] | None = None) -> int:
        return self._thread.call(self._real.purge, dead=dead, progress=progress)
