"""What members that publish or subscribe know of each other: who wants which order, who advertises what, which values
are retained.

Each member alone changes what is known of itself, and says so in the base group, so nobody can disagree. A newcomer
asks everybody (``Introduce``) and goes on when all have answered; then it asks one of those who are ready for the
retained values. Whatever was said before the newcomer was in the group's view had been delivered to all in it, so the
answers hold it; whatever is said later the newcomer hears itself. When two sides of a partition have merged, everybody
is a newcomer to the others and asks again.

A subscription in causal or total order needs a group of that order (a *carrier*), and every publisher in it. ``want``
asks for that: each member joins the carrier, remembers the want, and answers. From then on events that match go through
that carrier too, with the same identity. Orders that nobody asks for cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput, PluribusError
from ..core.events import Event, Merged
from ..core.frame import Message
from ..core.limits import ADVERTISED_MAX
from ..pubsub.retained import Retained
from ..pubsub.topics import levels_of
from ..pubsub.trie import Trie
from ..pubsub.words import Advert, Advertised, Introduce, Introduction, Tell, Told, Unwanted, Want, Wanted
from .carrier import Carrier

if TYPE_CHECKING:
    from .pubsub import Topics

log = logging.getLogger(__name__)

ANSWER_S = 30.0


class Neighbours:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.retained = Retained()
        self.ready = False
        """Whether it knows what the others know."""
        self.own_wants: Counter[Want] = Counter()
        self.own_adverts: dict[str, Advert] = {}
        self._wants: dict[int, set[Want]] = {}
        self._adverts: dict[int, dict[str, Advert]] = {}
        self._orders: Trie[Want] = Trie()
        self._also: dict[str, tuple[Carrier, ...]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # Who is who

    async def introduce(self, base: Carrier, sides: Sequence[Collection[int]] = ()) -> None:
        """Ask everybody who wants what, and one member for the retained values; after a partition, one of each of these
        sides, because what was published on one is nowhere on another."""
        group = base.group
        while len(group.view) > 1:
            answers = await group.ask(Introduce(), timeout=ANSWER_S)
            known = {int(a.sender): a.body for a in answers if isinstance(a.body, Introduction)}
            for member, word in known.items():
                self._adverts[member] = {advert.pattern: advert for advert in word.adverts}
                for want in word.wants:
                    await self._noted(member, want)
            ready = [member for member, word in known.items() if word.ready]
            apart = [[member for member in ready if member in side] for side in sides] or [ready]
            told = [await self._told(base, some) for some in apart if some]
            if all(told):
                break
        self.ready = True

    async def _told(self, base: Carrier, ready: list[int]) -> bool:
        for member in ready:
            try:
                (answer,) = await base.group.ask(Tell(), to=member, timeout=ANSWER_S)
                self._topics.renewed(self.retained.merge(answer.body.kept))
            except (PluribusError, AttributeError, ValueError):  # it is gone, or talks nonsense: another has it too
                continue
            return True
        return False

    async def watch(self, base: Carrier) -> None:
        """Forget those who left; tell those who came what was said when nobody was there, because they need not have
        come later: this member may be new to them."""
        alone = False
        async for view in base.group.views():
            mine = self.retained.snapshot(int(base.group.me)) if alone and len(view) > 1 else []
            alone = len(view) == 1
            if mine:
                self.task(base.group.send(Told(mine)))
            for member in (self._wants.keys() | self._adverts.keys()) - set(view.members):
                self._adverts.pop(member, None)
                for want in self._wants.pop(member, set()):
                    self._forget(want)
            self._topics.sharing.members_changed(view.members)

    def on_event(self, event: Event) -> None:
        base = self._topics.joined
        if isinstance(event, Merged) and base is not None:
            others = [side for side in event.sides if base.group.me not in side]
            self.task(self.introduce(base, others))

    def heard(self, message: Message) -> None:
        word, sender = message.body, int(message.sender)
        if isinstance(word, Introduce) and message.asks:
            wants, adverts = list(self.own_wants), list(self.own_adverts.values())
            self.task(message.reply(Introduction(self.ready, wants, adverts)))
        elif isinstance(word, Tell) and message.asks:
            self.task(message.reply(Told(self.retained.snapshot())))
        elif isinstance(word, Told) and sender != self._topics.bus.me:
            self._topics.renewed(self.retained.merge(word.kept))
        elif isinstance(word, Wanted) and message.asks:
            self.task(self._agree(message, sender, word.want))
        elif isinstance(word, Unwanted):
            self._wants.get(sender, set()).discard(word.want)
            self._forget(word.want)
        elif isinstance(word, Advertised):
            known = self._adverts.setdefault(sender, {})
            known.pop(word.advert.pattern, None)
            if not word.over and len(known) < ADVERTISED_MAX:
                known[word.advert.pattern] = word.advert

    def task(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Do it beside; what it raises because the bus is closing is nobody's business."""
        task = asyncio.get_running_loop().create_task(self._quietly(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            await coroutine
        except PluribusError as error:
            if not self._topics.bus.closed:
                log.warning("topics: %s", error)

    # Orders

    async def want(self, base: Carrier, want: Want) -> None:
        """Returns when every member sends there what matches."""
        self.own_wants[want] += 1
        await self._noted(int(base.group.me), want)
        if len(base.group.view) > 1:
            await base.group.ask(Wanted(want), timeout=ANSWER_S)

    async def unwant(self, base: Carrier, want: Want) -> None:
        self.own_wants[want] -= 1
        if self.own_wants[want] <= 0:
            del self.own_wants[want]
            self._wants.get(int(base.group.me), set()).discard(want)
            self._forget(want)
            if not base.group.closed:
                await base.group.send(Unwanted(want))

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
        await base.group.send(Advertised(advert))

    async def unadvertise(self, base: Carrier, pattern: str) -> None:
        advert = self.own_adverts.pop(pattern, None)
        if advert is None:
            raise BadInput(
                f"{pattern!r} is not advertised by this member: {', '.join(self.own_adverts) or 'nothing'} is"
            )
        await base.group.send(Advertised(advert, over=True))

    def adverts(self, me: int) -> dict[int, dict[str, Advert]]:
        return {**self._adverts, int(me): self.own_adverts}

    def abandon(self) -> None:
        for task in list(self._tasks):
            task.cancel()
