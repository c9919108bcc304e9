"""Topics without ``await``: what ``pluribus.sync`` has of them, on members and on clients."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from ...core.errors import Closed
from ...core.ids import MessageId
from ...core.limits import BACKLOG_EVENTS
from ...core.view import View
from ...pubsub.event import Event
from ..loop.background import Background
from ..styles.topics.face import FETCH_BYTES, HELD_MAX, TRIES, TopicsFace
from .face import Face, StandIn

if TYPE_CHECKING:  # loaded when first used
    from ...filters import Filter
    from ...patterns import Match, Pattern, Problem
    from ...pubsub.concepts import Vocabulary
    from ...pubsub.consumer_groups.words import Dead, Standing
    from ...pubsub.places import Near
    from ..loop.callbacks import Call
    from ..styles.topics import observed as real_observed
    from ..styles.topics import patterns as real_patterns
    from ..styles.topics.follower import Start
    from ..styles.topics.pubsub import Advertisement

RECEIVE_MANY = 4_096

B = TypeVar("B")
F = TypeVar("F", bound=Callable[..., Any])


class TopicsSync(StandIn):
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
        shared: Literal[True],
        start: Start | None = None,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> SharedSubscription[Any]: ...

    @overload
    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        *,
        type: type[B],
        durable: str,
        shared: Literal[True],
        start: Start | None = None,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
        tries: int = TRIES,
        ahead: int = HELD_MAX,
    ) -> SharedSubscription[B]: ...

    @overload
    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        type: None = None,
        *,
        durable: str,
        shared: Literal[False] | None = None,
        start: Start | None = None,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
    ) -> DurableSubscription[Any]: ...

    @overload
    def subscribe(
        self,
        pattern: str | Sequence[str] | None = None,
        where: str | Filter | None = None,
        *,
        type: type[B],
        durable: str,
        shared: Literal[False] | None = None,
        start: Start | None = None,
        commit: str = "auto",
        max_bytes: int = FETCH_BYTES,
    ) -> DurableSubscription[B]: ...

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
    ) -> DurableSubscription[Any]: ...

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
    ) -> DurableSubscription[B]: ...

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
        if durable is None and start is None:
            return Subscription(real, self._thread, shared=bool(shared))
        if shared:
            return SharedSubscription(real, self._thread, shared=True)
        return DurableSubscription(real, self._thread)

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

    def on(
        self,
        pattern: str,
        where: str | Filter | None = None,
        *,
        type: type[Any] | None = None,
        guarantee: str = "reliable",
        deadline: float | None = None,
        backlog: int = BACKLOG_EVENTS,
        slow: str | None = None,
        retain: bool = True,
        shared: str | bool | None = None,
        durable: str | None = None,
        start: Start | None = None,
    ) -> Callable[[F], F]:
        """A decorator: the function is called, in a thread, with every event that matches. See ``pluribus.Bus.on``. The
        subscription has begun when the decorator returns; the function's ``subscription`` can be closed."""
        options: dict[str, Any] = {"type": type, "guarantee": guarantee, "deadline": deadline, "backlog": backlog}
        options |= {"slow": slow, "retain": retain, "shared": shared, "durable": durable, "start": start}

        def decorated(call: F) -> F:
            self._thread.ask(lambda: self._real.on(pattern, where, **options)(call))
            real = call.subscription  # type: ignore[attr-defined]
            self._thread.call(real.open)
            call.subscription = Subscription(real, self._thread)  # type: ignore[attr-defined]
            return call

        return decorated

    def unsubscribe(self, subscription: Subscription[Any]) -> None:
        """The same as closing it."""
        subscription.close()

    def observed(self, name: str, **properties: Any) -> Observed:
        """An object that others may watch. See ``pluribus.Bus.observed``."""
        return Observed(self._thread.call(self._real.observed, name, **properties), self._thread)

    def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with so many members that publish or subscribe. See ``pluribus.Bus.wait_for``."""
        return self._thread.call(self._real.wait_for, members, timeout)

    def wait_for_subscribers(self, topic: str, count: int, timeout: float | None = 10.0) -> int:
        """Wait until a topic has so many live subscriptions. See ``pluribus.Bus.wait_for_subscribers``."""
        return self._thread.call(self._real.wait_for_subscribers, topic, count, timeout)

    def advertise(self, pattern: str, type: type[Any] | None = None, about: str = "") -> None:
        """Say to everybody what this program will publish."""
        self._thread.call(self._real.advertise, pattern, type, about)

    def unadvertise(self, pattern: str) -> None:
        """Withdraw an advertisement."""
        self._thread.call(self._real.unadvertise, pattern)

    def topics(self, pattern: str = "#") -> list[Advertisement]:
        """What members advertise under topics that the pattern may match."""
        return self._thread.call(self._real.topics, pattern)

    def mailbox(self, name: str, topics: str | Sequence[str] = ()) -> Mailbox:
        """What is kept for a subscriber that may be away. See ``pluribus.Bus.mailbox``; ``with`` opens it."""
        return Mailbox(self._thread.ask(self._real.mailbox, name, topics), self._thread)

    def log(self, topic: str) -> Face:
        """The log of a durable topic. See ``pluribus.Bus.log``."""
        return Face(self._thread.ask(self._real.log, topic), self._thread)

    @property
    def durable(self) -> Face:
        """Durable topics. See ``pluribus.Bus.durable``."""
        return Face(self._thread.ask(lambda: self._real.durable), self._thread)


class Subscription(StandIn, Generic[B]):
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

    @property
    def pattern(self) -> str:
        return self._thread.ask(lambda: str(self._real.pattern))

    @property
    def waiting(self) -> int:
        """Events that came and were not read yet."""
        return self._thread.ask(lambda: int(self._real.waiting)) + len(self._fetched)

    def move(self, latitude: float, longitude: float) -> None:
        """The subscriber is somewhere else. See ``near=`` of ``pluribus.Bus.subscribe``."""
        self._thread.ask(self._real.move, latitude, longitude)

    def set_where(self, where: Any) -> None:
        """Another condition, for events that arrive from now on."""
        self._thread.ask(self._real.set_where, where)

    def stats(self) -> dict[str, int]:
        found: dict[str, int] = self._thread.ask(self._real.stats)
        return found


class DurableSubscription(Subscription[B]):
    """A durable subscription of a synchronous bus. See ``pluribus.DurableSubscription``. What was fetched and not read
    is not committed: it comes again, to whoever subscribes next."""

    def commit(self, event: Event[B] | None = None) -> None:
        """Everything up to this event of its topic was handled, or everything that was read."""

        async def committing() -> None:
            if event is None:
                self._hand_back()
            await self._real.commit(event)

        self._thread.call(committing)

    @property
    def offsets(self) -> dict[str, int]:
        """From where each topic is fetched on."""
        return self._thread.ask(lambda: dict(self._real.offsets))

    def _hand_back(self) -> None:
        """On the loop: events that no caller has seen are not read. Callers take from the other end."""
        unread = 0
        with suppress(IndexError):
            while True:
                self._fetched.pop()
                unread += 1
        self._real.not_read(unread)

    def close(self) -> None:
        self.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """With an error, the event that was being handled comes again."""

        async def leaving() -> None:
            self._hand_back()
            await self._real.__aexit__(kind, error, trace)

        if not self.closed:
            self._thread.call(leaving)


class SharedSubscription(DurableSubscription[B]):
    """A member of a consumer group on a synchronous bus. See ``pluribus.SharedSubscription``."""

    def give_back(self, event: Event[B], reason: str = "given back") -> None:
        """Let another member try this event; that counts as a try."""
        self._thread.call(self._real.give_back, event, reason)

    def dead(self) -> list[Dead]:
        """Events that were tried too often, the oldest first."""
        found: list[Dead] = self._thread.call(self._real.dead)
        return found

    def redrive(self, most: int = 1_000) -> int:
        """Hand out the oldest dead letters again; returns how many."""
        count: int = self._thread.call(self._real.redrive, most)
        return count

    def standing(self) -> Standing:
        """Members, what they hold, how far the group is in each topic, dead letters."""
        found: Standing = self._thread.call(self._real.standing)
        return found


class Mailbox(DurableSubscription[Any]):
    """A mailbox of a synchronous bus: ``post`` at any time, read it inside ``with``. See ``pluribus.Bus.mailbox``."""

    def __enter__(self) -> Self:
        self._thread.call(self._real.open)
        return self

    def acknowledge(self, event: Event[Any]) -> None:
        """This event, and those of its topic before it, need not come again."""
        self.commit(event)

    def post(
        self,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        id: MessageId | None = None,
    ) -> MessageId:
        """Put something into this mailbox; the options are those of ``publish``."""
        options: dict[str, Any] = {"headers": headers, "parent": parent, "timeout": timeout, "id": id}
        found: MessageId = self._thread.call(self._real.post, body, **options)
        return found


class Observed:
    """An object that others watch. ``observed.price = 101`` tells everybody who watches the object."""

    def __init__(self, real: real_observed.Observed, thread: Background) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_thread", thread)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_real"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._thread.ask(setattr, self._real, name, value)

    def set(self, **values: Any) -> None:
        """Change properties, and return when their changes are on their way."""
        self._thread.call(self._real.set, **values)

    def properties(self) -> dict[str, Any]:
        """All properties with their values."""
        found: dict[str, Any] = self._thread.ask(self._real.properties)
        return found

    def __repr__(self) -> str:
        return f"<synchronous {self._real!r}>"


class Matches(StandIn):
    """Matches of a row pattern on a synchronous bus. See ``pluribus.runtime.styles.topics.patterns``."""

    _real: real_patterns.Matches

    def __iter__(self) -> Iterator[Match]:
        """Matches until it is closed."""
        while True:
            try:
                yield self._thread.call(self._real.receive)
            except Closed:
                return
