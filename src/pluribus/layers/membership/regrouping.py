"""Groups that change inside a view of the bus: a member comes or goes, and only that group waits for it.

Theory of operation
-------------------
A member that wants to be in other groups says so to the eldest of the view, repeatedly, until it is so. The eldest
orders the changes: on its control stream it tells all members the groups' new rosters. Every old and new member of such
a group stops sending to it. When all members of the group's old view have what it sent there, it says, on its own
control stream, where its stream ended; there the stream begins in the new view. A member that has heard this of all of
them shows the new view of the group and goes on sending. Frames carry the stamp of the group's view; a frame of a later
view, from a member that was faster, waits.

So a change costs its group one round on the control streams, and one more for members that have just sent something. It
costs other groups nothing. It is as clean a cut as a view of the bus: members that pass from one view of a group to the
next together delivered the same messages in it. That holds wherever the bus breaks apart meanwhile, because nobody is
shown the new view before everybody has everything of the old one.

If the view of the bus changes meanwhile: control streams are part of its cut. If any survivor has shown a new view of a
group, all survivors have heard everything that it had heard, and show that view too before they leave the bus's view.
If no survivor has shown it, nobody has sent anything in it; the change is forgotten, and the next view of the bus has
the groups that its members wish.

A group has one change under way at a time; those of different groups do not wait for each other.
"""

from __future__ import annotations

import logging
from collections import deque

from ...core.events import JoinRefused
from ...core.frame import Frame
from ...core.ids import ALL, MemberId
from ...core.ports import Timer
from ...stack.events import CollectEnds, Confirm, GroupBlocked, GroupRefused, ReachGroup, Regroup
from .state import REPEAT_S, State
from .words import (
    FIRST_NUMBER,
    REGROUPS_MAX,
    ROSTERS_PER_FRAME_MAX,
    Ends,
    GroupWishes,
    NewRosters,
    Otherwise,
    Proposal,
    Roster,
    Wish,
    stamp_of,
)

CONTROL = 0
ASK_S_MIN = 0.005
"""A member asks at most so often: wishes that come within this time are sent together."""
ASK_S_MAX = 1.0
KEYED = "key:"
"""The beginning of the word that stands for a group's key in its promises."""

log = logging.getLogger(__name__)


def mismatch(has: str, asked: str) -> str:
    """How the promises that a member asks for differ from the group's. Keys are not shown."""
    words = [[word for word in promises.split() if not word.startswith(KEYED)] for promises in (has, asked)]
    if words[0] == words[1]:
        if KEYED not in has or KEYED not in asked:
            return "has a key, which was not given" if KEYED in has else "has no key, and one was given"
        return "has another key than the one that was given"
    return f"is open with {' '.join(words[0])!r}, not with {' '.join(words[1])!r}"


class Change:
    """One group on its way to its next view."""

    __slots__ = ("before", "end", "number", "reaching", "roster", "told")

    def __init__(self, number: int, before: list[int], roster: Roster) -> None:
        self.number = number
        self.before = before
        self.roster = roster
        self.told = False
        """This member sends no more, and has said, or will say, where its stream ends."""
        self.end = 0
        self.reaching = False
        """Every member has said where its stream ends."""

    @property
    def participants(self) -> list[int]:
        return [*self.before, *(member for member in self.roster.members if member not in self.before)]


class Regrouping(State):
    """The part of ``Membership`` that changes groups while the view lasts."""

    def __init__(self, founders: int = 1) -> None:
        super().__init__(founders)
        self._changing: dict[int, deque[Change]] = {}
        self._announced: dict[tuple[int, int], dict[int, int]] = {}
        """By number and group: the ends that were told, by sender."""
        self._ending: dict[int, list[Change]] = {}
        """By group: changes that wait until everybody has what this member sent."""
        self._regroups = 0
        self._heard: dict[int, tuple[int, dict[int, Wish]]] = {}
        """At the eldest: what each member said last that it wants."""
        self._refusals: set[tuple[int, int, str]] = set()
        """At the eldest: members that were refused, and told so."""
        self._serial = 0
        self._ask: Timer | None = None
        self._ask_s = REPEAT_S
        self._asked_at = -ASK_S_MIN
        self._wanted = False
        """At the eldest: wishes of some member may not be fulfilled yet."""
        self.regroups = 0

    def _begin_view(self, view: Proposal) -> None:
        """The rosters are what the view says; every change inside the old view is settled or forgotten."""
        for group in self._changing:
            self.tell_up(GroupBlocked(group, False))
        self._changing.clear()
        self._announced.clear()
        self._ending.clear()
        self._heard.clear()
        self._refusals.clear()
        self._regroups = 0
        self._settle_wishes()

    # Wanting

    def _settle_wishes(self) -> None:
        """Which of this member's wishes are not fulfilled yet. A group that was left is wanted again only when it has
        been shown without this member: ``group.dispatch`` waits for that."""
        me = self.node.me
        shown = {group for group, roster in self._rosters.items() if me in roster.members}
        self._asked_for = frozenset(shown ^ self._wishes.keys())

    def _wishes_changed(self) -> None:
        self._settle_wishes()
        self._ask_s = REPEAT_S
        wait_s = self._asked_at + ASK_S_MIN - self.ports.clock.now()
        if wait_s <= 0:
            self._ask_for_groups()
        elif self._asked_for:
            self._ask_later(wait_s)

    def _ask_later(self, delay_s: float) -> None:
        if self._ask is not None:
            self._ask.cancel()
        self._ask = self.after(delay_s, self._ask_for_groups)

    def _ask_for_groups(self) -> None:
        if not self._asked_for:
            return
        self._asked_at = self.ports.clock.now()
        self._ask_later(self._ask_s)
        self._ask_s = min(self._ask_s * 2, ASK_S_MAX)
        if not self._flushing and not self._just_started():
            self._serial += 1
            wanted = [self._wishes[group] for group in sorted(self._wishes)]
            self._say_or_do(self._members[0], GroupWishes(self._view.ballot, self._serial, wanted))

    def _just_started(self) -> bool:
        """True while a new member looks for others: an opened group should show them, so opening waits."""
        return self._view.ballot[0] == FIRST_NUMBER and self.ports.clock.now() < self._not_before

    def _refused(self, eldest: int, answer: Otherwise) -> None:
        wish = self._wishes.get(answer.group)
        if eldest == self._members[0] and wish is not None and wish.promises != answer.promises:
            reason = f"{mismatch(answer.promises, wish.promises)}: ask for the same, or use another name"
            self.tell_up(GroupRefused(answer.group, reason))

    # Ordering, at the eldest

    def _hear_wishes(self, member: int, asked: GroupWishes) -> None:
        if asked.view != self._view.ballot or self._members[0] != self.node.me or member not in self._members:
            return
        if asked.serial > self._heard.get(member, (0, {}))[0]:
            self._heard[member] = (asked.serial, {wish.group: wish for wish in asked.wishes})
        self._wanted = self.unsettled = True

    def settle(self) -> None:
        self.unsettled = False
        if self._wanted:
            self._wanted = False
            self._order_changes()

    def _order_changes(self) -> None:
        """Order the changes that members want, of groups that are not changing just now."""
        if self._flushing or self._regroups >= REGROUPS_MAX - 1:
            return
        wanted: dict[int, Roster] = {}
        for member in self._members:
            if member in self._heard:
                self._apply_wishes(member, self._heard[member][1], wanted)
        changed = [wanted[group] for group in sorted(wanted) if wanted[group] != self._rosters.get(group)]
        for at in range(0, len(changed), ROSTERS_PER_FRAME_MAX):
            self._regroups += 1
            self._cast(NewRosters(self._regroups, changed[at : at + ROSTERS_PER_FRAME_MAX]))
        if self._regroups >= REGROUPS_MAX - 1:
            self._look_soon()

    def _apply_wishes(self, member: int, wishes: dict[int, Wish], wanted: dict[int, Roster]) -> None:
        for group, roster in self._rosters.items():
            if member in roster.members and group not in wishes and group not in self._changing:
                now = wanted.setdefault(group, Roster(group, roster.name, roster.promises, list(roster.members)))
                now.members.remove(member)
        for group, wish in wishes.items():
            if group in self._changing:
                continue
            known = wanted.get(group) or self._rosters.get(group)
            if known is None or not known.members:
                wanted[group] = Roster(group, wish.name, wish.promises, [member])
            elif member not in known.members:
                if known.promises != wish.promises:
                    self._say_or_do(member, Otherwise(group, known.promises))
                    self._tell_refused(member, wish, known)
                    continue
                wanted[group] = Roster(group, known.name, known.promises, [*known.members, member])

    def _tell_refused(self, member: int, wish: Wish, known: Roster) -> None:
        """To the application here, once in a view: the other side is told by ``Otherwise``."""
        if (member, wish.group, wish.promises) in self._refusals:
            return
        self._refusals.add((member, wish.group, wish.promises))
        name = dict(zip(self._view.members, self._view.names, strict=True)).get(member, "")
        reason = f"the group {mismatch(known.promises, wish.promises)}"
        log.warning("%s was not let into group %r: %s", MemberId(member), wish.name, reason)
        self.tell_up(JoinRefused(MemberId(member), name, wish.name, reason))

    def _cast(self, header: NewRosters | Ends) -> None:
        self.pass_down(Frame(sender=self.node.me, to=ALL, group=CONTROL, count=1, headers=[header]))

    # Changing

    def _new_rosters(self, eldest: int, change: NewRosters) -> None:
        if eldest != self._members[0]:
            return
        begun = []
        for roster in change.rosters:
            under_way = self._changing.setdefault(roster.group, deque())
            known = under_way[-1].roster if under_way else self._rosters.get(roster.group)
            under_way.append(Change(change.number, known.members if known is not None else [], roster))
            if len(under_way) == 1:
                begun.append(under_way[0])
        self._begin(begun)

    def _begin(self, begun: list[Change]) -> None:
        self._tell_ends(begun)
        for change in begun:
            self._progress(change)

    def _begin_early(self) -> None:
        """Begin changes that the eldest ordered in this view before this member had entered it."""
        self._begin([under_way[0] for under_way in self._changing.values() if not under_way[0].told])

    def _tell_ends(self, begun: list[Change]) -> None:
        """Stop sending to these groups, and say where this member's streams end as soon as everybody has them. During a
        change of the bus's view nothing is said: that change settles the groups."""
        mine = [change for change in begun if self.node.me in change.participants and not change.told]
        if not mine or self._flushing:
            return
        for change in mine:
            change.told = True
            self.tell_up(GroupBlocked(change.roster.group, True))
        ends: dict[int, int] = {}
        unstable: set[int] = set()
        self.tell_down(CollectEnds(tuple(change.roster.group for change in mine), ends, unstable))
        for change in mine:
            group = change.roster.group
            change.end = ends[group]
            if group in unstable:
                self._ending.setdefault(group, []).append(change)
                self.tell_down(Confirm(group, ALL, change.end))
        self._cast_ends([change for change in mine if change.roster.group not in unstable])

    def _confirmed(self, group: int, upto: int) -> None:
        """Everybody has this member's stream up to there."""
        ended = [change for change in self._ending.get(group, ()) if change.end <= upto]
        if ended and not self._flushing:
            del self._ending[group]  # nothing was sent since the first of them
            self._cast_ends(ended)

    def _cast_ends(self, ended: list[Change]) -> None:
        by_number: dict[int, list[tuple[int, int]]] = {}
        for change in ended:
            by_number.setdefault(change.number, []).append((change.roster.group, change.end))
        for number, ends in by_number.items():
            self._cast(Ends(number, ends))

    def _ends(self, member: int, told: Ends) -> None:
        if member not in self._members:
            return
        for group, end in told.ends:
            self._announced.setdefault((told.number, group), {})[member] = end
            under_way = self._changing.get(group)
            if under_way and under_way[0].number == told.number:
                self._progress(under_way[0])

    def _progress(self, change: Change) -> None:
        """If every member said where its stream ends: get everything of the old view, then show the new one."""
        group = change.roster.group
        announced = self._announced.get((change.number, group), {})
        if change.reaching or any(member not in announced for member in change.participants):
            return
        change.reaching = True
        me = self.node.me
        if me in change.before and me in change.roster.members:
            self.tell_down(ReachGroup(group, {member: announced[member] for member in change.before if member != me}))
        else:
            self._show_change(change)

    def _group_reached(self, group: int) -> None:
        under_way = self._changing.get(group)
        if under_way and under_way[0].reaching:
            self._show_change(under_way[0])

    def _show_change(self, change: Change) -> None:
        roster, me = change.roster, self.node.me
        group = roster.group
        starts = self._announced.pop((change.number, group))
        under_way = self._changing[group]
        under_way.popleft()
        if not under_way:
            del self._changing[group]
        self._rosters[group] = roster
        if not roster.members:
            del self._rosters[group]
        self.regroups += 1
        view = self._view
        stamp = stamp_of(view.ballot, change.number)
        self._show_group(roster, stamp, starts)
        self.tell_down(Regroup(group, tuple(roster.members), starts, stamp))
        if me in change.participants:
            self.tell_up(GroupBlocked(group, False))
        if self._view is not view:  # that was the last that the next view waited for, and it has settled the rest
            return
        if me in change.participants:
            self._fulfilled(group)
        if under_way:
            self._begin([under_way[0]])
        elif me == self._members[0]:
            self._wanted = self.unsettled = True

    def _fulfilled(self, group: int) -> None:
        """A wish is fulfilled, unless this member wishes something else by now."""
        shown = self.node.me in self._rosters[group].members if group in self._rosters else False
        if shown is (group in self._wishes):
            self._asked_for -= {group}
        else:
            self._wishes_changed()
