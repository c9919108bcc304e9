"""Shared subscriptions on a bus: the sending part. ``pubsub.shares`` has the protocol, and says why it is right.

The sets of subscriptions are the state of the carrier of total order: a member that joins the carrier gets them, as
they are at a point of the order.

*Finishing* is waited for: the next event is handed out when every member has the word ``Finished`` of the one before
(half a millisecond on one machine). The group may have no room for that word because this very member reads slowly,
with another subscription in total order. Then the wait ends after ``ROOM_S``: the task that waits here may be the one
that should read there. The word is sent later, when there is room.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....core.errors import Closed, MalformedFrame, NotPrimary, Overflow, Uncertain
from ....core.frame import Message
from ....core.ids import ALL, MessageId
from ....group.state.line import Mark
from ....pubsub.batch import Arrived
from ....pubsub.event import Event
from ....pubsub.interest import Interest
from ....pubsub.shares import Shares
from ....pubsub.topics import matches
from ....pubsub.words import Finished, Joined, Left
from .carrier import Carrier
from .subscription import Subscription

if TYPE_CHECKING:
    from .pubsub import Topics

ROOM_S = 0.1
"""Seconds for which the next event waits for room for the word that the one before is finished."""


class Sharing:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._me = int(topics.bus.me)
        self.shares = Shares(self._me)
        self._interests: dict[str, Interest] = {}
        """By set that this member is in: the interest of its subscriptions."""
        self._numbers = 0
        self._subscriptions: dict[tuple[str, int], Subscription[Any]] = {}
        """The subscriptions of this member, by the set and their number in it."""
        self._said: set[Left] = set()
        """Tasks that tell all members who is gone."""
        self._unsaid: dict[tuple[str, int], Finished] = {}
        """By subscription, the last word for which there was no room."""
        self._heard = asyncio.Event()
        """Set when something may have changed for a task that waits in ``_comes_back``."""
        self._carrier: Carrier | None = None

    def begin(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.shares.restored = self._restored

    # Subscriptions of this member

    async def enter(self, subscription: Subscription[Any]) -> None:
        """Returns when every member has the subscription in the set."""
        assert self._carrier is not None
        key = share_key(subscription.shared, subscription.interest)
        self._interests[key] = subscription.interest

        def deliver(events: list[Event[Any]]) -> None:
            subscription.backlog.put_events(events)
            subscription.arrived()

        self.shares.enter(key, self._numbered(key, subscription), deliver)
        said = ("", 0)
        while said != subscription.share and not subscription.closed:
            with suppress(Uncertain):  # members were cut off: repeat the word, which does no harm where it was received
                share = subscription.share
                await self._carrier.group.send(Joined(*share), wait="stable")
                said = share

    def _numbered(self, key: str, subscription: Subscription[Any]) -> int:
        self._numbers += 1
        subscription.share = (key, self._numbers)
        self._subscriptions[subscription.share] = subscription
        return self._numbers

    def _renew(self, key: str, number: int, *, was_cut: bool) -> None:
        """Enter a subscription as a new member of its set, without the events that others may have got."""
        subscription = self._subscriptions.pop((key, number))
        new = self._numbered(key, subscription)
        self._heard.set()
        subscription.begin_anew(self.shares.renew(key, number, new, subscription.handed, was_cut=was_cut))

    async def leave(self, subscription: Subscription[Any]) -> None:
        key, number = subscription.share
        if not number:  # it never entered the set
            return
        self.shares.leave(key, number)
        self._subscriptions.pop((key, number), None)
        if key not in self.shares.keys:
            self._interests.pop(key, None)
        if self._carrier is not None and not self._carrier.group.closed and self._topics.bus.primary:
            await self._carrier.group.send(Left(key, self._me, number))

    async def finished(self, subscription: Subscription[Any], upto: MessageId) -> None:
        """Returns when every member knows that events up to this one are finished; if this member is not in the
        primary, when it is again."""
        assert self._carrier is not None
        key, number = subscription.share
        word = Finished(key, number, (int(upto[0]), upto[1]))
        while not subscription.closed and subscription.share == (
            key,
            number,
        ):  # else this member was cut off, and others have the event
            try:
                await self._carrier.group.send(word, timeout=ROOM_S, wait="stable")
                await self._comes_back(subscription, word)
                break
            except (Uncertain, NotPrimary):  # perhaps not every member has the word: to repeat it does no harm
                continue
            except Overflow:
                if self._fills_the_window():
                    self._say_when_there_is_room(word)
                    break
            except Closed:
                break

    async def _comes_back(self, subscription: Subscription[Any], word: Finished) -> None:
        """Wait until this member has received its own word in the total order. If it was cut off, it first gets the
        state, which shows that its events are not its own any more."""
        assert self._carrier is not None
        channel, share = self._carrier.group._channel, subscription.share
        while subscription.share == share and subscription.finished_upto != word.upto and not subscription.closed:
            self._heard.clear()
            try:
                async with asyncio.timeout(ROOM_S):
                    await self._heard.wait()
            except TimeoutError:
                is_current = channel.state is None or channel.state.has
                if is_current and not any(type(frame) is Mark for frame in channel.inbox):
                    break  # it reads slowly, perhaps because the task that waits here does not read

    def _fills_the_window(self) -> bool:
        assert self._carrier is not None
        group = self._carrier.group
        return group.me in group._dispatch.full(group._channel, ALL)

    def _say_when_there_is_room(self, word: Finished) -> None:
        share = (word.key, word.number)
        waits = share in self._unsaid
        self._unsaid[share] = word  # a later word, which includes the one before
        if not waits:
            self._topics.neighbours.task(self._say_rest(share))

    async def _say_rest(self, share: tuple[str, int]) -> None:
        assert self._carrier is not None
        try:
            word = None
            while word is not self._unsaid[share]:
                word = self._unsaid[share]
                await self._carrier.group.send(word)
        finally:
            del self._unsaid[share]

    # In total order

    def taken(self, arrived: Arrived) -> None:
        assert self._carrier is not None
        self._tell_gone()
        for key, interest in self._interests.items():
            wanted = [matches(interest.pattern, topic) for topic in arrived.batch.topics]
            if not any(wanted):
                continue
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
                self.shares.give(key, interest.chosen(events))

    def heard(self, message: Message) -> None:
        word = message.body
        if isinstance(word, Joined | Left | Finished):
            mine, number = int(message.sender) == self._me, word.number
            if isinstance(word, Left) and word.member == self._me and self.shares.is_mine(word.key, number):
                self._renew(word.key, number, was_cut=False)  # it was taken for dead
            self.shares.apply(int(message.sender), word)
            if isinstance(word, Left):
                self._said.discard(word)
                if word.member == self._me:
                    self._join_again()
            elif isinstance(word, Finished):
                if mine and (word.key, number) in self._subscriptions:
                    self._subscriptions[word.key, number].finished_upto = word.upto
                    self._heard.set()
            elif mine and not self.shares.is_mine(word.key, number):  # said before it was cut off, or has left
                self._say(Left(word.key, self._me, number))
            self._tell_gone()

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

    def _restored(self) -> None:
        """This member was cut off, and got the state anew."""
        assert self._carrier is not None
        self._topics.cut_off(self._carrier)
        self._said.clear()
        for key, number in list(self._subscriptions):
            self._renew(key, number, was_cut=True)
        self._join_again()
        for key, takers in self.shares.takers.items():
            for member, number in takers:
                if member == self._me and not self.shares.is_mine(key, number):
                    self._say(Left(key, member, number))
        self._tell_gone()

    def _join_again(self) -> None:
        for word in self.shares.absent():
            self._say(word)

    def _say(self, word: Joined | Left) -> None:
        if self._carrier is not None:
            self._topics.neighbours.task(self._carrier.group.send(word))


def share_key(name: str, interest: Interest) -> str:
    """The key of a set: subscriptions share events if they have the same name and the same interest."""
    kind = interest.type.__name__ if interest.type is not None else ""
    return "\n".join([name, interest.pattern, str(interest.filter or ""), kind])
