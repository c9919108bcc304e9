"""Durable topics and their logs without ``await``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from ...core.ids import MessageId
from ...pubsub.durable.commands import Outcome
from ...pubsub.durable.requests import FETCH_BYTES, Fetched, GroupKnown, Known, Subscribed
from ...pubsub.durable.stages import KEEP_WRITER_S
from ..styles.topics import durable as real_durable
from ..styles.topics.durable import FOR_EVER, LEASE_S, Batches
from ..styles.topics.face import HELD_MAX, TRIES
from ..styles.topics.follower import Start
from .face import StandIn
from .subscriptions import DurableSubscription, Mailbox, SharedSubscription

B = TypeVar("B")


class Log(StandIn):
    """See ``Log``."""

    _real: real_durable.Log

    @property
    def topic(self) -> str:
        return self._real.topic

    def offsets(self) -> tuple[int, int]:
        return self._thread.call(self._real.offsets)

    def offset_at(self, time: float | datetime) -> int:
        return self._thread.call(self._real.offset_at, time)

    def fetch(
        self,
        start: int,
        stop: int = FOR_EVER,
        max_bytes: int = FETCH_BYTES,
        where: str | None = None,
        bodies: bool = True,
        wait: float = 0.0,
    ) -> Fetched:
        return self._thread.call(self._real.fetch, start, stop, max_bytes, where, bodies, wait)

    def read(
        self,
        start: int = 0,
        stop: int | None = None,
        max_bytes: int = FETCH_BYTES,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Batches:
        return self._thread.call(self._real.read, start, stop, max_bytes, where, columns)


class Durable(StandIn):
    """See ``Durable``."""

    _real: real_durable.Durable

    def publish(
        self,
        topic: str,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        id: MessageId | None = None,
    ) -> MessageId:
        return self._thread.call(
            self._real.publish, topic, body, headers=headers, parent=parent, timeout=timeout, id=id
        )

    def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
        keys: Sequence[str | None] | None = None,
    ) -> Sequence[MessageId]:
        return self._thread.call(self._real.publish_many, list(events), timeout=timeout, headers=headers, keys=keys)

    def publish_soon(
        self, topic: str, body: Any, *, headers: Mapping[str, Any] | None = None, parent: MessageId | None = None
    ) -> MessageId:
        return self._thread.ask(self._real.publish_soon, topic, body, headers=headers, parent=parent)

    def flush(self) -> None:
        self._thread.call(self._real.flush)

    def unsubscribe(self, name: str) -> None:
        self._thread.call(self._real.unsubscribe, name)

    def log(self, topic: str) -> Log:
        return Log(self._thread.ask(self._real.log, topic), self._thread)

    def topics(self, pattern: str = "#") -> list[Known]:
        return self._thread.call(self._real.topics, pattern)

    def groups(self) -> list[GroupKnown]:
        return self._thread.call(self._real.groups)

    def redrive_group(self, name: str, most: int = 1000) -> int:
        return self._thread.call(self._real.redrive_group, name, most)

    def remove_group(self, name: str) -> None:
        self._thread.call(self._real.remove_group, name)

    def retain(self, topic: str, *, age: float = 0.0, size: int = 0, keys: str | None = None) -> None:
        self._thread.call(self._real.retain, topic, age=age, size=size, keys=keys)

    def subscribers(self, pattern: str = "#") -> list[Subscribed]:
        return self._thread.call(self._real.subscribers, pattern)

    def delete(self, topic: str) -> int:
        return self._thread.call(self._real.delete, topic)

    def stage(
        self,
        writer: str,
        batch: int,
        attempt: str,
        part: int,
        packed: bytes,
        lease: float = LEASE_S,
        *,
        query: str = "",
        anew: bool = False,
    ) -> Outcome:
        return self._thread.call(self._real.stage, writer, batch, attempt, part, packed, lease, query=query, anew=anew)

    def commit_batch(
        self,
        writer: str,
        batch: int,
        attempts: Sequence[tuple[str, int]],
        *,
        query: str = "",
        anew: bool = False,
        keep: float = KEEP_WRITER_S,
    ) -> Outcome:
        return self._thread.call(self._real.commit_batch, writer, batch, attempts, query=query, anew=anew, keep=keep)

    def abort_batch(self, writer: str, batch: int, *, query: str = "") -> None:
        self._thread.call(self._real.abort_batch, writer, batch, query=query)

    def last_batch(self, writer: str, *, query: str = "") -> int:
        return self._thread.call(self._real.last_batch, writer, query=query)

    def subscribe(
        self,
        pattern: str | Sequence[str],
        *,
        where: Any = None,
        type: type[B] | None = None,
        name: str | None = None,
        start: Start = "latest",
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
        shared: bool = False,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> DurableSubscription[B]:
        """It begins at once: use it with ``with``."""
        options: dict[str, Any] = {"where": where, "type": type, "name": name, "start": start, "commit": commit}
        options |= {"max_bytes": max_bytes, "shared": shared, "tries": tries, "ahead": ahead}
        subscribing: Any = self._real.subscribe
        real = self._thread.ask(subscribing, pattern, **options)
        self._thread.call(real.open)
        return (
            SharedSubscription(real, self._thread, shared=True) if shared else DurableSubscription(real, self._thread)
        )

    def mailbox(self, name: str, topics: str | Sequence[str] = ()) -> Mailbox:
        """``with`` opens it."""
        return Mailbox(self._thread.ask(self._real.mailbox, name, topics), self._thread)
