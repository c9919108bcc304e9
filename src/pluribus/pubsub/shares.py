"""Shared subscriptions: each event goes to one of a set of subscribers, wherever they are, when that one asks for it.

Theory of operation
-------------------
Events and the set's own words (``Joined``, ``Left``, ``Worked``, ``Dealt``) come in one safe total order: the same for
every member, and what one member has received no survivor lacks. Every member of the group knows who is in the set
(``snapshot``), in the order in which they joined; only members of the set look at its events.

An event that comes *waits*. A subscriber that is free says so (``Worked.wants``). The *dealer* alone hands out: it is
the subscriber that has been in the set for the longest time. Its word ``Dealt`` names events and who gets each; from
the place of that word in the order on, the event is *held* by that subscriber, which may begin it. The subscriber says
by its own word when it has finished events (``Worked.done``), and asks for more by the same word; or that it gives back
events that it has not begun (``Worked.back``). Then they wait again, in their old place.

*One decides.* Who is the dealer follows from the words before: ``Dealt`` of anybody else changes nothing. When the
dealer leaves (``Left``), the next one is it from that place on; it has seen every word since it joined, so it knows
which events wait. Nothing is decided by how an event is matched or decoded, which may differ from program to program:
words name identities. A subscriber that was dealt an event which it does not have gives it back, and it is dealt with
its body (``whole``); if it cannot read that either, it counts the event as malformed and finishes it. An event that the
dealer's program cannot read, or does not match, waits until another one is the dealer.

*Newcomers.* Who joins does not have the events that wait and are held. The dealer tells them in its words, a piece at a
time (``Dealt.known``), and deals them with their bodies until then: so newcomers help with what waits, and it outlives
those who were there when it came. What is told of a held event counts if its holder has said nothing meanwhile, and
nobody has joined since the dealer spoke; else it is told again.

*One word at a time.* The dealer says its next ``Dealt``, and a subscriber its next ``Worked``, when the one before has
come back to it. If it cannot know whether it came through, it says the same word again: words are numbered, and a
number counts once.

*Death.* If a subscriber leaves or dies, a member says so in the order (``Left``). From there on the events that it held
wait again, before all others, marked ``again``: it may have begun them.

*Being cut off.* A member that was not in the primary for some time does not know what was dealt and finished there. It
comes back as new subscribers under new numbers, and has nothing of what it had; except events that nobody else can
have (``renewed``), which stay with it.

Promise: an event is begun by one subscriber of the set. It is begun by another one only after the primary's view has
gone on without the member of the first, or that subscriber has left the set; then it is marked ``again``. Why: who
begins an event has received ``Dealt``. Safe order gives a message to nobody before every member of the view has it, and
those that go on together deliver what any of them has delivered; so every survivor has that word before it has
``Left``, and no dealer deals what is held. A finished event is begun by nobody else: the next one is handed out when
``done`` has come back in the order. So, when a subscriber dies, one of the events that it has begun is in doubt, or
those of one ``receive_many``. An event is never lost while a subscriber stays in the primary that was in the set when
it came, or was told of it. Live: while somebody wants and something waits, the dealer deals; if its member is gone, the
next subscriber is the dealer.

Limits: ``SHARED_WAITING_MAX`` events wait in a set, of ``SHARED_WAITING_BYTES_MAX`` bytes together, or a single longer
one; beyond that the oldest are dropped and reported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..core.errors import MalformedFrame
from ..core.ids import MessageId
from ..core.limits import SHARED_WAITING_BYTES_MAX, SHARED_WAITING_MAX
from ..wire.bodies import Opaque, encode_body
from .batch import Arrived, EventExtra, Gathering, decode_batch, encode_batch
from .event import Event
from .words import Dealt, Grant, Joined, Known, Left, Whole, Worked

Taker = tuple[int, int]
"""A subscriber: its member, and its number there."""
Id = tuple[int, int]

GRANT_BYTES_MAX = 1 << 20
"""Bytes of bodies in one word of the dealer. A longer event is the only one with its body in its word: two could be
more than a message can have."""
KNOWN_BYTES_MAX = 256 << 10
"""Of these, for events that newcomers are told of; a longer one is told in a word without other bodies."""

LONGEST_USUAL = 1_024
"""A batch of one event takes a longer one too."""
NEVER = 1 << 62
"""The place at which subscribers join that are not there."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, list[Taker]]).decode


class Hand:
    """What a subscription of this member is given; the runtime's ``Worker`` is one."""

    def given(self, events: list[Event[Any]], turn: int) -> None:
        """These events are its own now, for what it wanted in that turn."""
        raise NotImplementedError

    def lacks(self, ids: list[Id]) -> None:
        """These are its own too, but this member does not have them."""
        raise NotImplementedError

    def cannot_read(self, ids: list[Id]) -> None:
        """These are its own too, and came with their bodies, which this program cannot decode."""
        raise NotImplementedError

    def missed(self, count: int) -> None:
        """So many events of the set were dropped, because too many wait, or too many bytes."""
        raise NotImplementedError


class SharedEvent:
    """An event of a set at this member."""

    __slots__ = ("again", "at", "event", "size_bytes", "told", "whole")

    def __init__(
        self, event: Event[Any], at: int, size_bytes: int, *, again: bool = False, whole: bool = False
    ) -> None:
        self.event = event
        self.size_bytes = size_bytes
        self.at = at
        """Its place, or the one at which all subscribers were told of it; who joined later does not have it."""
        self.told = False
        self.again = again
        self.whole = whole
        """Whether it is dealt with its body in any case."""

    def as_given(self) -> Event[Any]:
        return msgspec.structs.replace(self.event, again=True) if self.again else self.event


class Share:
    """One set, at a member that is in it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.mine: dict[Taker, Hand] = {}
        self.waiting: OrderedDict[Id, SharedEvent] = OrderedDict()
        self.waiting_bytes = 0
        self.held: dict[Taker, OrderedDict[Id, SharedEvent | None]] = {}
        """None: this member does not have the event."""
        self.wants: OrderedDict[Taker, tuple[int, int]] = OrderedDict()
        """By subscriber that waits: the turn, and how many events it wants."""
        self.turns: dict[Taker, int] = {}
        """By subscriber, the number of its last ``Worked``."""
        self.serials: dict[Taker, int] = {}
        """By dealer, the number of its last ``Dealt``."""
        self.joined: dict[Taker, int] = {}
        """By subscriber, the place at which it joined."""
        self.untold: dict[Id, None] = {}
        """Events that some subscriber does not have, because it joined later."""
        self._place = 0
        """Grows with every event that comes, and with every subscriber that joins."""

    def put(self, events: list[Event[Any]], each_bytes: int) -> None:
        for event in events:
            self._wait(_id(event.id), SharedEvent(event, self._place, each_bytes))
            self._place += 1
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop what is too much to wait."""
        dropped = 0
        while len(self.waiting) > SHARED_WAITING_MAX or (
            self.waiting_bytes > SHARED_WAITING_BYTES_MAX and len(self.waiting) > 1
        ):
            oldest = next(iter(self.waiting))
            self._take(oldest)
            self.untold.pop(oldest, None)
            dropped += 1
        if dropped:
            for hand in self.mine.values():
                hand.missed(dropped)

    def _wait(self, id: Id, one: SharedEvent, *, first: bool = False) -> None:
        self.waiting[id] = one
        self.waiting_bytes += one.size_bytes
        if first:
            self.waiting.move_to_end(id, last=False)

    def _take(self, id: Id) -> SharedEvent | None:
        one = self.waiting.pop(id, None)
        if one is not None:
            self.waiting_bytes -= one.size_bytes
        return one

    # Words, in the order

    def join(self, taker: Taker) -> None:
        self._place += 1
        self.joined[taker] = self._place
        for items in self._everything(self.held):
            for id, one in items.items():
                if one is not None:
                    one.whole = True
                    self.untold[id] = None

    def _everything(self, takers: Iterable[Taker]) -> Iterator[Mapping[Id, SharedEvent | None]]:
        """What these subscribers hold, and what waits."""
        yield from (self.held[taker] for taker in takers if taker in self.held)
        yield self.waiting

    def worked(self, taker: Taker, word: Worked) -> None:
        if word.turn <= self.turns.get(taker, 0):
            return
        self.turns[taker] = word.turn
        held = self.held.get(taker) or OrderedDict()
        for id in map(_id, word.done):
            if id in held:
                del held[id]
                self.untold.pop(id, None)
        self._wait_again([(id, held.pop(id)) for id in map(_id, word.back) if id in held], whole=True)
        self.wants.pop(taker, None)
        if word.wants:
            self.wants[taker] = (word.turn, word.wants)

    def dealt(self, dealer: Taker, takers: tuple[Taker, ...], word: Dealt) -> None:
        """Of the dealer, as the words before say who that is."""
        if word.serial <= self.serials.get(dealer, 0):
            return
        self.serials[dealer] = word.serial
        if tuple(word.newest) == takers[-1]:
            self._told(takers, word.known)
        for grant in word.grants:
            taker = (grant.member, grant.number)
            if taker in takers:  # else it has left meanwhile, and the events wait on
                self._granted(taker, grant)

    def _told(self, takers: tuple[Taker, ...], known: list[Known]) -> None:
        new: list[tuple[Id, SharedEvent]] = []
        for told in known:
            one, holder = _unpacked(told.whole), (told.member, told.number)
            if one is None:
                continue
            id = _id(one.event.id)
            if not told.member:
                if id not in self.waiting:
                    new.append((id, one))
            elif holder not in takers or self.turns.get(holder, 0) > told.turn:
                continue  # it may have finished the event
            elif self.held.setdefault(holder, OrderedDict()).get(id) is None:
                self.held[holder][id] = one
            mine = self.waiting.get(id) or (self.held.get(holder) or OrderedDict()).get(id)
            if mine is not None:
                self._everybody_has(mine)
            self.untold.pop(id, None)
        if new:  # they are older than those that came here
            before = [(id, one) for id, one in self.waiting.items() if one.told]
            self.waiting = OrderedDict([*before, *new, *self.waiting.items()])
            self.waiting_bytes += sum(one.size_bytes for _, one in new)
            for _, one in new:
                one.at, one.told = self._place, True

    def _everybody_has(self, one: SharedEvent) -> None:
        one.at, one.told, one.whole = self._place, True, False

    def _granted(self, taker: Taker, grant: Grant) -> None:
        held = self.held.setdefault(taker, OrderedDict())
        bodies = {id: _unpacked(whole) for whole in grant.whole for id in _ids_of(whole)}
        events, lacking, unreadable = list[Event[Any]](), list[Id](), list[Id]()
        for id in map(_id, grant.ids):
            one = held[id] = self._take(id) or bodies.get(id)
            if one is None:
                (unreadable if id in bodies else lacking).append(id)
            else:
                if id in bodies:
                    self.untold.pop(id, None)
                    self._everybody_has(one)
                events.append(one.as_given())
        if self.wants.get(taker, (grant.turn + 1, 0))[0] <= grant.turn:
            del self.wants[taker]
        if taker in self.mine:
            self.mine[taker].given(events, grant.turn)
            if unreadable:
                self.mine[taker].cannot_read(unreadable)
            if lacking:
                self.mine[taker].lacks(lacking)

    def left(self, taker: Taker) -> None:
        self._wait_again(self.held.pop(taker, {}).items(), again=True)
        self.wants.pop(taker, None)
        for known in (self.turns, self.serials, self.joined):
            known.pop(taker, None)

    def _wait_again(
        self, some: Iterable[tuple[Id, SharedEvent | None]], *, again: bool = False, whole: bool = False
    ) -> None:
        for id, one in reversed(list(some)):
            if one is not None:
                one.again, one.whole = one.again or again, one.whole or whole
                self._wait(id, one, first=True)
        self._drop_oldest()

    # The dealer

    def deal(self, dealer: Taker, newest: Taker) -> Dealt:
        """What the dealer says next; ``newest`` is the subscriber that joined last."""
        given: dict[Taker, tuple[list[Id], list[Whole]]] = {taker: ([], []) for taker in self.wants}
        waiting, size, granted = iter(self.waiting.items()), 0, set[Id]()
        hungry = list(self.wants)
        while hungry and size < GRANT_BYTES_MAX:
            for taker in list(hungry):  # one each, in turn
                id, one = next(waiting, (None, None))
                if id is None or one is None:
                    hungry.clear()
                    break
                ids, bodies = given[taker]
                if one.whole:
                    body = _packed(one)
                    if size and size + len(body.batch) > GRANT_BYTES_MAX:
                        hungry.clear()
                        break
                    bodies.append(body)
                    size += len(body.batch)
                ids.append(id)
                granted.add(id)
                if len(ids) >= self.wants[taker][1]:
                    hungry.remove(taker)
        grants = [
            Grant(taker[0], taker[1], self.wants[taker][0], ids, bodies)
            for taker, (ids, bodies) in given.items()
            if ids
        ]
        known = self._tell(granted, size) if self.untold else []
        return Dealt(self.key, dealer[1], self.serials.get(dealer, 0) + 1, grants, known, newest)

    @property
    def has_to_say(self) -> bool:
        return bool(self.untold or (self.wants and self.waiting))

    def _tell(self, granted: set[Id], given_bytes: int) -> list[Known]:
        """What newcomers are told in a word that hands out bodies of ``given_bytes``."""
        holders = {id: taker for taker, items in self.held.items() for id in items}
        known, size = list[Known](), 0
        for id in list(self.untold):
            taker = holders.get(id)
            one = self.waiting.get(id) if taker is None else self.held[taker][id]
            if one is None:  # it is finished
                del self.untold[id]
            elif id not in granted:
                member, number = taker or (0, 0)
                whole = _packed(one)
                size += len(whole.batch)
                if size > KNOWN_BYTES_MAX and (known or given_bytes):
                    break
                known.append(Known(member, number, self.turns.get((member, number), 0), whole))
        return known

    # Beginning anew

    def left_over(self, others: Iterable[Taker], begun: frozenset[Id] = frozenset()) -> list[Event[Any]]:
        """Events that this member has and that none of the others has or can get; ``begun`` have a reader."""
        since = min((self.joined.get(other, 0) for other in others), default=NEVER)
        found = [pair for items in self._everything(self.mine) for pair in items.items()]
        return [one.as_given() for id, one in found if one is not None and one.at < since and id not in begun]

    def clear(self) -> None:
        """Forget everything but who is here."""
        self.waiting.clear()
        self.waiting_bytes = 0
        for known in (self.held, self.wants, self.turns, self.serials, self.joined, self.untold):
            known.clear()

    def validate(self) -> None:
        somewhere = [id for items in self.held.values() for id in items]
        assert len(set(somewhere)) == len(somewhere), "an event is held twice"
        assert not self.waiting.keys() & set(somewhere), "an event waits, and is held"
        assert len(self.waiting) <= SHARED_WAITING_MAX
        assert self.waiting_bytes == sum(one.size_bytes for one in self.waiting.values())


class Shares:
    """All sets, as one member of the safe group knows them."""

    def __init__(self, me: int) -> None:
        self.me = int(me)
        self.takers: dict[str, tuple[Taker, ...]] = {}
        """By set: its subscribers, the one that joined first before the others."""
        self._shares: dict[str, Share] = {}
        self.restored: Callable[[dict[str, tuple[Taker, ...]]], None] = lambda before: None
        """The state was given anew; ``before`` are the sets as they were."""

    # The state of the group

    def snapshot(self) -> bytes:
        return _encode(self.takers)

    def restore(self, state: bytes) -> None:
        before = self.takers
        self.takers = {key: tuple(takers) for key, takers in _decode(state).items()}
        self.restored(before)

    # In the order

    def apply(self, sender: int, word: Joined | Left | Worked | Dealt) -> None:
        if isinstance(word, Left):
            self._left(word.key, (word.member, word.number))
            return
        taker, takers, share = (int(sender), word.number), self.takers.get(word.key, ()), self._shares.get(word.key)
        if isinstance(word, Joined):
            if taker not in takers:
                self.takers[word.key] = (*takers, taker)
                if share is not None:
                    share.join(taker)
        elif share is None or taker not in takers:
            pass
        elif isinstance(word, Worked):
            share.worked(taker, word)
        elif taker == takers[0]:
            share.dealt(taker, takers, word)

    def _left(self, key: str, taker: Taker) -> None:
        takers = tuple(other for other in self.takers.get(key, ()) if other != taker)
        if takers:
            self.takers[key] = takers
        else:
            self.takers.pop(key, None)
        share = self._shares.get(key)
        if share is not None:
            share.left(taker)
            if not takers:  # the member of the last one has taken what it keeps before
                share.clear()

    def give(self, key: str, events: list[Event[Any]], each_bytes: int) -> None:
        """Events that match the set's interest, and about how many bytes each has."""
        share = self._shares.get(key)
        if share is not None and any(taker in share.mine for taker in self.takers.get(key, ())):
            share.put(events, each_bytes)

    # At this member

    def enter(self, key: str, number: int, hand: Hand) -> None:
        """A subscription of this member enters a set; the caller then sends ``Joined``."""
        self._shares.setdefault(key, Share(key)).mine[(self.me, number)] = hand

    def leave(self, key: str, number: int) -> None:
        share = self._shares.get(key)
        if share is not None:
            share.mine.pop((self.me, number), None)
            if not share.mine:
                del self._shares[key]

    def renew(self, key: str, number: int, new: int) -> None:
        """A subscriber of this member goes on as another one."""
        mine = self._shares[key].mine
        mine[(self.me, new)] = mine.pop((self.me, number))

    def left_over(self, key: str, takers: Iterable[Taker], begun: frozenset[Id]) -> list[Event[Any]]:
        """What only this member has of a set with these subscribers."""
        share = self._shares[key]
        return share.left_over([taker for taker in takers if taker not in share.mine], begun)

    def forget(self, key: str) -> None:
        self._shares[key].clear()

    def deal(self, key: str) -> Dealt | None:
        """What this member says as the dealer of a set; None if there is nothing to say, or another one deals."""
        if not self.deals(key):
            return None
        takers = self.takers[key]
        return self._shares[key].deal(takers[0], takers[-1])

    def deals(self, key: str) -> bool:
        """Whether this member is the dealer of a set, and has something to say."""
        share, takers = self._shares.get(key), self.takers.get(key)
        return bool(share and takers and takers[0] in share.mine and share.has_to_say)

    def is_current(self, word: Dealt) -> bool:
        """Whether this member still has to bring its word as the dealer into the order."""
        taker, takers, share = (self.me, word.number), self.takers.get(word.key), self._shares.get(word.key)
        return bool(share and takers and takers[0] == taker and share.serials.get(taker, 0) < word.serial)

    def is_mine(self, key: str, number: int) -> bool:
        return key in self._shares and (self.me, number) in self._shares[key].mine

    def waiting(self, key: str) -> int:
        share = self._shares.get(key)
        return 0 if share is None else len(share.waiting)

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

    def validate(self) -> None:
        for share in self._shares.values():
            share.validate()


def _id(id: MessageId | tuple[int, int]) -> Id:
    return (int(id[0]), int(id[1]))


def _packed(one: SharedEvent) -> Whole:
    """An event with its body, as a batch of its own."""
    event = one.event
    body = event.body
    kind, encoded = (body.kind, body.encoded) if isinstance(body, Opaque) else encode_body(body)
    gathering = Gathering(int(event.sender), LONGEST_USUAL)
    extra = EventExtra(dict(event.headers), None if event.parent is None else _id(event.parent))
    gathering.add(event.topic, kind, encoded, event.time, extra, event.id[1])
    (batch,) = gathering.close()
    return Whole(one.again, encode_batch(batch))


def _unpacked(whole: Whole) -> SharedEvent | None:
    try:
        ((event,),) = [section.events() for section in Arrived(decode_batch(whole.batch)).sections()]
    except (MalformedFrame, ValueError):  # of another release of a program, perhaps
        return None
    return SharedEvent(event, 0, len(whole.batch), again=whole.again, whole=True)


def _ids_of(whole: Whole) -> list[Id]:
    """The identity of the event, also if its body cannot be decoded here."""
    try:
        batch = decode_batch(whole.batch)
    except MalformedFrame:
        return []
    return [(batch.sender, batch.numbers[0] if batch.numbers else batch.first)]
