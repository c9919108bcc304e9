"""Crowd: membership and messages for groups that are too large for agreed views.

Theory of operation
-------------------
No member knows all others. Each has a partial view (``partial``) of some *neighbours*, which it renews by exchanging a
few of them with another member. Newcomers become known by random walks, members that leave or die drop out of the
views, and no agreement is needed. A message is sent to ``fanout`` neighbours, and each member that hears it for the
first time sends it to as many of its own. Members that chance left out are found by digests: twice a second a member
and a neighbour compare which of everybody's latest messages they have, and each sends what the other lacks (``tales``).

Promises: a member that stays gets every message that is sent while it is there: with the probability of gossip at once,
and with certainty after some digests, as long as the overlay is connected and some member keeps the message (20
seconds, or 16 MB). A message is passed up once, in its origin's order. Messages that nobody keeps any more are counted
as ``lost``.

It promises no agreed views, and so no order between origins. A member passes up messages of the groups that it has
joined; messages of other groups are relayed all the same.

Flow: nobody acknowledges, so a sender is bounded by time: at most one window in the time that a message needs to reach
everybody. Then ``send`` waits.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from ...core.errors import BadStack
from ...core.frame import Frame
from ...core.ids import ALL, MemberId
from ...core.limits import LOGGED_PEERS_MAX, WINDOW_BYTES_MAX
from ...core.ports import Address
from ...stack.events import Addresses, Credit, Event, JoinGroup, LeaveGroup, Members
from ...stack.layer import Layer
from .crowd_words import (
    POINTERS_PER_WORD_MAX,
    STORIES_PER_WORD_MAX,
    Enter,
    Left,
    Meet,
    Say,
    Stories,
    Story,
    Swap,
    Walk,
)
from .partial import PartialView
from .tales import Tales, Told

log = logging.getLogger(__name__)

NEIGHBOURS = 24
SWAPPED = 8
SWAP_S = 1.0
FANOUT = 8
WALK_STEPS = 5
SHOWN_EVERY = 10
"""The layers above are shown the neighbours after so many exchanges; while there are few, at every change."""
LONELY = 3
"""A member with fewer neighbours than this asks to be let in again."""
DIGEST_S = 0.5
GAP_S = 0.02
FRESH_S = 5.0
"""A newcomer does not ask for messages from before it came; it counts as new for so long."""
ANSWER_FRAMES_MAX = 64
ACQUAINTANCES_MAX = 64
SETTLE_S = 0.25
FRAME_CHARGE_BYTES = 768


class Crowd(Layer):
    """partial views and gossip, for very many members"""

    name = "crowd"
    selective = True
    requires = frozenset({"datagrams"})
    provides = frozenset({"flow", "members", "spreading"})
    headers = (Enter, Walk, Meet, Swap, Left, Say, Stories)

    def __init__(self, neighbours: int = NEIGHBOURS, fanout: int = FANOUT, swap_s: float = SWAP_S) -> None:
        if not 2 <= neighbours <= POINTERS_PER_WORD_MAX or fanout < 1:
            most = POINTERS_PER_WORD_MAX
            raise BadStack(f"crowd(neighbours={neighbours!r}, fanout={fanout!r}): use 2 to {most}, and 1 or more")
        self._neighbours = neighbours
        self._fanout = fanout
        self._swap_s = swap_s
        self._tales = Tales()
        self._groups: dict[int, JoinGroup] = {}
        self._acquaintances: dict[int, Address] = {}
        self._asked: tuple[int, Address] | None = None
        self._started_at = 0.0
        self._compare_at = 0.0
        self._swaps = 0
        self._shown: tuple[int, ...] = ()
        self._said = 0
        self._under_way: deque[tuple[float, int]] = deque()
        self._under_way_bytes = 0
        self._credit_later = False
        self._moved = False
        self._refused: set[int] = set()
        self.unanswered = 0
        self.told = 0
        self.heard_again = 0
        self.repaired = 0

    def options(self) -> dict[str, Any]:
        return {}

    # Neighbours

    def start(self) -> None:
        self.view = PartialView(self.node.me, self._neighbours, self.ports.random)
        self._started_at = self.ports.clock.now()
        self._shown = (self.node.me,)
        self._moved = True
        self._ask_in()
        self.after(self._swap_s * self.ports.random.random(), self._swap)
        self._compare_in(DIGEST_S * self.ports.random.random())

    def stop(self) -> None:
        for member in self.view.members:
            self._say(member, Left())

    def _say(self, member: int, word: Any) -> None:
        self.pass_down(Frame(sender=self.node.me, to=member, headers=[word]))

    def _ask_in(self) -> None:
        self.pass_down(Frame(sender=self.node.me, headers=[Enter(self.ports.engine.address, self.node.fingerprint)]))

    def _entered(self, member: int, word: Enter) -> None:
        """A newcomer: send out some pointers to it. Where the medium reaches all, only some members answer."""
        if word.fingerprint != self.node.fingerprint:
            if member not in self._refused and len(self._refused) < LOGGED_PEERS_MAX:  # it asks again and again
                self._refused.add(member)
                log.warning("%s has another stack and is not let in (said once)", MemberId(member))
            return
        alone = not getattr(self.ports.engine, "broadcasts", False)
        if not alone and self.view.full and self.ports.random.random() > LONELY / len(self.view):
            return
        self.view.heard(member)
        self._remember(member, word.place)
        helpers = self.view.some(self._neighbours if alone else LONELY, but=[member])
        for helper in helpers:
            self._say(helper, Walk(member, word.place, WALK_STEPS))
        self._meet(member, word.place)

    def _walked(self, word: Walk) -> None:
        if word.newcomer == self.node.me:
            return
        onward = self.view.some(1, but=[word.newcomer]) if word.steps else []
        if onward:
            self._say(onward[0], Walk(word.newcomer, word.place, word.steps - 1))
            return
        self._remember(word.newcomer, word.place)
        self._meet(word.newcomer, word.place)

    def _meet(self, newcomer: int, place: Address) -> None:
        pointer = self.view.replace_one(newcomer, place)
        self._moved = True
        self._say(newcomer, Meet([pointer or (self.node.me, self.ports.engine.address, 0)]))

    def _met(self, word: Meet) -> None:
        for member, place, age in word.pointers:
            if not self.view.full and member != self.node.me:
                self.view.add(member, place, age)
                self._moved = True

    def _swap(self) -> None:
        """Exchange neighbours with the oldest neighbour, which is forgotten if it does not answer."""
        self.after(self._swap_s * (0.9 + 0.2 * self.ports.random.random()), self._swap)
        if self._asked is not None:
            self.unanswered += 1
            self.view.bury(self._asked[0])
            self._asked = None
        begun = self.view.begin_swap(SWAPPED, self.ports.engine.address)
        if begun is not None:
            partner, place, pointers = begun
            self._asked = (partner, place)
            self._remember(partner, place)
            self._say(partner, Swap(pointers, answer=False))
        if len(self.view) < LONELY:
            self._ask_in()
        self._swaps += 1
        if not self.view.full or self._swaps % SHOWN_EVERY == 0:
            self._show_if_changed()

    def _swapped(self, member: int, word: Swap) -> None:
        self.view.heard(member)
        if not word.answer:
            own = next((place for known, place, _ in word.pointers if known == member), None)
            if own is not None:
                self._remember(member, own)
            self._say(member, Swap(self.view.answer_swap(SWAPPED, word.pointers), answer=True))
        elif self._asked is not None and self._asked[0] == member:
            self.view.end_swap(*self._asked, word.pointers)
            self._asked = None
            if not self.view.full:
                self._show_if_changed()
        self._moved = True

    def _remember(self, member: int, place: Address) -> None:
        """Remember the address of a member that is no neighbour, as long as it may need an answer."""
        self._acquaintances.pop(member, None)
        while len(self._acquaintances) >= ACQUAINTANCES_MAX:
            del self._acquaintances[next(iter(self._acquaintances))]
        self._acquaintances[member] = place
        self._moved = True

    def settle(self) -> None:
        if self._moved:
            self._moved = False
            self.tell_down(Addresses({**self._acquaintances, **self.view.addresses}))

    def _show_if_changed(self) -> None:
        """Show the layers above the neighbours as the members of every group: in a large crowd a sample, which changes
        with time."""
        asked = [self._asked[0]] if self._asked is not None else []
        shown = (self.node.me, *sorted({*self.view.members, *asked}))
        if shown != self._shown:
            self._shown = shown
            for group in (0, *self._groups):
                self._show(group)

    def _show(self, group: int) -> None:
        names = dict.fromkeys(self._shown, "") | {self.node.me: self.node.name}
        self.tell_up(Members(group, self._shown, names))
        for member in self._shown[1:] if group else ():
            self.tell_up(Credit(group, member, WINDOW_BYTES_MAX))

    # Messages

    def down(self, frame: Frame) -> None:
        if frame.to != ALL or not frame.count:
            self.pass_down(frame)
            return
        me, now = self.node.me, self.ports.clock.now()
        number = self._said
        self._said += 1
        if self._tales.get(me) is None:
            self._tales.open(me, 0, 0, now)
        self._tales.keep(me, number, frame, now)
        self._tales.learn_low(me, self._tales.oldest(me))
        for _ in self._tales.due(me, now):
            pass
        self._tell_some(me, number, frame, but=me)
        join = self._groups.get(frame.group)
        if join is not None and join.own:
            echo = frame.copy()
            self.stimulus(lambda: self.pass_up(echo))
        self._charge(frame.size + FRAME_CHARGE_BYTES, now)

    def _tell_some(self, origin: int, number: int, frame: Frame, but: int) -> None:
        for member in self.view.some(self._fanout, but=(origin, but)):
            self.told += 1
            self._tell(origin, number, frame, member, spent=False)

    def _tell(self, origin: int, number: int, frame: Frame, member: int, *, spent: bool) -> None:
        copy = frame.copy()
        copy.sender, copy.to = self.node.me, member
        told = self._tales.get(origin)
        copy.headers.append(Say(origin, number, told.low if told is not None else number, spent))
        self.pass_down(copy)

    def _heard(self, frame: Frame, word: Say) -> None:
        origin, teller, now = word.origin, frame.sender, self.ports.clock.now()
        if origin == self.node.me:
            return
        told = self._tales.get(origin)
        if told is None:
            told = self._tales.open(origin, word.number if self._fresh(now) else word.low, word.low, now)
        frame.headers.pop()
        self._tales.learn_low(origin, word.low)
        if not self._tales.keep(origin, word.number, frame, now):
            self.heard_again += 1
            return
        if not word.spent:
            self._tell_some(origin, word.number, frame, but=teller)
        self._pass_due(origin, now)
        if word.number >= told.next:
            self.after(GAP_S, lambda: self._mind_gap(origin, told, teller))

    def _fresh(self, now: float) -> bool:
        return now - self._started_at < FRESH_S

    def _pass_due(self, origin: int, now: float) -> None:
        for kept in self._tales.due(origin, now):
            if kept.group in self._groups:
                frame = kept.copy()
                frame.sender, frame.to = origin, ALL
                self.pass_up(frame)

    def _mind_gap(self, origin: int, told: Told, teller: int) -> None:
        if self._tales.get(origin) is told and self._tales.missing(origin):
            self._say(teller, Stories([Story(origin, told.low, told.next)], answer=True))

    # Digests

    def _compare_in(self, delay_s: float) -> None:
        self._compare_at = self.ports.clock.now() + delay_s
        self.after(delay_s, self._compare)

    def _compare(self) -> None:
        now = self.ports.clock.now()
        late_s = now - self._compare_at
        if late_s > DIGEST_S:
            self._tales.excuse(late_s, now)
        self._compare_in(DIGEST_S * (0.8 + 0.4 * self.ports.random.random()))
        self._tales.forget(now)
        for origin in self._tales.give_up(now):
            self._pass_due(origin, now)
        stories = self._tales.stories(now)
        partner = self.view.some(1)
        if stories and partner:
            if len(stories) > STORIES_PER_WORD_MAX:
                stories = self.ports.random.sample(stories, STORIES_PER_WORD_MAX)
            self._say(partner[0], Stories(stories, answer=False))

    def _compared(self, member: int, word: Stories) -> None:
        """Send messages that the other lacks; tell it which we lack, and of origins that it has not heard of."""
        now = self.ports.clock.now()
        behind: list[Story] = []
        for story in word.stories:
            told = self._tales.get(story.origin)
            if told is None:
                if story.origin == self.node.me:
                    continue
                first = story.next if self._fresh(now) else story.low
                told = self._tales.open(story.origin, first, story.low, now)
            if story.origin != self.node.me:
                self._tales.learn_low(story.origin, story.low)
                self._pass_due(story.origin, now)
            for number, frame in self._tales.between(story.origin, story.next, ANSWER_FRAMES_MAX):
                self.repaired += 1
                self._tell(story.origin, number, frame, member, spent=True)
            if story.next > told.next:
                behind.append(Story(story.origin, told.low, told.next))
        if not word.answer:
            listed = {story.origin for story in word.stories}
            behind += [story for story in self._tales.stories(now) if story.origin not in listed]
        if behind:
            self._say(member, Stories(behind[:STORIES_PER_WORD_MAX], answer=True))

    # Flow

    def _charge(self, size: int, now: float) -> None:
        self._under_way.append((now, size))
        self._under_way_bytes += size
        self._tell_credit()
        if not self._credit_later:
            self._credit_later = True
            self.after(SETTLE_S, self._settle_charges)

    def _settle_charges(self) -> None:
        self._credit_later = False
        now = self.ports.clock.now()
        while self._under_way and now - self._under_way[0][0] >= SETTLE_S * 0.999:
            self._under_way_bytes -= self._under_way.popleft()[1]
        self._tell_credit()
        if self._under_way:
            self._credit_later = True
            self.after(max(self._under_way[0][0] + SETTLE_S - now, 0.001), self._settle_charges)

    def _tell_credit(self) -> None:
        for group in self._groups:
            self.tell_up(Credit(group, ALL, WINDOW_BYTES_MAX - self._under_way_bytes))

    # The stack

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        match header:
            case Say():
                self._heard(frame, header)
            case Stories():
                self._compared(frame.sender, header)
            case Swap():
                self._swapped(frame.sender, header)
            case Walk():
                self._walked(header)
            case Meet():
                self._met(header)
            case Enter():
                self._entered(frame.sender, header)
            case Left():
                self._moved = self.view.bury(frame.sender) or self._moved
            case _:
                self.pass_up(frame)

    def event_down(self, event: Event) -> None:
        if isinstance(event, JoinGroup):
            self._groups[event.group] = event
            self._show(event.group)
            self._tell_credit()
        elif isinstance(event, LeaveGroup):
            self._groups.pop(event.group, None)
        else:
            self.tell_down(event)

    def stats(self) -> dict[str, Any]:
        return {
            "neighbours": len(self.view),
            "unanswered": self.unanswered,
            "kept": self._tales.kept,
            "told": self.told,
            "heard_again": self.heard_again,
            "repaired": self.repaired,
            "lost": self._tales.lost,
        }

    def validate(self) -> None:
        self.view.validate()
        self._tales.validate()
        assert len(self._acquaintances) <= ACQUAINTANCES_MAX
        assert self._under_way_bytes == sum(size for _, size in self._under_way)
