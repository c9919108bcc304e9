"""What members that publish or subscribe know of each other: who wants which order, who advertises what, which values
are retained.

Only a member itself changes what others know of it, and it says so in the base group, so members cannot disagree. A
newcomer asks everybody (``Introduce``) and goes on when all have answered; the others ask the newcomer, who may come
from another side of a partition. A member whose retained values differ from one's own is asked for them. Messages sent
before the newcomer was in the group's view had been delivered to all members of the view, so the answers contain them;
later messages the newcomer receives itself.

A subscription in causal or total order needs a group of that order (a *carrier*), and every publisher in it. ``want``
asks for that: each member joins the carrier, remembers the want, and answers. From then on events that match go through
that carrier too, with the same identity. Orders that nobody asks for cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....core.errors import AnswersLate, BadInput, Closed, NoMembers, PluribusError
from ....core.events import Event, Merged
from ....core.frame import Message
from ....core.limits import ADVERTISED_MAX
from ....group.asking import Answers
from ....pubsub.retained import Retained
from ....pubsub.topics import levels_of
from ....pubsub.trie import Trie
from ....pubsub.words import Advert, Advertised, Introduce, Introduction, Tell, Told, Unwanted, Want, Wanted
from ...group.group import Group
from .carrier import Carrier

if TYPE_CHECKING:
    from .pubsub import Topics

log = logging.getLogger(__name__)

ANSWER_S = 30.0


class Neighbours:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.retained = Retained()
        self._version = 0
        """Grows with every message that this member sends to all."""
        self._heard: dict[int, int] = {}
        """By member: the last version that was received."""
        self._met: set[int] = set()
        """Members that this member has met."""
        self.own_wants: Counter[Want] = Counter()
        self.own_adverts: dict[str, Advert] = {}
        self._wants: dict[int, set[Want]] = {}
        self._adverts: dict[int, dict[str, Advert]] = {}
        self._orders: Trie[Want] = Trie()
        self._also: dict[str, tuple[Carrier, ...]] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In their order, which a set does not keep: a world must do the same every time."""
        self._meeting: asyncio.Task[None] | None = None

    # Who is who

    async def introduce(self, base: Carrier) -> None:
        """Ask members that this member has not met; returns when it knows all."""
        group = base.group
        while strangers := [int(m) for m in group.view.members if m not in self._met and m != group.me]:
            answers = await self.ask(group, Introduce(), strangers)
            known = {int(a.sender): a.body for a in answers if a.error is None and isinstance(a.body, Introduction)}
            # An answer has a stream of its own: later messages of its sender to all may have come before it.
            known = {member: word for member, word in known.items() if word.version >= self._heard.get(member, 0)}
            strange = [int(a.sender) for a in answers if a.error is not None or not isinstance(a.body, Introduction)]
            self._met.update(known, strange)  # a member that cannot answer is not asked for ever
            for member, word in known.items():
                self._adverts[member] = {advert.pattern: advert for advert in word.adverts}
                for want in word.wants:
                    await self._noted(member, want)
            for member in {word.digest: member for member, word in known.items() if word.digest}.values():
                if known[member].digest != self.retained.digest:
                    await self._told(base, member)

    async def ask(self, group: Group, word: Any, of: Collection[int] = ()) -> Answers:
        """Ask all members, or some. A member that goes meanwhile need not answer; a slow one is asked again."""
        while len(group.view) > 1:
            there = [member for member in of if member in group.view]
            try:
                if len(there) == 1 == len(of):
                    return await group.ask(word, to=there[0], timeout=ANSWER_S)
                return await group.ask(word, of=there, timeout=ANSWER_S)
            except (NoMembers, AnswersLate) as error:
                log.debug("topics: %s", error)
                if of and not any(member in group.view for member in of):
                    break
            except BadInput:  # the member left before the question could be sent
                if there[0] in group.view:
                    raise
        return Answers()

    async def _told(self, base: Carrier, member: int) -> None:
        try:
            (answer,) = await base.group.ask(Tell(), to=member, timeout=ANSWER_S)
            self._topics.renewed(self.retained.merge(answer.body.kept))
        except (PluribusError, AttributeError, ValueError):
            self._met.discard(member)  # the member is gone, or it will be asked again

    async def watch(self, base: Carrier) -> None:
        """Meet new members, forget those that left."""
        async for view in base.group.views():
            there = set(map(int, view.members))
            self._met &= there
            self._heard = {member: version for member, version in self._heard.items() if member in there}
            for member in (self._wants.keys() | self._adverts.keys()) - there - {int(base.group.me)}:
                self._adverts.pop(member, None)
                for want in self._wants.pop(member, set()):
                    self._forget(want)
            self._topics.sharing.members_changed()
            self._topics.audience.members_changed()
            self._meet(base)

    def _meet(self, base: Carrier) -> None:
        """In a task of its own: a member that does not answer must not delay noticing who is gone."""
        if self._meeting is None or self._meeting.done():  # else the other side will see the newcomers itself
            self._meeting = self.task(self.introduce(base))

    def on_event(self, event: Event) -> None:
        base = self._topics.joined
        if isinstance(event, Merged) and base is not None:
            for side in event.sides:
                if base.group.me not in side:  # they may have been here before, and elsewhere meanwhile
                    self._met.difference_update(map(int, side))
            self._meet(base)

    def heard(self, message: Message) -> None:
        word, sender = message.body, int(message.sender)
        if isinstance(word, Introduce) and message.asks:
            wants, adverts = list(self.own_wants), list(self.own_adverts.values())
            self.task(message.reply(Introduction(self._version, self.retained.digest, wants, adverts)))
        elif isinstance(word, Tell) and message.asks:
            self.task(message.reply(Told(self.retained.snapshot())))
        elif isinstance(word, Wanted) and message.asks:
            self.task(self._agree(message, sender, word.want))
        elif isinstance(word, Unwanted):
            self._heard[sender] = word.version
            self._wants.get(sender, set()).discard(word.want)
            self._forget(word.want)
        elif isinstance(word, Advertised):
            self._heard[sender] = word.version
            known = self._adverts.setdefault(sender, {})
            known.pop(word.advert.pattern, None)
            if not word.over and len(known) < ADVERTISED_MAX:
                known[word.advert.pattern] = word.advert

    def task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run a coroutine as a task; errors that it raises because the bus is closing are ignored."""
        task = asyncio.get_running_loop().create_task(self._quietly(coroutine))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(lambda _: coroutine.close())  # it may have been cancelled before it began
        return task

    async def _quietly(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            await coroutine
        except PluribusError as error:
            if not self._topics.bus.closed:
                log.warning("topics: %s", error)

    # Orders

    async def want(self, base: Carrier, want: Want) -> None:
        """Returns when every member sends matching events through that carrier."""
        self.own_wants[want] += 1
        await self._noted(int(base.group.me), want)
        await self.ask(base.group, Wanted(want))

    async def unwant(self, base: Carrier, want: Want) -> None:
        self.own_wants[want] -= 1
        if self.own_wants[want] <= 0:
            del self.own_wants[want]
            self._wants.get(int(base.group.me), set()).discard(want)
            self._forget(want)
            self._version += 1
            with suppress(Closed):  # the others see that this member is gone
                await base.group.send(Unwanted(want, self._version))

    async def _agree(self, message: Message, sender: int, want: Want) -> None:
        try:
            levels_of(want.pattern)
            await self._noted(sender, want)
        except BadInput as error:
            log.warning("a member wants what cannot be: %s", error)
        await message.reply(True)

    async def _noted(self, member: int, want: Want) -> None:
        await self._topics.carrier(want.order)
        self._wants.setdefault(member, set()).add(want)
        self._orders.add(want.pattern, want)
        self._also.clear()
        self._topics.routed(any(self._wants.values()))

    def _forget(self, want: Want) -> None:
        if not any(want in wants for wants in self._wants.values()):
            self._orders.remove(want.pattern, want)
        self._also.clear()
        self._topics.routed(any(self._wants.values()))

    def also(self, topic: str) -> tuple[Carrier, ...]:
        """The carriers besides the base through which events of a topic go."""
        found = self._also.get(topic)
        if found is None:
            if len(self._also) > 10_000:
                self._also.clear()
            orders = sorted({want.order for want in self._orders.match(topic)})
            found = self._also[topic] = tuple(self._topics.carriers[order] for order in orders)
        return found

    # Advertisements

    async def advertise(self, base: Carrier, advert: Advert) -> None:
        levels_of(advert.pattern)
        if len(self.own_adverts) >= ADVERTISED_MAX and advert.pattern not in self.own_adverts:
            raise BadInput(f"{ADVERTISED_MAX:,} topics are advertised already: use wider patterns")
        self.own_adverts[advert.pattern] = advert
        self._version += 1
        await base.group.send(Advertised(advert, self._version))

    async def unadvertise(self, base: Carrier, pattern: str) -> None:
        advert = self.own_adverts.pop(pattern, None)
        if advert is None:
            raise BadInput(
                f"{pattern!r} is not advertised by this member: {', '.join(self.own_adverts) or 'nothing'} is"
            )
        self._version += 1
        await base.group.send(Advertised(advert, self._version, over=True))

    def adverts(self, me: int) -> dict[int, dict[str, Advert]]:
        return {**self._adverts, int(me): self.own_adverts}

    def abandon(self) -> None:
        for task in list(self._tasks):
            task.cancel()
