"""The part of a bus that publishes and subscribes: the calls and what they promise. ``pubsub.py`` does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ....core.ids import MessageId
from ....core.view import View
from ...loop.lateness import loaded

if TYPE_CHECKING:  # loaded when first used
    from ....patterns import Pattern, Problem
    from ...bus import Bus
    from .durable import Durable
    from .observed import Observed
    from .patterns import Matches
    from .pubsub import Advertisement, Topics
    from .subscription import Subscription

_TOPICS = "pluribus.runtime.styles.topics.pubsub"

F = TypeVar("F", bound=Callable[..., Any])


class Topical:
    """``Bus`` is one."""

    _topics: Topics | None

    if TYPE_CHECKING:

        @property
        def durable(self) -> Durable: ...

        def _check_open(self) -> None: ...

    @property
    def pubsub(self) -> Topics:
        """Publishing and subscribing, for those who extend it."""
        if self._topics is None:
            from .pubsub import Topics

            self._check_open()
            self._topics = Topics(cast("Bus", self))
            self.__dict__["publish"] = self._topics.publish  # the same, a call less for every event
        return self._topics

    async def publish(self, topic: str, body: Any, **options: Any) -> MessageId:
        """Publish an event under a topic, such as ``stocks/ibm/tick``; returns its identity once the window has
        admitted it, at once unless somebody who wants to be waited for reads too slowly.

        ``headers`` is a small dictionary beside the body, ``parent`` the event that this one answers. ``retain=True``
        keeps it as the last value of its topic, for those who subscribe later. ``timeout``: ``Overflow`` instead of
        waiting longer. ``durable=True`` returns when a majority of the voting keepers have it on disk; ``Uncertain``
        has the ``id`` with which it may be published again, ``NoKeeper`` says at once that nobody keeps durable topics,
        unless ``timeout`` gives a keeper time to come. Live subscribers get it then, unless ``live=False``.
        """
        await loaded(_TOPICS)
        return await self.pubsub.publish(topic, body, **options)

    async def publish_many(self, events: Iterable[tuple[str, Any]], **options: Any) -> Sequence[MessageId]:
        """Publish pairs of a topic and a body, in order; ``options`` are those of ``publish``, for all of them."""
        await loaded(_TOPICS)
        return await self.pubsub.publish_many(events, **options)

    def publish_soon(self, topic: str, body: Any, **options: Any) -> Any:
        """Publish without waiting; ``await bus.flush()`` waits for everything. ``Overflow`` if too much waits already.
        Live events are given their identity at once; durable ones too, and are on disk when flushed."""
        return self.pubsub.publish_soon(topic, body, **options)

    async def flush(self) -> None:
        """Returns when everything that was published is admitted, and on disk if it is durable."""
        await self.pubsub.flush()

    def subscribe(self, pattern: str | None = None, where: Any = None, type: type | None = None, **options: Any) -> Any:
        """Events under topics that match a pattern: ``+`` is any level, ``#`` all levels below.

        ``async with bus.subscribe(...) as events`` begins and ends it; ``async for event in events`` reads it.
        ``where`` is a condition on fields of the body (``docs/filters.md``), ``type`` the class of the bodies,
        subclasses included. ``call`` is called with every event, instead of iterating.

        ``guarantee``: ``best effort``, ``reliable`` (the default), or an order: ``fifo``, ``causal``, ``total``.
        ``deadline``: events that are older, in seconds, are dropped and reported. ``backlog`` events may wait; who is
        slower than that chooses by ``slow`` to be waited for (``wait``), told (``tell``), buffered (``buffer``),
        disconnected (``disconnect``) or given a sample (``sample``). ``shared="name"``: each event goes to one of those
        who subscribe with that name. ``retain=False``: without the last values of before.

        ``near=Near(latitude, longitude, within_m)``: events near a place; ``move`` changes it. ``concept="share",
        vocabulary=...``: events about a concept, whatever words they use. ``object="name", property="price"``: changes
        of an object that somebody lets be watched (``observed``).

        ``durable="name"`` reads what keepers keep, and goes on under that name where it came to; ``start`` is
        ``"earliest"``, ``"latest"``, an offset or a time, for a name that is new, or to replay without one. With these
        come ``commit="manual"`` and ``max_bytes``; see ``runtime.follower.DurableSubscription``.
        """
        if "durable" in options or "start" in options:
            name = options.pop("durable", None)
            return self.durable.subscribe(
                "#" if pattern is None else pattern, where=where, type=type, name=name, **options
            )
        return self.pubsub.subscribe(pattern, where, type, **options)

    def matches(
        self,
        topics: str,
        pattern: Pattern | str,
        *,
        lateness_s: float = 0.0,
        tick_s: float | None = None,
        on_problem: Callable[[Problem], None] | None = None,
        **options: Any,
    ) -> Matches:
        """What a row pattern (``docs/patterns.md``) finds in the events under some topics.

        ``async with bus.matches(...) as found: async for match in found``. ``lateness_s`` and ``on_problem`` are those
        of ``pluribus.patterns.Matcher``, further options those of ``subscribe``. ``tick_s``: when no event came for so
        long, the time of this member's clock counts as the time of an event; for patterns ordered by such times.
        """
        from .patterns import Matches

        return Matches(
            lambda: self.subscribe(topics, **options),
            pattern,
            self.pubsub.wall,
            lateness_s=lateness_s,
            tick_s=tick_s,
            on_problem=on_problem,
        )

    def on(self, pattern: str, **options: Any) -> Callable[[F], F]:
        """A decorator: the function is called with every event that matches, from now on; see ``subscribe``.

        If its first parameter is annotated with a registered type, only bodies of that type come, and the function is
        given the body itself; annotated as ``Event`` or not at all, it is given the event. The function's
        ``subscription`` may be awaited, to be sure that it has begun, and closed.
        """
        return self.pubsub.on(pattern, **options)

    async def observed(self, name: str, **properties: Any) -> Observed:
        """An object that others may watch: setting one of its attributes tells those who subscribed with ``object=``.
        Its values are retained, so that who comes later gets them too."""
        return await self.pubsub.observed(name, **properties)

    async def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with so many members, this one included, that publish or subscribe. Members find each other a
        moment after they have connected; what is published before that does not reach the others. It returns when this
        member knows what each of them subscribed to: events published after that go to them in the order they want.
        """
        await loaded(_TOPICS)
        return await self.pubsub.wait_for(members, timeout)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """The same as closing it."""
        await subscription.close()

    async def advertise(self, pattern: str, type: type | None = None, about: str = "") -> None:
        """Say to everybody what this member will publish."""
        await self.pubsub.advertise(pattern, type, about)

    async def unadvertise(self, pattern: str) -> None:
        """Take it back."""
        await self.pubsub.unadvertise(pattern)

    async def topics(self, pattern: str = "#") -> list[Advertisement]:
        """What members advertise under topics that the pattern may match."""
        return await self.pubsub.topics(pattern)
