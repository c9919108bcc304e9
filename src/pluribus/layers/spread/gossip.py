"""Gossip: a message is passed on by chance, and what chance left out is found by comparing digests.

Theory of operation
-------------------
A member that hears a message for the first time sends it once to ``fanout`` others, picked at random. No member waits
for another, none is more important, and a dead member fails to do only its own part. The rest is chance: if each of n
members tells f others, a member hears a message with the probability p that solves p = 1 - exp(-f p); with f = ln n +
c, all of them do with probability exp(-exp(-c)) (Kermarrec, Massoulié and Ganesh 2003). ``reach`` computes both.

Digests make it certain. Every member keeps, for each stream, how far it knows each member to have it. As long as some
member is behind, it compares this now and then with another member, if possible one that is behind. The one that has
more sends what the other lacks, and afterwards both know what either knew. When everybody is known to have everything,
nothing more is sent, and the messages are forgotten. A missing message is noticed sooner when a later one comes: then a
digest goes to the member that sent the later one.

Promises, to members that live: a message that one of them sends or passes up is passed up by all, once, in its origin's
order. Live: two members of which one has what the other lacks compare digests sooner or later, because partners are
picked at random, and members that are behind first.
"""

from __future__ import annotations

from math import ceil, exp, log
from typing import Any

from ...core.frame import Frame
from ...core.ids import ALL
from ...core.ports import Timer
from ...stack.layer import Layer
from .lists import Listed, Lists
from .words import DIGEST_STREAMS_MAX, Digest, Known, Rumour

DIGEST_S = 0.05
DIGEST_S_MAX = 0.8
GAP_S = 0.005
ANSWER_FRAMES_MAX = 64
STREAMS_MAX = 4_096
EXTRA = 2
"""How many more than ln n a member tells, unless it is told how many."""

TaleKey = tuple[int, int, int]
"""List, index of the origin, and the origin's number of the stream."""


def fanout_for(members: int) -> int:
    """A fanout with which all members hear a message with probability exp(-exp(-EXTRA)), 87 %, before any digest."""
    return ceil(log(max(members, 2))) + EXTRA


def reach(members: int, fanout: float) -> tuple[float, float]:
    """The probability that one member hears a message, and that all do, if nobody dies and nothing is lost."""
    heard = 1.0
    for _ in range(200):
        heard = 1 - exp(-fanout * heard)
    return heard, exp(-members * exp(-fanout))


class Tale:
    """The messages of one origin on one list."""

    __slots__ = ("frames", "key", "known", "listed", "next")

    def __init__(self, key: TaleKey, listed: Listed) -> None:
        self.key = key
        self.listed = listed
        self.frames: dict[int, Frame] = {}
        self.next = 0
        self.known = [0] * len(listed)
        """By member: it has the stream at least up to here."""

    @property
    def end(self) -> int:
        """How far any member is known to have the stream."""
        return max(self.known)

    def learn(self, next: list[int], me: int) -> None:
        """Take in what another member knows, except about this member."""
        self.known = [max(one, other) for one, other in zip(self.known, next, strict=True)]
        self.known[me] = self.next


class Gossip:
    """Rumours and digests along lists that views agreed on."""

    def __init__(self, layer: Layer, lists: Lists, fanout: int = 0) -> None:
        self._layer = layer
        self._lists = lists
        self._fanout = fanout
        self._tales: dict[TaleKey, Tale] = {}
        self._own: dict[int, Tale] = {}
        self._opened = 0
        self._suspected: set[int] = set()
        self._pace_s = DIGEST_S
        self._timer: Timer | None = None
        self.told = 0
        self.heard_again = 0
        self.digests = 0
        self.repaired = 0

    @property
    def _me(self) -> int:
        return self._layer.node.me

    # Rumours

    def spread(self, frame: Frame, listed: Listed) -> None:
        tale = self._own.get(listed.identity)
        if tale is None:
            self._opened += 1
            key = (listed.identity, listed.places[self._me], self._opened)
            tale = self._own[listed.identity] = self._tales[key] = Tale(key, listed)
        number = tale.next
        tale.frames[number] = frame
        tale.next = tale.known[tale.key[1]] = number + 1
        self._tell_some(tale, number, but=self._me)
        self._compare_later(DIGEST_S)

    def _tell_some(self, tale: Tale, number: int, but: int) -> None:
        members = tale.listed.members
        origin = members[tale.key[1]]
        others = [member for member in members if member not in (self._me, origin, but)]
        living = [member for member in others if member not in self._suspected]
        fanout = self._fanout or fanout_for(len(members))
        for member in self._layer.ports.random.sample(living, min(fanout, len(living))):
            self.told += 1
            self._tell(tale, number, member, spent=False)

    def _tell(self, tale: Tale, number: int, member: int, *, spent: bool) -> None:
        frame = tale.frames[number].copy()
        frame.sender, frame.to = self._me, member
        frame.headers.append(Rumour(*tale.key, number, spent))
        self._layer.pass_down(frame)

    def rumour(self, frame: Frame, word: Rumour) -> None:
        listed = self._lists.known(word.along)
        if listed is None:
            self._lists.keep_early(frame)
            return
        tale = self._tale(listed, word.origin, word.stream)
        if tale is None:
            return
        teller = frame.sender
        if word.number < tale.next or word.number in tale.frames:
            self.heard_again += 1
            return
        frame.headers.pop()
        tale.frames[word.number] = frame
        if not word.spent:
            self._tell_some(tale, word.number, but=teller)
        self._go_on(tale)
        if word.number >= tale.next:  # something before it is missing, and the teller may have it
            self._layer.after(GAP_S, lambda: self._ask_about_gap(tale, word.number, teller))
        self._compare_later(DIGEST_S)

    def _tale(self, listed: Listed, origin: int, stream: int) -> Tale | None:
        key = (listed.identity, origin, stream)
        tale = self._tales.get(key)
        if tale is None:
            if origin >= len(listed) or self._me not in listed.places or len(self._tales) >= STREAMS_MAX:
                return None
            if listed.members[origin] == self._me:
                return None
            tale = self._tales[key] = Tale(key, listed)
        return tale

    def _go_on(self, tale: Tale) -> None:
        origin = tale.listed.members[tale.key[1]]
        me = tale.listed.places[self._me]
        while tale.next in tale.frames:
            frame = tale.frames[tale.next].copy()
            tale.next += 1
            tale.known[me] = tale.next
            frame.sender, frame.to = origin, ALL
            self._layer.pass_up(frame)

    def _ask_about_gap(self, tale: Tale, number: int, teller: int) -> None:
        if number >= tale.next and self._tales.get(tale.key) is tale:
            self._send_digest(tale.listed, [tale], teller, answer=False)

    # Digests

    def _compare_later(self, within_s: float) -> None:
        self._pace_s = min(self._pace_s, within_s)
        if self._timer is None:
            self._timer = self._layer.after(self._pace_s * (0.5 + self._layer.ports.random.random()), self._compare)

    def _compare(self) -> None:
        """Send a digest for each list with messages that some member is not known to have."""
        self._timer = None
        unsettled: dict[int, list[Tale]] = {}
        for tale in self._tales.values():
            self._forget(tale)
            if self._behind(tale):
                unsettled.setdefault(tale.listed.identity, []).append(tale)
        for tales in unsettled.values():
            behind = self._behind(tales[0])
            listed = tales[0].listed
            whom = self._layer.ports.random.choice(behind)
            self._send_digest(listed, tales[:DIGEST_STREAMS_MAX], listed.members[whom], answer=False)
        if unsettled:
            self._pace_s = min(self._pace_s * 1.5, DIGEST_S_MAX)
            self._compare_later(self._pace_s)
        else:
            self._pace_s = DIGEST_S

    def _behind(self, tale: Tale) -> list[int]:
        """Members that live and may lack something; all others, if it is this member that lacks something."""
        listed, end = tale.listed, tale.end
        me = listed.places[self._me]
        living = [place for place, member in enumerate(listed.members) if place != me and member not in self._suspected]
        if tale.next < end:
            return [place for place in living if tale.known[place] > tale.next] or living
        return [place for place in living if tale.known[place] < end]

    def _forget(self, tale: Tale) -> None:
        """Forget messages that every living member is known to have."""
        members = tale.listed.members
        everywhere = min(known for place, known in enumerate(tale.known) if members[place] not in self._suspected)
        # Of a dead origin also what came after a message that nobody has: it will never be due.
        lost = members[tale.key[1]] in self._suspected and everywhere == tale.end
        for number in [number for number in tale.frames if number < min(everywhere, tale.next) or lost]:
            del tale.frames[number]

    def _send_digest(self, listed: Listed, tales: list[Tale], member: int, *, answer: bool) -> None:
        self.digests += 1
        streams = [Known(tale.key[1], tale.key[2], tale.known) for tale in tales]
        word = Digest(listed.identity, streams, answer)
        self._layer.pass_down(Frame(sender=self._me, to=member, headers=[word]))

    def digest(self, member: int, word: Digest) -> None:
        listed = self._lists.known(word.along)
        if listed is None or member not in listed.places or self._me not in listed.places:
            return
        theirs = listed.places[member]
        to_answer: list[Tale] = []
        for known in word.streams:
            if len(known.next) != len(listed):
                continue
            tale = self._tales.get((word.along, known.origin, known.stream))
            tale = tale or self._tale(listed, known.origin, known.stream)
            if tale is None:
                continue
            has = known.next[theirs]
            news = any(one < other for one, other in zip(known.next, tale.known, strict=True))
            tale.learn(known.next, listed.places[self._me])
            for number in range(has, min(tale.next, has + ANSWER_FRAMES_MAX)):
                if number in tale.frames:
                    self.repaired += 1
                    self._tell(tale, number, member, spent=True)
            if news or tale.next < tale.end:
                to_answer.append(tale)
        if to_answer and not word.answer:
            self._send_digest(listed, to_answer, member, answer=True)
        self._compare_later(DIGEST_S)

    # The world

    def suspected(self, member: int) -> None:
        self._suspected.add(member)

    def unsuspected(self, member: int) -> None:
        self._suspected.discard(member)
        if self._tales:
            self._compare_later(DIGEST_S)

    def forget_lists(self) -> None:
        """Forget rumours along lists that are no longer known."""
        for key in [key for key in self._tales if self._lists.known(key[0]) is None]:
            del self._tales[key]
            self._own.pop(key[0], None)

    def reset(self) -> None:
        """A new view; the layer above settles everything before it."""
        self._tales.clear()
        self._own.clear()

    def stats(self) -> dict[str, Any]:
        tales = self._tales.values()
        return {
            "kept": sum(len(tale.frames) for tale in tales),
            "told": self.told,
            "heard_again": self.heard_again,
            "digests": self.digests,
            "repaired": self.repaired,
        }

    def validate(self) -> None:
        assert len(self._tales) <= STREAMS_MAX + len(self._own)
        for tale in self._tales.values():
            assert all(number < tale.next or number > tale.next for number in tale.frames)
            assert tale.known[tale.listed.places[self._me]] == tale.next
