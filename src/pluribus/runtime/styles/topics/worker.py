"""A subscription that shares events with others, as its reader sees it: it asks, is given events, and finishes them.

An event is finished when the reader asks for the next one. The same word says both (``Worked``); what it asked for
comes back behind that word in the order, so the next event is handed out when every member knows that the one before
is finished. One word of a subscription is under way at a time.

*Nobody reads.* A reader that gave up (``receive(timeout=...)``) has asked all the same. An event that comes then waits
for ``HELD_S``; then it is given back, and another subscriber gets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, Closed
from ....core.events import Missed
from ....core.limits import SHARED_WAITING_MAX
from ....pubsub.event import Event
from ....pubsub.shares import Hand, Id
from ....pubsub.words import Worked
from ...loop.futures import looked_at

if TYPE_CHECKING:
    from .pubsub import Topics
    from .subscription import Subscription

HELD_S = 1.0
"""Seconds for which an event waits for a reader that has asked and then gone away."""


KEEPS_ITS_CONDITION = (
    "a shared subscription keeps its condition, because those who have the same share: close it, and subscribe with "
    "another one"
)
NO_PLACES = "shared= is for subscribers that ask for the same, and near= is the place of one: leave one of them out"


class Worker(Hand):
    def __init__(self, subscription: Subscription[Any], topics: Topics) -> None:
        self._subscription = subscription
        self._topics = topics
        self.share = ("", 0)
        """Its set, and its number in it."""
        self.ready: deque[Event[Any]] = deque()
        """Events that it was given and that nobody has begun."""
        self.begun: list[Id] = []
        """Events that were handed out and are not finished, or not known to be."""
        self._own: deque[Event[Any]] = deque()
        """Events that no other member has. Nothing is said of them."""
        self._wanted = False
        """It has asked, and was not given anything since."""
        self._turn = 0
        self._said = 0
        """The last turn that has come back in the order."""
        self._speaking = asyncio.Lock()
        self._finishing: asyncio.Future[None] | None = None
        """The task goes on when its caller gives up; the next caller waits for it too."""
        self._readers = 0
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._own) + len(self.ready) + self._topics.sharing.shares.waiting(self.share[0])

    # The reader

    async def take(self, most: int) -> list[Event[Any]]:
        """At least one event, and as many as there are, up to ``most``. It finishes those that it returned before."""
        if most < 1:
            raise BadInput(f"most={most} events are none: ask for 1 or more")
        most = min(most, SHARED_WAITING_MAX)
        self._readers += 1
        try:
            while True:
                if self._finishing is None and self.begun:
                    self._finishing = self._start(0 if self.ready or self._own else most)
                if self._finishing is not None:
                    await asyncio.shield(self._finishing)
                    self._finishing = None
                events = self._ready(most)
                if events:
                    return events
                if self._subscription.closed:
                    raise Closed(f"the subscription to {self._subscription.pattern!r} is closed: subscribe again")
                if self.begun or not self._wanted:  # events that came too late for their deadline are finished
                    self._finishing = self._start(most)
                else:
                    self._news.clear()
                    await self._news.wait()
        finally:
            self._readers -= 1
            self._soon_looked_at()

    def _ready(self, most: int) -> list[Event[Any]]:
        events: list[Event[Any]] = []
        while self._own and len(events) < most:
            events.append(self._own.popleft())
        while self.ready and len(events) < most:
            event = self.ready.popleft()
            self.begun.append((int(event.id[0]), event.id[1]))
            events.append(event)
        return [event for event in events if not self._subscription._is_late(event)]

    def _start(self, wants: int) -> asyncio.Future[None]:
        finishing = asyncio.ensure_future(self._say(wants=wants, done=self.begun.copy()))
        finishing.add_done_callback(looked_at)
        return finishing

    async def _say(self, wants: int = 0, done: Collection[Id] = (), back: Collection[Id] = ()) -> None:
        """Returns when the word has come back in the order; or when this subscriber goes on as another one."""
        async with self._speaking:
            share = self.share
            self._turn += 1
            self._wanted = wants > 0
            await self._topics.sharing.say(self, Worked(*share, self._turn, wants, [*done], [*back]))
            if share == self.share:
                self.begun = [id for id in self.begun if id not in done]

    def spoken(self, turn: int) -> None:
        """Its own word has come back."""
        self._said = turn

    def has_said(self, word: Worked) -> bool:
        return self._subscription.closed or self.share != (word.key, word.number) or self._said >= word.turn

    # What it is given

    def given(self, events: list[Event[Any]], turn: int) -> None:
        if turn == self._turn:
            self._wanted = False
        self.ready.extend(events)
        self._news.set()
        self._soon_looked_at()

    def lacks(self, ids: list[Id]) -> None:
        self._wanted = False
        self._news.set()
        self._topics.neighbours.task(self._say(back=ids))

    def cannot_read(self, ids: list[Id]) -> None:
        self._subscription.backlog.malformed += len(ids)
        self._wanted = False
        self._news.set()
        self._topics.neighbours.task(self._say(done=ids))

    def missed(self, count: int) -> None:
        self._subscription.backlog.missed += count
        self._topics.tell(Missed(self._subscription.pattern, count, "slow"))

    def _soon_looked_at(self) -> None:
        if not self._readers and self.ready:
            self._topics.later(HELD_S, self._look)

    def _look(self) -> None:
        """Give back what nobody reads."""
        if self.ready and not self._readers and not self._subscription.closed:
            back = [(int(event.id[0]), event.id[1]) for event in self.ready]
            self.ready.clear()
            self._topics.neighbours.task(self._say(back=back))

    def give_back(self) -> None:
        """What was handed out was not begun after all: a client has it, whose reader has gone away."""
        back = self.begun.copy()
        self.begun.clear()
        if back:
            self._topics.neighbours.task(self._say(back=back))

    def begin_anew(self, share: tuple[str, int], own: list[Event[Any]]) -> None:
        """It goes on as another subscriber, because others may have what it had. ``own``: events that nobody else
        has."""
        self.share = share
        self.ready.clear()
        self.begun.clear()
        self._own.extend(own)
        self._wanted = False
        self._news.set()

    def end(self) -> None:
        self.ready.clear()
        self._own.clear()
        self._news.set()
