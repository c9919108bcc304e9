"""Topics without ``await``: what ``pluribus.sync`` has of them, on members and on clients."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ...core.errors import Closed
from ...core.ids import MessageId
from ...core.limits import BACKLOG_EVENTS
from ...pubsub.event import Event
from ..loop.background import Background
from ..styles.topics.face import FETCH_BYTES, HELD_MAX, TRIES, TopicsFace
from .face import Face

if TYPE_CHECKING:  # loaded when first used
    from ...filters import Filter
    from ...patterns import Match, Pattern, Problem
    from ...pubsub.concepts import Vocabulary
    from ...pubsub.places import Near
    from ..loop.callbacks import Call
    from ..styles.topics import patterns as real_patterns
    from ..styles.topics.follower import Start

RECEIVE_MANY = 4_096

B = TypeVar("B")


class TopicsSync(Face):
    """What ``TopicsFace`` is with ``await``."""

    _real: TopicsFace

    def publish(
        self,
        topic: str,
        body: Any,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        retain: bool = False,
        durable: bool = False,
        timeout: float | None = None,
        id: MessageId | None = None,
        live: bool = True,
        key: str | None = None,
    ) -> MessageId:
        """Publish an event. See ``pluribus.Bus.publish``; ``publish_many`` is much faster for many."""

        async def crossed() -> MessageId:
            return await self._real.publish(topic, body, headers, parent, retain, durable, timeout, id, live, key)

        return self._thread.call(crossed)

    def publish_many(
        self,
        events: Iterable[tuple[str, Any]],
        *,
        headers: Mapping[str, Any] | None = None,
        retain: bool = False,
        durable: bool = False,
        timeout: float | None = None,
        live: bool = True,
        key: str | Sequence[str | None] | None = None,
    ) -> Sequence[MessageId]:
        """Publish pairs of a topic and a body, in one crossing. See ``pluribus.Bus.publish_many``."""
        options: dict[str, Any] = {"headers": headers, "retain": retain, "durable": durable, "live": live}
        return self._thread.call(self._real.publish_many, list(events), timeout=timeout, key=key, **options)

    def publish_soon(
        self,
        topic: str,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        retain: bool = False,
        durable: bool = False,
        live: bool = True,
        key: str | None = None,
    ) -> MessageId:
        """Publish without waiting; ``flush`` waits. See ``pluribus.Bus.publish_soon``."""
        options: dict[str, Any] = {"headers": headers, "parent": parent, "retain": retain, "durable": durable}
        return self._thread.ask(self._real.publish_soon, topic, body, live=live, key=key, **options)

    def flush(self) -> None:
        """Returns when everything that was published is admitted, and on disk if it is durable."""
        self._thread.call(self._real.flush)

    @overload
    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        type: None = None,
        *,
        durable: str,
        shared: bool = False,
        start: Start | None = None,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> Subscription[Any]: ...

    @overload
    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        *,
        type: type[B],
        durable: str,
        shared: bool = False,
        start: Start | None = None,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> Subscription[B]: ...

    @overload
    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        type: None = None,
        *,
        start: Start,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
    ) -> Subscription[Any]: ...

    @overload
    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        *,
        type: type[B],
        start: Start,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
    ) -> Subscription[B]: ...

    @overload
    def subscribe(
        self,
        pattern: str | None = None,
        where: str | Filter | None = None,
        type: None = None,
        *,
        near: Near | None = None,
        concept: str | None = None,
        vocabulary: Vocabulary | None = None,
        object: str | None = None,
        property: str | None = None,
        guarantee: str = "reliable",
        deadline: float | None = None,
        backlog: int = BACKLOG_EVENTS,
        slow: str | None = None,
        retain: bool = True,
        shared: str | None = None,
        call: Call | None = None,
        bodies: bool = False,
    ) -> Subscription[Any]: ...

    @overload
    def subscribe(
        self,
        pattern: str | None = None,
        where: str | Filter | None = None,
        *,
        type: type[B],
        near: Near | None = None,
        concept: str | None = None,
        vocabulary: Vocabulary | None = None,
        guarantee: str = "reliable",
        deadline: float | None = None,
        backlog: int = BACKLOG_EVENTS,
        slow: str | None = None,
        retain: bool = True,
        shared: str | None = None,
        call: Call | None = None,
        bodies: bool = False,
    ) -> Subscription[B]: ...

    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        type: type[Any] | None = None,
        *,
        near: Near | None = None,
        concept: str | None = None,
        vocabulary: Vocabulary | None = None,
        object: str | None = None,
        property: str | None = None,
        guarantee: str = "reliable",
        deadline: float | None = None,
        backlog: int = BACKLOG_EVENTS,
        slow: str | None = None,
        retain: bool = True,
        shared: str | bool | None = None,
        call: Call | None = None,
        bodies: bool = False,
        durable: str | None = None,
        start: Start | None = None,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> Any:
        """Events under topics that match; see ``pluribus.Bus.subscribe``. It begins at once: use it with ``with``."""
        options: dict[str, Any] = {
            "near": near,
            "concept": concept,
            "vocabulary": vocabulary,
            "object": object,
            "property": property,
            "guarantee": guarantee,
            "deadline": deadline,
            "backlog": backlog,
            "slow": slow,
            "retain": retain,
            "shared": shared,
            "call": call,
            "bodies": bodies,
            "durable": durable,
            "start": start,
            "commit": commit,
            "max_bytes": max_bytes,
            "tries": tries,
            "ahead": ahead,
        }
        subscribing: Any = self._real.subscribe
        real = self._thread.ask(subscribing, pattern, where, type, **options)
        self._thread.call(real.open)
        return Subscription(real, self._thread, shared=bool(shared))

    def matches(
        self,
        topics: str,
        pattern: Pattern | str,
        *,
        lateness_s: float = 0.0,
        tick_s: float | None = None,
        on_problem: Callable[[Problem], None] | None = None,
        where: str | Filter | None = None,
        type: type[Any] | None = None,
        guarantee: str = "reliable",
        deadline: float | None = None,
        retain: bool = True,
        shared: str | None = None,
        durable: str | None = None,
        start: Start | None = None,
    ) -> Matches:
        """What a row pattern finds in events; see ``pluribus.Bus.matches``. It begins at once: use it with ``with``."""
        options: dict[str, Any] = {"where": where, "type": type, "guarantee": guarantee, "deadline": deadline}
        options |= {"retain": retain, "shared": shared, "durable": durable, "start": start}
        options |= {"lateness_s": lateness_s, "tick_s": tick_s, "on_problem": on_problem}
        real = self._thread.ask(self._real.matches, topics, pattern, **options)
        self._thread.call(real.open)
        return Matches(real, self._thread)

    def log(self, topic: str) -> Face:
        """The log of a durable topic. See ``pluribus.Bus.log``."""
        return Face(self._thread.ask(self._real.log, topic), self._thread)

    @property
    def durable(self) -> Face:
        """Durable topics. See ``pluribus.Bus.durable``."""
        return Face(self._thread.ask(lambda: self._real.durable), self._thread)


class Subscription(Face, Generic[B]):
    """A subscription of a synchronous bus. See ``runtime/styles/topics/subscription.py``; its readers share it.

    Of a shared subscription (``shared=``) an event is finished when any thread asks for the next one: give each thread
    that works a subscription of its own.
    """

    _real: Any

    def __init__(self, real: Any, thread: Background, *, shared: bool = False) -> None:
        super().__init__(real, thread)
        self._fetch_events_max = 1 if shared else RECEIVE_MANY
        self._fetched: deque[Event[B]] = deque()
        self._reading = threading.Lock()

    def receive(self, timeout: float | None = None) -> Event[B]:
        """The next event; ``TimeoutError`` after ``timeout`` seconds, ``Closed`` when there will be none."""
        self._thread.check()
        deadline = None if timeout is None else monotonic() + timeout
        if not self._reading.acquire(timeout=-1 if timeout is None else max(timeout, 0.0)):
            raise TimeoutError
        try:
            while True:
                with suppress(IndexError):
                    return self._fetched.popleft()
                self._thread.call(self._take, None if deadline is None else max(deadline - monotonic(), 0.0))
        finally:
            self._reading.release()

    def receive_many(self, most: int = RECEIVE_MANY, timeout: float | None = None) -> list[Event[B]]:
        """At least one event, and as many as are there, up to ``most``."""
        events = [self.receive(timeout)]
        with suppress(IndexError):  # not in turn: another thread may have it, and wait for the next event
            while len(events) < most:
                events.append(self._fetched.popleft())
        return events

    def __iter__(self) -> Iterator[Event[B]]:
        """Events until the subscription is closed; leaving the iteration loses none."""
        while True:
            try:
                yield self.receive()
            except Closed:
                return

    async def _take(self, timeout: float | None) -> None:
        """On the loop, so that an interrupted caller loses nothing."""
        self._fetched.extend(await self._real.receive_many(self._fetch_events_max, timeout))


class Matches(Face):
    """Matches of a row pattern on a synchronous bus. See ``pluribus.runtime.styles.topics.patterns``."""

    _real: real_patterns.Matches

    def __iter__(self) -> Iterator[Match]:
        """Matches until it is closed."""
        while True:
            try:
                yield self._thread.call(self._real.receive)
            except Closed:
                return
