"""Topics on a bus and on a client: the calls and their promises. ``pubsub.py`` has live topics on a member,
``client.py`` on a client, ``durable.py`` has durable topics for both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

from ....core.errors import BadInput
from ....core.ids import MessageId
from ....core.limits import BACKLOG_EVENTS
from ....core.view import View
from ....pubsub.event import with_key
from ...loop.lateness import loaded
from ..style import Styled

if TYPE_CHECKING:  # loaded when first used
    from ....filters import Filter
    from ....patterns import Pattern, Problem
    from ....pubsub.concepts import Vocabulary
    from ....pubsub.places import Near
    from ...loop.callbacks import Call
    from .durable import Durable, Log
    from .follower import DurableSubscription, Mailbox, Start
    from .observed import Observed
    from .patterns import Matches
    from .pubsub import Advertisement, Topics
    from .shared import SharedSubscription
    from .style import TopicsStyle
    from .subscription import Subscription

_STYLE = "pluribus.runtime.styles.topics.style"
FETCH_BYTES = 1 << 20
"""Bytes that a durable subscription asks for at a time."""
HELD_MAX = 32
"""Events that a member of a consumer group holds: few, so that the other members get some too."""
TRIES = 20
"""Deliveries after which an event is a dead letter of its group."""

B = TypeVar("B")
F = TypeVar("F", bound=Callable[..., Any])


class Publish(Protocol):
    """How ``bus.publish`` is called."""

    def __call__(
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
    ) -> Awaitable[MessageId]:
        """Publish an event under a topic, such as ``stocks/ibm/tick``; returns its identity when the window has
        admitted it: at once, unless a subscriber with ``slow="wait"`` reads too slowly.

        ``headers`` is a small dictionary beside the body, ``parent`` the event that this one answers. ``retain=True``
        keeps it as the last value of its topic, for later subscribers. ``timeout``: ``Overflow`` instead of waiting
        longer. ``durable=True`` returns when a majority of the voting keepers have it on disk. ``Uncertain`` has the
        ``id`` with which it may be published again; ``NoKeeper`` is raised at once if there is no keeper, unless
        ``timeout`` gives a keeper time to come. When it is on disk, live subscribers get it too, unless ``live=False``.
        ``key`` names the thing that the event is about; it travels as the header ``"key"``, and consumer groups handle
        events of one key in their order.
        """


class TopicsFace:
    """The methods that topics add to ``Bus`` and ``ClientBus``."""

    publish: Publish
    """Publish an event under a topic; ``Publish`` has its arguments and promises. It is an attribute because it is
    called more often than any other method: once topics are in use it is ``Topics.publish`` itself, without a call in
    between."""

    if TYPE_CHECKING:

        @property
        def durable(self) -> Durable: ...

    def _publish_later(self) -> None:
        """Until topics are loaded: load them when ``publish`` is first called."""
        self.publish = self._publish_first

    async def _publish_first(
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
        await loaded(_STYLE)
        return await self.pubsub.publish(topic, body, headers, parent, retain, durable, timeout, id, live, key)

    @property
    def _topics_style(self) -> TopicsStyle:
        from .style import TopicsStyle

        return cast(Styled, self)._style(TopicsStyle)

    @property
    def pubsub(self) -> Topics:
        """The object that publishes and subscribes, for programs that extend it."""
        return self._topics_style.live

    # Publishing.

    async def publish_many(
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
        """Publish pairs of a topic and a body, in order; the options are those of ``publish``, for all of them, and
        ``timeout`` is for the whole. ``key`` is one key for all, or a list with the key of each event (None: no key).
        """
        await loaded(_STYLE)
        return await self.pubsub.publish_many(
            events, headers=headers, retain=retain, durable=durable, timeout=timeout, live=live, key=key
        )

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
        """Publish without waiting; ``await bus.flush()`` waits for all. ``Overflow`` if too many events wait already.
        Every event is given its identity at once; durable ones are on disk after ``flush``."""
        return self.pubsub.publish_soon(topic, body, with_key(headers, key), parent, retain, durable, live)

    async def flush(self) -> None:
        """Returns when every published event is admitted, and on disk if it is durable."""
        await self.pubsub.flush()

    # Subscribing.

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
        """Events under topics that match a pattern: ``+`` is any level, ``#`` all levels below.

        ``async with bus.subscribe(...) as events`` begins and ends it; ``async for event in events`` reads it.
        ``where`` is a condition on fields of the body (``docs/filters.md``), ``type`` the class of the bodies,
        subclasses included. ``call`` is a function that is called with every event, instead of iterating; with
        ``bodies=True``, with its body.

        ``guarantee``: ``best effort``, ``reliable`` (the default), or an order: ``fifo``, ``causal``, ``total``.
        ``deadline``: events that are older, in seconds, are dropped and reported. ``backlog`` events may wait. ``slow``
        says what happens to a slower reader: publishers wait for it (``wait``), it is told of a gap (``tell``), events
        are buffered (``buffer``), it is disconnected (``disconnect``), or it gets a sample (``sample``).
        ``shared="name"``: each event goes to one of the subscriptions with that name. ``retain=False``: without
        retained values.

        ``near=Near(latitude, longitude, within_m)``: events near a place; ``move`` changes it.
        ``concept="share", vocabulary=...``: events about a concept, whatever words they use.
        ``object="name", property="price"``: changes of an object that a program made watchable (``observed``).

        ``durable="name"`` reads durable topics, and goes on at the committed offset of that name. ``start`` is
        ``"earliest"``, ``"latest"``, an offset or a time, for a new name, or for a replay without a name.
        ``commit="manual"`` and ``max_bytes`` belong to these; see ``DurableSubscription``.

        ``durable="name", shared=True``: a consumer group. Each event goes to one of the subscriptions of that name,
        each of which holds up to ``ahead`` events; after ``tries`` deliveries an event is a dead letter. See
        ``SharedSubscription``.
        """
        if call is not None and not callable(call):
            raise BadInput(f"call={call!r} cannot be called: give a function of one event")
        if shared is True and durable is None:
            raise BadInput("shared=True shares what is kept under a name: give durable=NAME, or shared=NAME for live")
        if durable is not None or start is not None:
            from .follower import refuse_live

            refuse_live(
                near=near,
                concept=concept,
                vocabulary=vocabulary,
                object=object,
                property=property,
                guarantee=None if guarantee == "reliable" else guarantee,
                deadline=deadline,
                backlog=None if backlog == BACKLOG_EVENTS else backlog,
                slow=slow,
                retain=None if retain else retain,
                shared=None if isinstance(shared, bool) else shared,
                call=call,
                bodies=bodies or None,
            )
            return self.durable.subscribe(
                "#" if pattern is None else pattern,
                where=where,
                type=type,
                name=durable,
                start="latest" if start is None else start,
                commit=commit,
                max_bytes=max_bytes,
                shared=shared is True,
                tries=tries,
                ahead=ahead,
            )
        if not isinstance(pattern, str | None):
            raise BadInput(f"the pattern {pattern!r}: several patterns together are for durable=; subscribe to each")
        _refuse_kept(
            commit=commit != "auto", max_bytes=max_bytes != FETCH_BYTES, tries=tries != TRIES, ahead=ahead != HELD_MAX
        )
        return self.pubsub.subscribe(
            pattern,
            where,
            type,
            near=near,
            concept=concept,
            vocabulary=vocabulary,
            object=object,
            property=property,
            guarantee=guarantee,
            deadline=deadline,
            backlog=backlog,
            slow=slow,
            retain=retain,
            shared=shared if isinstance(shared, str) else None,
            call=call,
            bodies=bodies,
        )

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
        """The matches of a row pattern (``docs/patterns.md``) in the events under some topics.

        ``async with bus.matches(...) as found: async for match in found``. ``lateness_s`` and ``on_problem`` are those
        of ``pluribus.patterns.Matcher``, ``where`` and the later arguments those of ``subscribe``. ``tick_s``: when no
        event came for so many seconds, the time of this member's clock counts as the time of an event; for patterns
        ordered by such times.
        """
        from .patterns import Matches

        options: dict[str, Any] = {"guarantee": guarantee, "deadline": deadline, "retain": retain, "shared": shared}
        if durable is not None or start is not None:
            options |= {"durable": durable, "start": start}
        return Matches(
            lambda: cast(Any, self).subscribe(topics, where, type, **options),
            pattern,
            self.pubsub.wall,
            lateness_s=lateness_s,
            tick_s=tick_s,
            on_problem=on_problem,
        )

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
        """A decorator: the function is called with every event that matches, from now on; see ``subscribe``.

        If its first parameter is annotated with a registered type, only bodies of that type come, and the function is
        given the body itself; annotated as ``Event`` or not at all, it is given the event. The function gets an
        attribute ``subscription``: await it to be sure that it has begun; close it to end it.
        """
        from .pubsub import handled_type

        def decorated(call: F) -> F:
            wanted, bodies = handled_type(call)
            if durable is not None or start is not None:
                options: dict[str, Any] = {"durable": durable, "start": start, "shared": shared}
                options |= {"guarantee": guarantee, "deadline": deadline, "backlog": backlog, "slow": slow}
                kept = cast(Any, self).subscribe(pattern, where, type or wanted, retain=retain, **options)
                call.subscription = kept  # type: ignore[attr-defined]
                self.pubsub.call_soon(kept, call, bodies)
                return call
            if shared is True:
                raise BadInput("shared=True shares what is kept under a name: give durable=NAME, or shared=NAME")
            subscription = self.pubsub.subscribe(
                pattern,
                where,
                wanted if type is None else type,
                guarantee=guarantee,
                deadline=deadline,
                backlog=backlog,
                slow=slow,
                retain=retain,
                shared=shared or None,
                call=call,
                bodies=bodies,
            )
            call.subscription = subscription  # type: ignore[attr-defined]
            self.pubsub.begin_soon(subscription)
            return call

        return decorated

    async def unsubscribe(self, subscription: Subscription[Any] | DurableSubscription[Any]) -> None:
        """The same as closing it."""
        await subscription.close()

    async def observed(self, name: str, **properties: Any) -> Observed:
        """An object that others may watch: setting one of its attributes publishes the change to subscriptions with
        ``object=``. Its values are retained, so that later subscribers get them too."""
        return await self.pubsub.observed(name, properties)

    # Who is there, and with what.

    async def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with so many members, this one included, that publish or subscribe. Members find each other a
        moment after they have connected; events published before that do not reach the others. It returns when this
        member knows the subscriptions of each of them: events published after that go to them in the order they asked
        for.
        """
        await loaded(_STYLE)
        return await self.pubsub.wait_for(members, timeout)

    async def wait_for_subscribers(self, topic: str, count: int, timeout: float | None = 10.0) -> int:
        """Wait until there are ``count`` live subscriptions to a topic, on all members and clients together, those of
        this program among them; returns how many there are. Events published after that go to all of them.
        ``TimeoutError`` says how many there were. Durable subscriptions need no waiting, and do not count."""
        await loaded(_STYLE)
        return await self.pubsub.wait_for_subscribers(topic, count, timeout)

    async def advertise(self, pattern: str, type: type[Any] | None = None, about: str = "") -> None:
        """Tell all members which events this program will publish."""
        await self.pubsub.advertise(pattern, type, about)

    async def unadvertise(self, pattern: str) -> None:
        """Take an advertisement back."""
        await self.pubsub.unadvertise(pattern)

    async def topics(self, pattern: str = "#") -> list[Advertisement]:
        """The advertisements of members for topics that the pattern may match."""
        return await self.pubsub.topics(pattern)

    # Durable topics.

    def log(self, topic: str) -> Log:
        """The log of a durable topic: ``await log.read(start, stop)``, ``await log.offsets()``."""
        return self.durable.log(topic)

    def mailbox(self, name: str, topics: str | Sequence[str] = ()) -> Mailbox:
        """A mailbox, which keeps events for a subscriber that may be away: events of these topics, and events posted to
        it. Use it with ``async with``; acknowledge each event when it is dealt with."""
        return self.durable.mailbox(name, topics)


def _refuse_kept(**given: bool) -> None:
    """``BadInput`` if an option is given that only durable events have."""
    for name, differs in given.items():
        if differs:
            raise BadInput(f"{name}= is for durable events: leave it out, or give durable=NAME")
