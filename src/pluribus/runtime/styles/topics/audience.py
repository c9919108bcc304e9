"""How many live subscriptions there are to a topic, on all members and their clients: ``bus.wait_for_subscribers``.

Members filter events by themselves, so no member knows the subscriptions of others. A member that waits asks every
member (``CountSubscribers``). A member answers, remembers for ``WATCH_S`` seconds that it was asked, and tells the
asking member when its count changes meanwhile (``SubscribersCounted``). A member that still waits asks again before
that time is over, and whenever members come or go.

An answer may be overtaken by a later change, so counts have a version, and the latest one counts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....core.errors import BadInput
from ....core.frame import Message
from ....pubsub.topics import checked_topic, matches
from ....pubsub.words import CountSubscribers, SubscribersCounted
from .carrier import Carrier

if TYPE_CHECKING:
    from .pubsub import Topics

WATCH_S = 30.0
"""Seconds for which a member reports changes after it was asked."""
ASK_AGAIN_S = 10.0
WATCHED_MAX = 1_024
"""Pairs of a topic and a member that is told of changes; a member for which there is no room learns of them when it
asks again."""


class _Count:
    """The counts of one topic, and the tasks that wait for them."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[int, int]] = {}
        """By member: version and count."""
        self.news = asyncio.Event()
        self.waiters = 0

    def note(self, member: int, word: SubscribersCounted) -> None:
        if word.version >= self.known.get(member, (0, 0))[0]:
            self.known[member] = (word.version, word.count)
            self.news.set()


class Audience:
    """Counts subscriptions, for one member."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._counts: dict[str, _Count] = {}
        """Topics for whose subscribers a task of this program waits."""
        self._watched: dict[tuple[str, int], float] = {}
        """By topic and member: until when that member is told of changes."""
        self._version = 0

    async def wait_for(self, topic: str, count: int, timeout: float | None) -> int:
        checked_topic(topic)
        if count < 0:
            raise BadInput(f"{count} subscribers is no number to wait for: give 1 or more")
        base = await self._topics.base()
        if "views" not in self._topics.bus._provided:
            raise BadInput("the stack of this bus does not tell who is there: connect with stack='views' to wait")
        found = self._counts.setdefault(topic, _Count())
        found.waiters += 1
        there = 0
        try:
            async with asyncio.timeout(timeout):
                while True:
                    view = base.group.view
                    await self._ask(base, topic, found)
                    while (there := self._total(base, topic, found)) < count:
                        if not await self._news(found) or base.group.view is not view:
                            break
                    else:
                        return there
        except TimeoutError:
            raise TimeoutError(f"{there} of {count} subscribers to {topic!r} were there after {timeout:g} s") from None
        finally:
            found.waiters -= 1
            if not found.waiters and self._counts.get(topic) is found:
                del self._counts[topic]

    async def _ask(self, base: Carrier, topic: str, found: _Count) -> None:
        neighbours = self._topics.neighbours
        await neighbours.introduce(base)
        for answer in await neighbours.ask(base.group, CountSubscribers(topic)):
            if answer.error is None and isinstance(answer.body, SubscribersCounted):
                found.note(int(answer.sender), answer.body)

    def _total(self, base: Carrier, topic: str, found: _Count) -> int:
        there = {int(member) for member in base.group.view.members}
        return self.count(topic) + sum(count for member, (_, count) in found.known.items() if member in there)

    async def _news(self, found: _Count) -> bool:
        """True if a count or the members changed; False if it is time to ask again."""
        try:
            async with asyncio.timeout(ASK_AGAIN_S):
                await found.news.wait()
        except TimeoutError:
            return False
        found.news.clear()
        return True

    def count(self, topic: str) -> int:
        """Subscriptions of this member, those of its clients included, that get events published from now on."""
        return sum(one.ready and matches(one.pattern, topic) for one in self._topics.subscriptions)

    def heard(self, message: Message) -> None:
        word, sender = message.body, int(message.sender)
        if isinstance(word, CountSubscribers) and message.asks:
            now = self._topics.now()
            if len(self._watched) >= WATCHED_MAX:
                self._watched = {key: until for key, until in self._watched.items() if until > now}
            if len(self._watched) < WATCHED_MAX:
                self._watched[word.topic, sender] = now + WATCH_S
            self._topics.neighbours.task(message.reply(self._counted(word.topic)))
        elif isinstance(word, SubscribersCounted) and word.topic in self._counts:
            self._counts[word.topic].note(sender, word)

    def _counted(self, topic: str) -> SubscribersCounted:
        return SubscribersCounted(topic, self.count(topic), self._version)

    def changed(self, pattern: str) -> None:
        """A subscription to these topics has begun or ended."""
        self._version += 1
        now, base = self._topics.now(), self._topics.joined
        for (topic, member), until in list(self._watched.items()):
            if until <= now:
                del self._watched[topic, member]
            elif matches(pattern, topic) and base is not None and member in base.group.view:
                self._topics.neighbours.task(base.group.send(self._counted(topic), to=member))
        for topic, found in self._counts.items():
            if matches(pattern, topic):
                found.news.set()

    def members_changed(self) -> None:
        """If a task waits, ask the new members."""
        for found in self._counts.values():
            found.news.set()
