"""Shared subscriptions on a bus: the sending part. ``pubsub.shares`` has the protocol, and says why it is right.

The sets of subscriptions are the state of a carrier in safe order, which carries nothing else: a member that joins the
carrier gets them, as they are at a point of the order. No reader is behind this carrier: events wait in their set, not
in its windows, so there is always room for words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ....core.errors import Closed, MalformedFrame, NotPrimary, Overflow, Uncertain
from ....core.frame import Message
from ....group.state.line import Mark
from ....pubsub.batch import Arrived
from ....pubsub.interest import Interest
from ....pubsub.shares import Shares, Taker
from ....pubsub.topics import matches
from ....pubsub.words import Dealt, Joined, Left, Worked
from .carrier import Carrier
from .subscription import Subscription
from .worker import Worker

if TYPE_CHECKING:
    from .pubsub import Topics

SAY_S = 1.0
"""Seconds after which a word that has not come back is looked at again."""


class Sharing:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._me = int(topics.bus.me)
        self.shares = Shares(self._me)
        self._interests: dict[str, Interest] = {}
        """By set that this member is in: the interest of its subscriptions."""
        self._numbers = 0
        self._workers: dict[tuple[str, int], Worker] = {}
        """The subscriptions of this member, by the set and their number in it."""
        self._said: set[Left] = set()
        """Words of the tasks that tell all members who is gone."""
        self._saying: dict[Joined | Left, asyncio.Task[None]] = {}
        """Words about subscriptions of this member that are on their way, or wait for a primary."""
        self._dealing: set[str] = set()
        """Sets for which a task deals."""
        self._heard: list[asyncio.Future[None]] = []
        """Tasks that wait for their word to come back."""
        self._carrier: Carrier | None = None

    def begin(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.shares.restored = self._restored

    # Subscriptions of this member

    async def enter(self, subscription: Subscription[Any]) -> None:
        """Returns when every member has the subscription in the set."""
        assert subscription._worker is not None
        worker = subscription._worker
        key = share_key(subscription.shared, subscription.interest)
        self._interests[key] = subscription.interest
        self.shares.enter(key, self._numbered(key, worker), worker)
        await self._bring(
            lambda: Joined(*worker.share),
            lambda: subscription.closed or (self._me, worker.share[1]) in self.shares.takers.get(key, ()),
        )

    def _numbered(self, key: str, worker: Worker) -> int:
        self._numbers += 1
        worker.share = (key, self._numbers)
        self._workers[worker.share] = worker
        return self._numbers

    async def leave(self, subscription: Subscription[Any]) -> None:
        assert subscription._worker is not None
        key, number = subscription._worker.share
        if not number:  # it never entered the set
            return
        self.shares.leave(key, number)
        self._workers.pop((key, number), None)
        if key not in self.shares.keys:
            self._interests.pop(key, None)
        self._wake()
        if self._carrier is not None and not self._carrier.group.closed:
            saying = self._say(Left(key, self._me, number))  # it goes on when its caller gives up: others must know
            if self._topics.bus.primary:  # else it is said until there is one again
                await asyncio.wait([saying], timeout=SAY_S)

    async def say(self, worker: Worker, word: Worked) -> None:
        """Returns when the word has come back in the order, or concerns nobody any more."""
        await self._bring(partial(_itself, word), partial(worker.has_said, word))

    async def _bring(self, word: Callable[[], Any], done: Callable[[], bool]) -> None:
        """Bring a word into the order: say it until it has come back. To repeat it does no harm."""
        assert self._carrier is not None
        group = self._carrier.group
        while not done():
            try:
                await group.send(word(), wait="stable", timeout=SAY_S)
            except (Uncertain, NotPrimary, Overflow):  # perhaps not every member has it
                continue
            except Closed:
                return
            await self._comes_back(done)

    async def _comes_back(self, done: Callable[[], bool]) -> None:
        """Wait while a word that every member has may still be in line at this member. If this member was cut off, it
        first gets the state, which shows what became of its subscribers."""
        assert self._carrier is not None
        channel = self._carrier.group._channel
        while not done() and not channel.closed:
            heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._heard.append(heard)
            try:
                async with asyncio.timeout(SAY_S):
                    await heard
            except TimeoutError:
                if (channel.state is None or channel.state.has) and not any(type(f) is Mark for f in channel.inbox):
                    return

    def _wake(self) -> None:
        heard, self._heard = self._heard, []
        for waiter in heard:
            if not waiter.done():
                waiter.set_result(None)

    # In the order

    def taken(self, arrived: Arrived) -> None:
        assert self._carrier is not None
        self._tell_gone()
        batch = arrived.batch
        for key, interest in self._interests.items():
            wanted = [matches(interest.pattern, topic) for topic in batch.topics]
            if not any(wanted):
                continue
            each_bytes = len(batch) // sum(part.count for part in batch.parts)
            for section in arrived.sections():
                of = section.part.of
                if interest.takes(section.part.kind) is False or (isinstance(of, int) and not wanted[of]):
                    continue
                try:
                    events = section.events()
                except MalformedFrame:
                    self._carrier.table.malformed += section.part.count
                    continue
                if not isinstance(of, int):
                    events = [event for event, place in zip(events, of, strict=True) if wanted[place]]
                self.shares.give(key, interest.chosen(events), each_bytes)
            self._deal(key)

    def heard(self, message: Message) -> None:
        word, sender = message.body, int(message.sender)
        if not isinstance(word, Joined | Left | Worked | Dealt):
            return
        if isinstance(word, Left) and word.member == self._me and self.shares.is_mine(word.key, word.number):
            self._taken_for_dead(word)
        else:
            self.shares.apply(sender, word)
        if isinstance(word, Left):
            self._said.discard(word)
            if word.member == self._me:
                self._join_again()
        elif isinstance(word, Worked):
            worker = self._workers.get((word.key, word.number)) if sender == self._me else None
            if worker is not None and (sender, word.number) in self.shares.takers.get(word.key, ()):  # else not counted
                worker.spoken(word.turn)
        elif isinstance(word, Joined) and sender == self._me and not self.shares.is_mine(word.key, word.number):
            self._say(Left(word.key, self._me, word.number))  # said before it was cut off, or has left
        self._tell_gone()
        self._deal(word.key)
        self._wake()

    # The dealer

    def _deal(self, key: str) -> None:
        if key not in self._dealing and self.shares.deals(key):
            self._dealing.add(key)
            self._topics.neighbours.task(self._dealt(key))

    async def _dealt(self, key: str) -> None:
        """Deal until nobody wants, or nothing waits, or another one is the dealer."""
        assert self._carrier is not None
        try:
            while not self._carrier.group.closed and (word := self.shares.deal(key)) is not None:
                await self._bring(partial(_itself, word), partial(self._has_dealt, word))
        finally:
            self._dealing.discard(key)

    def _has_dealt(self, word: Dealt) -> bool:
        return not self.shares.is_current(word)

    # Who is there

    def members_changed(self) -> None:
        """Members changed: one that shared may be gone, or one that was lost with it."""
        self._said.clear()
        self._tell_gone()

    def _tell_gone(self) -> None:
        """The first member of the view announces members that are gone. It looks again and again: a member that died
        may enter the set only now, when its word or the state of the group comes late; and the announcement may have
        failed with the primary."""
        if self._carrier is None or not self.shares.takers or not self._topics.bus.primary:
            return
        members = tuple(map(int, self._carrier.group.view.members))
        if members and members[0] == self._me:
            for word in self.shares.gone(members):
                if word not in self._said:
                    self._said.add(word)
                    self._topics.neighbours.task(self._bury(self._carrier, word))

    async def _bury(self, carrier: Carrier, word: Left) -> None:
        try:
            await carrier.group.send(word)
        except BaseException:
            self._said.discard(word)
            raise

    def _taken_for_dead(self, word: Left) -> None:
        """This member is there all the same: it goes on as another subscriber. If no subscriber is left, it keeps what
        nobody else has, or all would be lost."""
        key, share = word.key, (word.key, word.number)
        worker = self._workers[share]
        alone = self.shares.takers.get(key) == ((self._me, word.number),)
        own = self.shares.left_over(key, (), frozenset(worker.begun)) if alone else []
        self.shares.apply(self._me, word)
        self._renew(share, own)

    def _renew(self, share: tuple[str, int], own: list[Any]) -> None:
        worker = self._workers.pop(share)
        self.shares.renew(*share, self._numbered(share[0], worker))
        worker.begin_anew(worker.share, own)

    def _restored(self, before: dict[str, tuple[Taker, ...]]) -> None:
        """This member was cut off, and got the state anew."""
        assert self._carrier is not None
        self._topics.cut_off(self._carrier)
        self._said.clear()
        for key in self.shares.keys:
            mine = [share for share in self._workers if share[0] == key]
            begun = frozenset(id for share in mine for id in self._workers[share].begun)
            own = self.shares.left_over(key, before.get(key, ()), begun)
            self.shares.forget(key)
            for place, share in enumerate(mine):
                self._renew(share, own if not place else [])
        self._join_again()
        for key, takers in self.shares.takers.items():
            for member, number in takers:
                if member == self._me and not self.shares.is_mine(key, number):
                    self._say(Left(key, member, number))
        self._tell_gone()
        self._wake()

    def _join_again(self) -> None:
        for word in self.shares.absent():
            self._say(word)

    def _say(self, word: Joined | Left) -> asyncio.Task[None]:
        """Say that a subscription of this member is in its set, or out of it, until every member knows. A word that is
        said once is lost if the primary breaks just then; and a set whose dealer has left would stand still."""
        saying = self._saying.get(word)
        if saying is None:
            saying = self._saying[word] = self._topics.neighbours.task(self._say_of_own(word))
        return saying

    async def _say_of_own(self, word: Joined | Left) -> None:
        try:
            await self._bring(partial(_itself, word), partial(self._is_known, word))
        finally:
            del self._saying[word]

    def _is_known(self, word: Joined | Left) -> bool:
        """Whether a word about a subscription of this member has come back, or concerns nobody any more."""
        there = (self._me, word.number) in self.shares.takers.get(word.key, ())
        if isinstance(word, Left):
            return not there
        return there or not self.shares.is_mine(word.key, word.number)


def _itself(word: Any) -> Any:
    return word


def share_key(name: str, interest: Interest) -> str:
    """The key of a set: subscriptions share events if they have the same name and the same interest."""
    return "\n".join([name, interest.pattern, str(interest.filter or ""), interest.type_name, interest.concept])
