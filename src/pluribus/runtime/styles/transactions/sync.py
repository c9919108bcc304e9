"""Transactions without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ....filters import Filter
from ....queues.words import PRIORITY
from ...sync.face import StandIn, real_of
from ..queues.sync import SyncMessage, SyncMessageQueue
from ..spaces.sync import SyncSpace
from .transaction import COMMIT_S, Transaction


class SyncTransaction(StandIn):
    """See ``Transaction``. ``with bus.transaction() as tx:`` commits at the end of the block."""

    _real: Transaction

    @property
    def id(self) -> int:
        return self._real.id

    @property
    def state(self) -> str:
        return self._thread.ask(lambda: self._real.state)

    def __enter__(self) -> Self:
        self._thread.call(self._real.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._real.__aexit__, kind, error, trace)

    def send(
        self,
        queue: SyncMessageQueue,
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
    ) -> None:
        self._thread.call(
            self._real.send,
            real_of(queue),
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

    def receive(
        self, queue: SyncMessageQueue, where: str | Filter | None = None, timeout: float | None = None
    ) -> SyncMessage | None:
        message = self._thread.call(self._real.receive, real_of(queue), where, timeout)
        return None if message is None else SyncMessage(message, self._thread)

    def settle(self, queue: SyncMessageQueue, message: SyncMessage) -> None:
        self._thread.ask(self._real.settle, real_of(queue), real_of(message))

    def publish(self, topic: str, body: Any, *, headers: Mapping[str, Any] | None = None) -> None:
        self._thread.call(self._real.publish, topic, body, headers=headers)

    def enter(self, space: SyncSpace) -> int:
        return self._thread.call(self._real.enter, real_of(space))

    def write(self, space: SyncSpace, value: Any, lease: float | None = None) -> None:
        self._thread.call(self._real.write, real_of(space), value, lease)

    def take(self, space: SyncSpace, template: Any, where: str = "", *, timeout: float | None = None) -> Any:
        return self._thread.call(self._real.take, real_of(space), template, where, timeout=timeout)

    def read(self, space: SyncSpace, template: Any, where: str = "", *, timeout: float | None = None) -> Any:
        return self._thread.call(self._real.read, real_of(space), template, where, timeout=timeout)

    def commit(self, timeout: float | None = COMMIT_S) -> None:
        self._thread.call(self._real.commit, timeout)

    def prepare(self, timeout: float | None = COMMIT_S) -> None:
        self._thread.call(self._real.prepare, timeout)

    def abort(self, timeout: float | None = COMMIT_S) -> None:
        self._thread.call(self._real.abort, timeout)
