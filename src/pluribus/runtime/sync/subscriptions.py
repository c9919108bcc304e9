"""What a program holds of topics without ``await``: subscriptions, mailboxes, matches of patterns, observed objects."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ...core.errors import Closed
from ...core.ids import MessageId
from ...pubsub.event import Event
from ..loop.background import Background
from .face import Closing

if TYPE_CHECKING:  # loaded when first used
    from ...filters import Filter
    from ...patterns import Match, Problem
    from ...pubsub.consumer_groups.words import Dead, Standing
    from ..styles.topics import follower as real_follower
    from ..styles.topics import observed as real_observed
    from ..styles.topics import patterns as real_patterns
    from ..styles.topics import shared as real_shared
    from ..styles.topics import subscription as real_subscription

RECEIVE_MANY = 4_096

B = TypeVar("B")


class Reader(Closing, Generic[B]):
    """What subscriptions of every kind have: threads that read one share its events.

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


class Subscription(Reader[B]):
    """A subscription of a synchronous bus. See ``pluribus.Subscription``."""

    _real: real_subscription.Subscription[B]

    @property
    def waiting(self) -> int:
        """Events that came and were not read yet."""
        return self._thread.ask(lambda: self._real.waiting) + len(self._fetched)

    def move(self, latitude: float, longitude: float) -> None:
        """The subscriber is somewhere else. See ``near=`` of ``pluribus.Bus.subscribe``."""
        self._thread.ask(self._real.move, latitude, longitude)

    def set_where(self, where: str | Filter | None) -> None:
        """Another condition, for events that arrive from now on; None: no condition."""
        self._thread.ask(self._real.set_where, where)

    def stats(self) -> dict[str, int]:
        return self._thread.ask(self._real.stats)

    @property
    def missed(self) -> int:
        """Events that were dropped because the program did not read them in time."""
        return self._thread.ask(lambda: self._real.missed)

    @property
    def late(self) -> int:
        """Events that were dropped because they came after the deadline."""
        return self._thread.ask(lambda: self._real.late)


class DurableSubscription(Reader[B]):
    """A durable subscription of a synchronous bus. See ``pluribus.DurableSubscription``. What was fetched and not read
    is not committed: it comes again, to the next subscriber."""

    _real: real_follower.DurableSubscription[B]

    @property
    def name(self) -> str | None:
        """The name under which the keepers know it."""
        return self._real.name

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

    _real: real_shared.SharedSubscription[B]

    def give_back(self, event: Event[B], reason: str = "given back") -> None:
        """Let another member try this event; that counts as a try."""
        self._thread.call(self._real.give_back, event, reason)

    def dead(self) -> list[Dead]:
        """Events that were tried too often, the oldest first."""
        return self._thread.call(self._real.dead)

    def redrive(self, most: int = 1_000) -> int:
        """Hand out the oldest dead letters again; returns how many."""
        return self._thread.call(self._real.redrive, most)

    def standing(self) -> Standing:
        """Members, what they hold, how far the group is in each topic, dead letters."""
        return self._thread.call(self._real.standing)


class Mailbox(DurableSubscription[Any]):
    """A mailbox of a synchronous bus: ``post`` at any time, read it inside ``with``. See ``pluribus.Bus.mailbox``."""

    _real: real_follower.Mailbox

    @property
    def address(self) -> str:
        """The topic of the mailbox."""
        return self._real.address

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
        return self._thread.call(self._real.post, body, **options)


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


class Matches(Closing):
    """Matches of a row pattern on a synchronous bus. See ``pluribus.Matches``."""

    _real: real_patterns.Matches

    def __iter__(self) -> Iterator[Match]:
        """Matches until it is closed."""
        while True:
            try:
                yield self.receive()
            except Closed:
                return

    def receive(self, timeout: float | None = None) -> Match:
        """The next match; ``TimeoutError`` after ``timeout`` seconds, ``Closed`` when there will be none."""
        return self._thread.call(self._real.receive, timeout)

    @property
    def problems(self) -> deque[Problem]:
        """Events that found no place, the last of them."""
        return self._thread.ask(lambda: self._real.problems.copy())
