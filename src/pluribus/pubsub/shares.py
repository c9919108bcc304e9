"""Shared subscriptions: each event goes to one of a set of subscribers, wherever they are.

Theory of operation
-------------------
Events and the set's own words (``Joined``, ``Left``, ``Finished``) come in one total order, the same for every member.
So each member of the set can say by itself, without asking, whose an event is: the subscribers of the set at that point
of the order, and the event's identity, decide. Who is in the set is known to every member of the group (``snapshot``);
events are looked at only by those who are in it.

*Demand.* An event that comes goes to the subscriber that has waited longest; only if none is known to wait, to one
that its identity decides. A subscriber waits when its reader asks, and it has said that it is *dry*. If events lie with
others then, it is given one: the last one of whoever has most, but never the first one, which may be under way. So who
is slow keeps nothing that another could do. Who has just joined knows neither who waits nor what lies with whom, nor
what is inherited when one leaves. So with each one that joins or leaves this begins anew: those who wait say so again,
and only events that came since are moved.

*Death.* Each subscriber of a set remembers which events the others were given and have not finished. If one leaves or
dies, somebody says so in the total order (``Left``); from there on the events that it had not finished belong to those
who were in the set when it got them and still are, again by identity. They are marked ``again``: the dead one may have
done them before it could say so.

*Finishing.* A subscriber is handed one event at a time. When its reader asks for the next one, it says ``Finished`` of
the one before, and hands out the next when every member has that word. So at any moment at most one event of a
subscriber is both begun and not known to be finished: the one under way. What waits for it was not begun.

*Being cut off.* Who was not in the primary for a while does not know what was finished there, and others may have what
it was given. So it comes back as a new subscriber, under a new number (``renew``): what it had not begun is dropped,
but for events that nobody else could have got, and it inherits nothing from before.

Promise: while nobody leaves, each event is read from exactly one subscriber of the set. An event is read a second time
only if its first taker left or was taken for dead, and it is never lost while somebody stays who was in the set when it
came.
If a subscriber crashes, at most one of the events that it had begun is done again, unless its member left the group no
room for its words (``runtime/styles/topics/sharing.py``): then one may also be done twice that was begun too early.
Limit: ``SHARED_PENDING_MAX`` unfinished events a subscriber; the oldest beyond it are not given to another.
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
Withdraw = Callable[[MessageId], None]
"""An event that was delivered and not begun is another subscriber's now."""

_SHUFFLE = 0x9E3779B97F4A7C15
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, list[Taker]]).decode


class Share:
    """One set, at a member that is in it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.mine: dict[Taker, Deliver] = {}
        self.withdraw: dict[Taker, Withdraw] = {}
        self.pending: dict[Taker, OrderedDict[MessageId, tuple[Event[Any], tuple[Taker, ...]]]] = {}
        self.fresh: dict[Taker, dict[MessageId, None]] = {}
        """Of these, the events that came since somebody joined or left: every member of the set knows them."""
        self.dry: dict[Taker, None] = {}
        """Those who wait, in their turns."""

    def give(self, takers: tuple[Taker, ...], events: list[Event[Any]], *, again: bool = False) -> None:
        """To each event its taker."""
        delivered: dict[Taker, list[Event[Any]]] = {}
        for event in events:
            if again:
                event = msgspec.structs.replace(event, again=True)
            self._assign(event, takers, delivered, not again)
        for taker, some in delivered.items():
            self.mine[taker](some)

    def _assign(
        self, event: Event[Any], takers: tuple[Taker, ...], delivered: dict[Taker, list[Event[Any]]], fresh: bool
    ) -> None:
        if fresh and self.dry:
            taker = next(iter(self.dry))
            del self.dry[taker]
        else:
            taker = takers[chosen(event.id, len(takers))]
        self._hold(taker, event, takers, fresh)
        if taker in self.mine:
            delivered.setdefault(taker, []).append(event)

    def _hold(self, taker: Taker, event: Event[Any], takers: tuple[Taker, ...], fresh: bool) -> None:
        pending = self.pending.setdefault(taker, OrderedDict())
        pending[event.id] = (event, takers)
        if fresh:
            self.fresh.setdefault(taker, {})[event.id] = None
        if len(pending) > SHARED_PENDING_MAX:
            self.fresh.get(taker, {}).pop(pending.popitem(last=False)[0], None)

    def finished(self, taker: Taker, upto: MessageId, dry: bool = False) -> None:
        pending, fresh = self.pending.get(taker), self.fresh.get(taker, {})
        if pending and upto in pending:
            done = None
            while done != upto:
                done, _ = pending.popitem(last=False)
                fresh.pop(done, None)
        if dry and not fresh:
            self._serve(taker)

    def _serve(self, taker: Taker) -> None:
        """One who has nothing is given the last event of the one who has most, or waits for the next that comes."""
        richest = max(((len(held), other) for other, held in self.fresh.items()), default=(0, taker))
        if richest[0] < 2:
            self.dry[taker] = None
            return
        id, _ = self.fresh[richest[1]].popitem()
        event, takers = self.pending[richest[1]].pop(id)
        if richest[1] in self.withdraw:
            self.withdraw[richest[1]](id)
        self._hold(taker, event, takers, True)
        if taker in self.mine:
            self.mine[taker]([event])

    def begin_anew(self) -> list[Taker]:
        """Somebody joined or left; those of this member who waited, and are to say so again."""
        again = [taker for taker in self.dry if taker in self.mine]
        self.fresh.clear()
        self.dry.clear()
        return again

    def renew(self, taker: Taker, new: Taker, begun: MessageId | None, heirs: frozenset[Taker]) -> list[Event[Any]]:
        """The events of a taker of this member that nobody else has or can get, from now on under a new number."""
        self.mine[new] = self.mine.pop(taker)
        if taker in self.withdraw:
            self.withdraw[new] = self.withdraw.pop(taker)
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
        """What it had goes to those who had the same chance to get it, and are still there."""
        for event, before in self.pending.pop(taker, {}).values():
            heirs = tuple(other for other in before if other in takers)
            if heirs:
                self.give(heirs, [event], again=True)


def chosen(id: MessageId, count: int) -> int:
    """Which of so many: spread evenly, whatever numbers the events have."""
    return ((id[0] ^ (id[1] * _SHUFFLE)) & 0xFFFF_FFFF_FFFF_FFFF) % 1_000_003 % count


class Shares:
    """All sets, as one member of the totally ordered group knows them."""

    def __init__(self, me: int) -> None:
        self.me = int(me)
        self.takers: dict[str, tuple[Taker, ...]] = {}
        self._shares: dict[str, Share] = {}
        self.restored: Callable[[], None] = lambda: None
        self.ask_again: Callable[[str, int], None] = lambda key, number: None
        """A subscription of this member waited, and is to say so again."""

    # The state of the group

    def snapshot(self) -> bytes:
        return _encode(self.takers)

    def restore(self, state: bytes) -> None:
        self.takers = {key: tuple(takers) for key, takers in _decode(state).items()}
        for share in self._shares.values():  # what others finished meanwhile is not known
            share.pending = {taker: events for taker, events in share.pending.items() if taker in share.mine}
            share.begin_anew()
        self.restored()

    # In total order

    def apply(self, sender: int, word: Joined | Left | Finished) -> None:
        if isinstance(word, Joined):
            taker = (int(sender), word.number)
            takers = self.takers.get(word.key, ())
            if taker not in takers:
                self.takers[word.key] = (*takers, taker)
                self._begin_anew(word.key)
        elif isinstance(word, Left):
            self._left(word.key, (word.member, word.number))
        elif word.key in self._shares:
            taker = (int(sender), word.number)
            dry = word.dry and taker in self.takers.get(word.key, ())
            self._shares[word.key].finished(taker, (word.upto[0], word.upto[1]), dry)

    def _left(self, key: str, taker: Taker) -> None:
        takers = tuple(other for other in self.takers.get(key, ()) if other != taker)
        if takers:
            self.takers[key] = takers
        else:
            self.takers.pop(key, None)
        if key in self._shares:
            self._begin_anew(key)
            self._shares[key].left(taker, takers)

    def _begin_anew(self, key: str) -> None:
        for _, number in self._shares[key].begin_anew() if key in self._shares else ():
            self.ask_again(key, number)

    def give(self, key: str, events: list[Event[Any]]) -> None:
        """Events that match the set's interest, at a member that is in it or is about to be."""
        takers = self.takers.get(key)
        if takers and key in self._shares:
            self._shares[key].give(takers, events)

    # At this member

    def enter(self, key: str, number: int, deliver: Deliver, withdraw: Withdraw | None = None) -> None:
        """From now on; whoever calls this says ``Joined`` next."""
        share = self._shares.setdefault(key, Share(key))
        share.mine[(self.me, number)] = deliver
        if withdraw is not None:
            share.withdraw[(self.me, number)] = withdraw

    def forget(self, key: str) -> None:
        """This member could not follow what came: what it had is others', and it is to join again."""
        share = self._shares.get(key)
        if share is not None:
            share.pending = {taker: events for taker, events in share.pending.items() if taker in share.mine}
            share.begin_anew()

    def leave(self, key: str, number: int) -> None:
        share = self._shares.get(key)
        if share is not None:
            share.mine.pop((self.me, number), None)
            share.withdraw.pop((self.me, number), None)
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
        """Subscriptions of this member that are in no set, though they should be: the member was cut off."""
        return [
            Joined(key, number)
            for key, share in self._shares.items()
            for member, number in share.mine
            if (member, number) not in self.takers.get(key, ())
        ]

    def gone(self, members: tuple[int, ...]) -> list[Left]:
        """Takers whose members are not there any more. The first who is says so."""
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
