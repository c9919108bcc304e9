"""Topics without ``await``: what ``pluribus.sync`` has of them, on members and on clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ...core.ids import MessageId
from ...core.limits import BACKLOG_EVENTS
from ...core.view import View
from ..styles.topics.face import FETCH_BYTES, HELD_MAX, TRIES, TopicsFace
from .face import Closing
from .subscriptions import DurableSubscription, Mailbox, Matches, Observed, SharedSubscription, Subscription

if TYPE_CHECKING:  # loaded when first used
    from ...filters import Filter
    from ...patterns import Pattern, Problem
    from ...pubsub.concepts import Vocabulary
    from ...pubsub.places import Near
    from ..loop.callbacks import Call
    from ..styles.topics.follower import Start
    from ..styles.topics.pubsub import Advertisement
    from .durable import Durable, Log

B = TypeVar("B")
F = TypeVar("F", bound=Callable[..., Any])


class TopicsSync(Closing):
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

    def unsubscribe(self, subscription: Subscription[Any] | DurableSubscription[Any]) -> None:
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

    def log(self, topic: str) -> Log:
        """The log of a durable topic. See ``pluribus.Bus.log``."""
        from .durable import Log

        return Log(self._thread.ask(self._real.log, topic), self._thread)

    @property
    def durable(self) -> Durable:
        """Durable topics. See ``pluribus.Bus.durable``."""
        from .durable import Durable

        return Durable(self._thread.ask(lambda: self._real.durable), self._thread)
