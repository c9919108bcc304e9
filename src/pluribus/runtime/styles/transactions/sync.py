"""Transactions without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ....filters import Filter
from ...sync.face import Face, real_of
from ..queues.message import QueueMessage
from ..queues.sync import SyncMessage, SyncMessageQueue
from ..spaces.sync import SyncSpace
from .transaction import Transaction


class SyncTransaction(Face):
    """See ``Transaction``. ``with bus.transaction() as tx:`` commits at the end of the block."""

    _real: Transaction

    def __enter__(self) -> SyncTransaction:
        self._thread.call(self._real.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._real.__aexit__, kind, error, trace)

    @property
    def id(self) -> int:
        return self._real.id

    def send(self, queue: SyncMessageQueue, body: Any, **options: Any) -> None:
        self._thread.call(self._real.send, queue._real, body, **options)

    def receive(
        self, queue: SyncMessageQueue, where: str | Filter | None = None, timeout: float | None = None
    ) -> QueueMessage[Any] | None:
        return self._thread.call(self._real.receive, queue._real, where, timeout)

    def settle(self, queue: SyncMessageQueue, message: SyncMessage | QueueMessage[Any]) -> None:
        self._thread.ask(self._real.settle, queue._real, real_of(message))

    def enter(self, space: SyncSpace) -> int:
        return self._thread.call(self._real.enter, space._real)

    def write(self, space: SyncSpace, value: Any, lease: float | None = None) -> None:
        self._thread.call(self._real.write, space._real, value, lease)

    def take(self, space: SyncSpace, template: Any, where: str = "", *, timeout: float | None = None) -> Any:
        return self._thread.call(self._real.take, space._real, template, where, timeout=timeout)

    def read(self, space: SyncSpace, template: Any, where: str = "", *, timeout: float | None = None) -> Any:
        return self._thread.call(self._real.read, space._real, template, where, timeout=timeout)
