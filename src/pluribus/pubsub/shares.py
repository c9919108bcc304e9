"""Shared subscriptions: each event goes to one of a set of subscribers, wherever they are.

Theory of operation
-------------------
Events and the set's own words (``Joined``, ``Left``, ``Finished``) come in one total order, the same for every member.
So each member of the set knows, without asking, which subscriber gets an event: that follows from the subscribers of
the set at that point of the order and from the event's identity. Every member of the group knows who is in the set
(``snapshot``); only members of the set look at its events.

*Death.* Each subscriber of a set remembers which events the others were given and have not finished. If one leaves or
dies, a member says so in the total order (``Left``). From there on its unfinished events belong to subscribers that
were in the set when it got them and still are, again chosen by identity. They are marked ``again``: the dead subscriber
may have handled them before it could say so.

*Finishing.* A subscriber is handed one event at a time. When its reader asks for the next one, it says ``Finished`` of
the one before, and hands out the next when every member has that word. So at any moment at most one event of a
subscriber is begun and not known to be finished. The events that wait behind it were not begun.

*Being cut off.* A member that was not in the primary for some time does not know which events were finished there, and
others may have got its events. So it comes back as a new subscriber, under a new number (``renew``). Events that it had
not begun are dropped, except those that nobody else could have got, and it inherits nothing from before.

Promise: while nobody leaves, each event is delivered by exactly one subscriber of the set. An event is delivered a
second time only if its first subscriber left or was taken for dead. It is never lost while one of the subscribers stays
that were in the set when it came. If a subscriber crashes, at most one of the events that it had begun is handled
again, unless its member had no room in the group for its words (``runtime/styles/topics/sharing.py``), or its reader
took several events at once. Limit: ``SHARED_PENDING_MAX`` unfinished events a subscriber; the oldest beyond it are not
given to another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from ..core.ids import MessageId
from ..core.limits import SHARED_PENDING_MAX
from .event import Event
from .words import Finished, Joined, Left

Taker = tuple[int, int]
"""A subscriber: its member, and its number there."""
Deliver = Callable[[list[Event[Any]]], None]

_SHUFFLE = 0x9E3779B97F4A7C15
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, list[Taker]]).decode


class Share:
    """One set, at a member that is in it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.mine: dict[Taker, Deliver] = {}
        self.pending: dict[Taker, OrderedDict[MessageId, tuple[Event[Any], tuple[Taker, ...]]]] = {}

    def give(self, takers: tuple[Taker, ...], events: list[Event[Any]], *, again: bool = False) -> None:
        """Give each event to a subscriber of the set."""
        delivered: dict[Taker, list[Event[Any]]] = {}
        for event in events:
            taker = takers[chosen(event.id, len(takers))]
            if again:
                event = msgspec.structs.replace(event, again=True)
            pending = self.pending.setdefault(taker, OrderedDict())
            pending[event.id] = (event, takers)
            if len(pending) > SHARED_PENDING_MAX:
                pending.popitem(last=False)
            if taker in self.mine:
                delivered.setdefault(taker, []).append(event)
        for taker, some in delivered.items():
            self.mine[taker](some)

    def finished(self, taker: Taker, upto: MessageId) -> None:
        pending = self.pending.get(taker)
        if pending and upto in pending:
            while pending.popitem(last=False)[0] != upto:
                pass

    def renew(self, taker: Taker, new: Taker, begun: MessageId | None, heirs: frozenset[Taker]) -> list[Event[Any]]:
        """The events of a taker of this member that nobody else has or can get, from now on under a new number."""
        self.mine[new] = self.mine.pop(taker)
        kept: OrderedDict[MessageId, tuple[Event[Any], tuple[Taker, ...]]] = OrderedDict()
        for id, (event, before) in self.pending.get(taker, {}).items():
            if id == begun:
                kept.clear()  # what came before it was handed out, too
            elif heirs.isdisjoint(before):
                kept[id] = (event, (new,))
        if kept:
            self.pending[new] = kept
        return [event for event, _ in kept.values()]

    def left(self, taker: Taker, takers: tuple[Taker, ...]) -> None:
        """A subscriber left: its unfinished events go to those that were in the set when it got them and still are."""
        for event, before in self.pending.pop(taker, {}).values():
            heirs = tuple(other for other in before if other in takers)
            if heirs:
                self.give(heirs, [event], again=True)


def chosen(id: MessageId, count: int) -> int:
    """The index, below ``count``, that an identity chooses; spread evenly, whatever numbers the events have."""
    return ((id[0] ^ (id[1] * _SHUFFLE)) & 0xFFFF_FFFF_FFFF_FFFF) % 1_000_003 % count


class Shares:
    """All sets, as one member of the totally ordered group knows them."""

    def __init__(self, me: int) -> None:
        self.me = int(me)
        self.takers: dict[str, tuple[Taker, ...]] = {}
        self._shares: dict[str, Share] = {}
        self.restored: Callable[[], None] = lambda: None

    # The state of the group

    def snapshot(self) -> bytes:
        return _encode(self.takers)

    def restore(self, state: bytes) -> None:
        self.takers = {key: tuple(takers) for key, takers in _decode(state).items()}
        for share in self._shares.values():  # what others finished meanwhile is not known
            share.pending = {taker: events for taker, events in share.pending.items() if taker in share.mine}
        self.restored()

    # In total order

    def apply(self, sender: int, word: Joined | Left | Finished) -> None:
        if isinstance(word, Joined):
            taker = (int(sender), word.number)
            takers = self.takers.get(word.key, ())
            if taker not in takers:
                self.takers[word.key] = (*takers, taker)
        elif isinstance(word, Left):
            self._left(word.key, (word.member, word.number))
        elif word.key in self._shares:
            self._shares[word.key].finished((int(sender), word.number), (word.upto[0], word.upto[1]))

    def _left(self, key: str, taker: Taker) -> None:
        takers = tuple(other for other in self.takers.get(key, ()) if other != taker)
        if takers:
            self.takers[key] = takers
        else:
            self.takers.pop(key, None)
        if key in self._shares:
            self._shares[key].left(taker, takers)

    def give(self, key: str, events: list[Event[Any]]) -> None:
        """Events that match the set's interest, at a member that is in it or is about to be."""
        takers = self.takers.get(key)
        if takers and key in self._shares:
            self._shares[key].give(takers, events)

    # At this member

    def enter(self, key: str, number: int, deliver: Deliver) -> None:
        """A subscription of this member enters a set; the caller then sends ``Joined``."""
        self._shares.setdefault(key, Share(key)).mine[(self.me, number)] = deliver

    def leave(self, key: str, number: int) -> None:
        share = self._shares.get(key)
        if share is not None:
            share.mine.pop((self.me, number), None)
            if not share.mine:
                del self._shares[key]

    def renew(self, key: str, number: int, new: int, begun: MessageId | None, *, was_cut: bool) -> list[Event[Any]]:
        """A subscriber of this member goes on as another one; ``begun`` is the last event that it was handed. Returns
        what it keeps. ``was_cut``: others may have got, and finished, what it was given."""
        taker, share = (self.me, number), self._shares[key]
        if was_cut:
            before = {other for _, takers in share.pending.get(taker, {}).values() for other in takers}
            heirs = frozenset(before - {taker})
        else:
            heirs = frozenset(self.takers.get(key, ())) - {taker}
        kept = share.renew(taker, (self.me, new), begun, heirs)
        if was_cut:
            share.pending.pop(taker, None)
        return kept

    def is_mine(self, key: str, number: int) -> bool:
        return key in self._shares and (self.me, number) in self._shares[key].mine

    def absent(self) -> list[Joined]:
        """Subscriptions of this member that dropped out of their set because the member was cut off."""
        return [
            Joined(key, number)
            for key, share in self._shares.items()
            for member, number in share.mine
            if (member, number) not in self.takers.get(key, ())
        ]

    def gone(self, members: tuple[int, ...]) -> list[Left]:
        """Subscribers whose members are gone. The first member that is still there announces it."""
        return [
            Left(key, member, number)
            for key, takers in self.takers.items()
            for member, number in takers
            if member not in members
        ]

    @property
    def keys(self) -> list[str]:
        """Sets that this member is in."""
        return list(self._shares)
