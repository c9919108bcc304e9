"""Membership: views on which their members agree, with everything delivered alike between two of them.

Theory of operation
-------------------
Every member starts alone, in a view of its own. A join, a leave, a crash, a partition, a merge and fifty starts at once
are all the same: a *change* from some old views to one new view.

The leader of a change is the eldest unsuspected member of the best view around. There are three steps, each answered by
all (``words`` has the messages):

1. *Invite*: stop sending, freeze the streams, tell how far each stream is here. A ballot (number, leader) orders
   attempts. A member answers only the greatest ballot that it has seen; it is then *promised* to that ballot.
2. *Propose*: for every old view the cut that its survivors must reach, which is everything that any of them has; the
   new view, its groups, where streams start. A member that has reached the cut *agrees*, and remembers that it did.
3. *Enter*: everybody agreed, so the view is real. A member that agreed may enter the view as soon as it hears, from the
   leader or by another member's beat, that any member has entered it.

If a leader falls silent, the next one begins again with a greater ballot. Members that agreed to a view which somebody
has entered are told to enter that view first. So no member skips a view in which another has delivered messages.

Promises, to survivors that pass from a view to the next together: they delivered the same messages in it; every view is
entered once, in the order of ballots; all members of a view know the same members in the same order. ``primary`` says
that the view is the one primary (see there).

Live: after the last fault, all members that reach each other end in one view. Suspicions end attempts that wait for
dead members, time-outs end those that wait for silent ones, ballots grow, and a leader that lost a race waits a random
time before it leads again.
"""

from __future__ import annotations

import logging

import msgspec

from ...core.frame import Frame
from ...core.ids import ALL, MemberId
from ...stack.events import (
    NOWHERE,
    Blocked,
    CollectDelivered,
    CollectDigest,
    CollectHeld,
    Confirmed,
    Consumed,
    Credit,
    Event,
    ForcePrimary,
    Found,
    Freeze,
    Gone,
    GroupReached,
    Install,
    JoinGroup,
    LastWord,
    LeaveGroup,
    Places,
    Reach,
    Reached,
    Rekey,
    Suspected,
    Told,
    Unsuspected,
)
from .attempt import ENTERING, INVITING, PROPOSING
from .leading import Leading
from .state import ATTEMPTS_REMEMBERED_MAX, DISCOVERY_S, FLUSHES_REMEMBERED_MAX, PATIENCE_S, REPEAT_S, Known
from .words import (
    FIRST_NUMBER,
    Agree,
    Ballot,
    Busy,
    Ends,
    Enter,
    Entered,
    GroupWishes,
    Invite,
    Joined,
    NewRosters,
    Otherwise,
    Past,
    Progress,
    Proposal,
    Propose,
    Wish,
    Word,
    can_be,
    stamp_of,
)

log = logging.getLogger(__name__)

_decode_word = msgspec.msgpack.Decoder(Word).decode


class Membership(Leading):
    """agreed views, view synchrony, groups"""

    name = "membership"
    requires = frozenset({"detection", "reliability"})
    provides = frozenset({"members", "views"})
    headers = (Invite, Joined, Busy, Propose, Agree, Enter, Entered, GroupWishes, NewRosters, Ends, Otherwise)
    selective = True
    deaf_to = frozenset({Consumed, Credit})

    # Starting

    def start(self) -> None:
        me = self.node.me
        self._view = Proposal((FIRST_NUMBER, me), [me], [self.node.name], None, [], [])
        self._promised = self._view.ballot
        self._started_at = self.ports.clock.now()
        self._not_before = self._started_at + DISCOVERY_S
        self._show_view(self._view)
        self.tell_down(Rekey(self._view.ballot, (me,)))
        self.tell_down(Install(stamp_of(self._view.ballot), (me,), {}, {}))
        self._tell_word()
        self._look_soon(DISCOVERY_S)

    # What others are and say

    def event_up(self, event: Event) -> None:
        match event:
            case Found(member, name):
                self._known[member] = Known(name)
                self._look_soon()
            case Gone(member):
                self._known.pop(member, None)
                self._suspect(member)
            case Suspected(member) if member in self._known:
                self._known[member].suspected = True
                self._suspect(member)
            case Unsuspected(member) if member in self._known:
                self._known[member].suspected = False
                self._look_soon()
            case Told(member, word):
                self._hear_word(member, word)
                return
            case LastWord(member, word):
                self._hear_last_word(member, word)
                return
            case Reached():
                self._reached()
                return
            case GroupReached(group):
                self._group_reached(group)
                return
            case Confirmed(group, to, upto) if to == ALL:
                self._confirmed(group, upto)
            case _:
                pass
        self.tell_up(event)

    def _hear_word(self, member: int, encoded: bytes) -> None:
        known = self._known.get(member)
        if known is None:
            return
        try:
            known.word = _decode_word(encoded)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        proposal = self._proposal
        if self._agreed and proposal is not None and known.word.view == proposal.ballot:
            self._enter()  # somebody has entered the view that we agreed to
        self._look_soon()

    def _suspect(self, member: int) -> None:
        attempt = self._attempt
        if attempt is not None and member in attempt.missing():
            if attempt.step == ENTERING:  # the view is real, with or without its word
                attempt.entered.add(member)
                self._answered()
            else:
                self._give_up()
        self._look_soon()

    # Following

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        sender = frame.sender
        match header:
            case Invite():
                self._invited(sender, header)
            case Joined():
                attempt = self._attempt
                wanted = attempt is not None and attempt.step == INVITING and header.ballot == attempt.ballot
                if attempt is not None and wanted and sender in attempt.invited:
                    attempt.answers[sender] = header
                    self._answered()
            case Busy(promised):
                self._outbid(promised)
            case Propose():
                self._proposed(sender, header)
            case Agree(ballot):
                attempt = self._attempt
                if attempt is not None and attempt.step == PROPOSING and ballot == attempt.ballot:
                    attempt.agreed.add(sender)
                    self._answered()
            case Enter(ballot):
                self._told_to_enter(sender, ballot)
            case Entered(ballot):
                attempt = self._attempt
                if attempt is not None and attempt.step == ENTERING and ballot == attempt.ballot:
                    attempt.entered.add(sender)
                    self._answered()
            case GroupWishes():
                self._hear_wishes(sender, header)
            case NewRosters():
                self._new_rosters(sender, header)
            case Ends():
                self._ends(sender, header)
            case Otherwise():
                self._refused(sender, header)
            case _:
                self.pass_up(frame)

    def _outbid(self, promised: Ballot) -> None:
        attempt = self._attempt
        if attempt is not None and promised > attempt.ballot and attempt.step != ENTERING:
            self._promised = max(self._promised, (promised[0], 0))
            self._give_up(outbid=True)

    def _invited(self, leader: int, invite: Invite) -> None:
        ballot = invite.ballot
        if ballot[1] != leader:
            return
        if ballot < self._promised:
            self._say_or_do(leader, Busy(self._promised))
            return
        if ballot > self._promised:
            attempt = self._attempt
            if attempt is not None and attempt.ballot != ballot:
                self._attempt = None
                self.attempts_lost += 1
            self._promised = ballot
            self._owes = False
            if not self._agreed:
                self._proposal = None
            self._freeze()
        self._be_patient()
        self._say_or_do(leader, self._joined(ballot))

    def _freeze(self) -> None:
        if not self._busy:
            self._blocked_at = self.ports.clock.now()
            self.tell_up(Blocked(True))
        self._busy = self._flushing = True
        self.tell_down(Freeze())

    def _joined(self, ballot: Ballot) -> Joined:
        digest: dict[tuple[int, int], int] = {}
        own: dict[int, int] = {}
        self.tell_down(CollectDigest(digest, own))
        progress = [Progress(sender, group, upto) for (sender, group), upto in sorted(digest.items())]
        agreed = self._proposal.ballot if self._agreed and self._proposal is not None else self._view.ballot
        wishes = [self._wishes[group] for group in sorted(self._wishes)]
        delivered: list[Places] = []
        self.tell_up(CollectDelivered(delivered))
        held: list[Places] = []
        self.tell_up(CollectHeld(held))
        return Joined(
            ballot,
            self._view.ballot,
            agreed,
            self._members,
            progress,
            sorted(own.items()),
            delivered[0] if delivered else NOWHERE,
            wishes,
            self._past(),
            held[0] if held else NOWHERE,
            held[1] if held else NOWHERE,
            self._founders,
        )

    def _past(self) -> Past:
        return Past(self._last, tuple(self._attempts), tuple(sorted(self._departed)))

    def _hear_last_word(self, member: int, encoded: bytes) -> None:
        """A member that left the bus for good, from the primary that this member was last in, counts no more there."""
        try:
            word = _decode_word(encoded)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        last = self._last
        if last is not None and member in last.members and word.view == word.agreed == last.view:
            self._departed.add(member)

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.after(PATIENCE_S, self._lose_patience)

    def _lose_patience(self) -> None:
        """The leader is silent: the eldest of the others leads; if none does, this member will."""
        self._patience = None
        if not self._busy:
            return
        if self._attempt is None:
            self._lead()
        self._be_patient()

    def _proposed(self, leader: int, propose: Propose) -> None:
        proposal = propose.proposal
        if proposal.ballot != self._promised or proposal.ballot[1] != leader or self.node.me not in proposal.members:
            return
        if self._view.ballot == proposal.ballot:
            return
        if not can_be(proposal):
            self.refused += 1
            return
        self._be_patient()
        if self._proposal is not None and self._proposal.ballot == proposal.ballot:
            if self._agreed:
                self._say_or_do(leader, Agree(proposal.ballot))
            return
        self._proposal = proposal
        self._agreed = False
        self._delivered, self._limbo = propose.delivered, propose.limbo
        upto = {(piece.sender, piece.group): piece.upto for piece in propose.cut}
        holders = {(piece.sender, piece.group): piece.holder for piece in propose.cut}
        self.tell_down(Reach(upto, holders))

    def _reached(self) -> None:
        proposal = self._proposal
        if proposal is None or self._agreed or proposal.ballot != self._promised:
            return
        if proposal.link is not None and not self._share():
            self.after(REPEAT_S, self._reached)
            return
        self._agreed = True
        if proposal.link is not None:
            self._attempts.append(proposal.link)
            del self._attempts[:-ATTEMPTS_REMEMBERED_MAX]
        self._tell_word()
        self._say_or_do(proposal.ballot[1], Agree(proposal.ballot))

    def _share(self) -> bool:
        """Share the lock of this machine, before entering a primary. False: another process claims it at this
        moment."""
        return self.ports.founding is None or self.ports.founding.share()

    def _told_to_enter(self, sender: int, ballot: Ballot) -> None:
        proposal = self._proposal
        if self._view.ballot == ballot:
            self._say_or_do(sender, Entered(ballot))
        elif self._agreed and proposal is not None and proposal.ballot == ballot:
            self._enter()
            self._say_or_do(sender, Entered(ballot))
            if self._promised > ballot:  # an attempt at a later view waits for us
                self._freeze()
                self._be_patient()
                self._say_or_do(self._promised[1], self._joined(self._promised))

    def _enter(self) -> None:
        """Everything of the old view has been delivered: be in the new one."""
        proposal = self._proposal
        if proposal is None or not self._agreed:
            return
        self._proposal = None
        self._agreed = False
        straight = proposal.link is not None and proposal.link.after == self._view.ballot
        continues = straight and self._limbo is None  # else somebody could not go on as this member would
        excluded = proposal.link is not None and self._last is not None and self._last.view != proposal.recent
        self._view = proposal
        self._impatient_at = None
        self.views += 1
        self._primary = proposal.link is not None
        if proposal.link is not None:
            self._last = proposal.link
            self._attempts = []
            self._departed.clear()
        self.tell_down(Rekey(proposal.ballot, tuple(proposal.members)))
        self._show_view(proposal, continues=continues, excluded=excluded)
        self._begin_view(proposal)
        groups = {roster.group: tuple(roster.members) for roster in proposal.rosters}
        starts = {(progress.sender, progress.group): progress.upto for progress in proposal.starts}
        self.tell_down(Install(stamp_of(proposal.ballot), tuple(proposal.members), groups, starts))
        if proposal.ballot >= self._promised:
            self._busy = self._flushing = self._owes = False
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
            self.flushes += 1
            self.flush_s.append(self.ports.clock.now() - self._blocked_at)
            del self.flush_s[:-FLUSHES_REMEMBERED_MAX]
            self.tell_up(Blocked(False))
            self._ask_s = REPEAT_S
            self._ask_for_groups()
            self._begin_early()
        self._tell_word()
        attempt = self._attempt
        if attempt is not None and attempt.ballot == proposal.ballot:
            attempt.entered.add(self.node.me)
            self._answered()
        self._look_soon()

    # Groups

    def event_down(self, event: Event) -> None:
        if isinstance(event, ForcePrimary):
            log.warning("%s forces a new primary with %d members", MemberId(self.node.me), len(self._members))
            self._forced = True
            self._look_soon()
            return
        if isinstance(event, JoinGroup):
            self._wishes[event.group] = Wish(event.group, event.name, event.promises)
            self._wishes_changed()
        elif isinstance(event, LeaveGroup) and self._wishes.pop(event.group, None) is not None:
            self._wishes_changed()
        self.tell_down(event)
