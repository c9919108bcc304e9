"""Membership: views on which their members agree, with everything delivered alike between two of them.

Theory of operation
-------------------
Every member starts alone, in a view of its own. From there on everything is one protocol: a join, a leave, a crash, a
partition, a merge, fifty starts at once are all *changes* from some old views to one new view.

A change is led by the eldest member of the best view around that it does not suspect. Three steps, each answered by
all (``words`` has the messages):

1. *Invite*: stop sending, freeze the streams, tell how far each stream is here. A ballot (number, leader) orders
   attempts; a member answers the greatest that it has seen and is *promised* to it.
2. *Propose*: for every old view the cut that its survivors must reach, which is whatever any of them has; the new
   view, its groups, where streams start. Who reached the cut *agrees*, and remembers that it did.
3. *Enter*: everybody agreed, so the view is real. Who agreed to a view may enter it as soon as it hears that anybody
   did, from the leader or from another member's beat.

If a leader falls silent, the next one starts over with a greater ballot. Members that agreed to a view that somebody
has entered are told to enter it first: so no member skips a view in which another has delivered messages.

Promises, to survivors that pass from a view to the next together: they delivered the same messages in it; every view is
entered once, in the order of ballots; all members of a view know the same members in the same order. ``primary`` says
that the view is the one primary (see there).

Live: after the last fault all that reach each other end in one view. Suspicions end attempts that wait for the dead,
time-outs those that wait for the silent, ballots grow, and who lost a race waits a random time before it leads again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...core.frame import Frame
from ...core.ids import ALL
from ...core.limits import VIEW_MEMBERS_MAX
from ...core.ports import Timer
from ...stack.events import (
    Blocked,
    CollectDigest,
    Event,
    Found,
    Freeze,
    Gone,
    Install,
    JoinGroup,
    LeaveGroup,
    Members,
    Reach,
    Reached,
    Suspected,
    Tell,
    Told,
    Unsuspected,
    ViewChanged,
)
from ...stack.layer import Layer
from .attempt import ENTERING, INVITING, PROPOSING, Attempt
from .words import (
    NO_BALLOT,
    Agree,
    Ballot,
    Busy,
    Enter,
    Entered,
    Invite,
    Joined,
    Link,
    Past,
    Piece,
    Progress,
    Proposal,
    Propose,
    Wish,
    Word,
)

DISCOVERY_S = 0.3
"""A member that starts waits so long for others before it founds a primary by itself."""
GATHER_S = 0.03
"""Changes that come together are made together."""
REPEAT_S = 0.06
ANSWER_S = 0.6
REACH_S = 2.0
PATIENCE_S = 3.0
"""A member that was invited and hears no more for so long looks after itself."""
RACE_S = 0.3
ATTEMPTS_REMEMBERED_MAX = 16

_decode_word = msgspec.msgpack.Decoder(Word).decode


class Known:
    """Another process on the bus."""

    __slots__ = ("name", "suspected", "word")

    def __init__(self, name: str) -> None:
        self.name = name
        self.suspected = False
        self.word: Word | None = None


class Membership(Layer):
    """agreed views, view synchrony, groups"""

    name = "membership"
    requires = frozenset({"detection", "reliability"})
    provides = frozenset({"members", "views"})
    headers = (Invite, Joined, Busy, Propose, Agree, Enter, Entered)

    def __init__(self, founders: int = 1) -> None:
        self._founders = founders
        self._known: dict[int, Known] = {}
        self._wishes: dict[int, Wish] = {}
        self._left: set[int] = set()
        self._promised: Ballot = NO_BALLOT
        self._proposal: Proposal | None = None
        self._cut: list[Piece] = []
        self._agreed = False
        self._busy = False
        self._attempt: Attempt | None = None
        self._last: Link | None = None
        self._attempts: list[Link] = []
        self._view = Proposal(NO_BALLOT, [], [], None, [], [])
        self._primary = False
        self._look: Timer | None = None
        self._patience: Timer | None = None
        self._repeat: Timer | None = None
        self._not_before = 0.0
        self._blocked_at = 0.0
        self.views = 0
        self.attempts_lost = 0
        self.flush_s: list[float] = []

    # Starting

    def start(self) -> None:
        me = self.node.me
        self._view = Proposal((1, me), [me], [self.node.name], None, [], [])
        self._promised = (1, me)
        self._not_before = self.ports.clock.now() + DISCOVERY_S
        self._show_view(self._view)
        self.tell_down(Install(1, (me,), {}, {}))
        self._tell_word()
        self._look_soon(DISCOVERY_S)

    @property
    def _members(self) -> list[int]:
        return self._view.members

    def options(self) -> dict[str, Any]:
        return {} if self._founders == 1 else {"founders": self._founders}

    # What others are and say

    def event_up(self, event: Event) -> None:
        match event:
            case Found(member, name):
                self._known[member] = Known(name)
                self._look_soon()
            case Gone(member, _):
                self._known.pop(member, None)
                self._look_soon()
            case Suspected(member) if member in self._known:
                self._known[member].suspected = True
                self._suspect(member)
            case Unsuspected(member) if member in self._known:
                self._known[member].suspected = False
                self._look_soon()
            case Told(member, word):
                self._hear_word(member, word)
                return
            case Reached():
                self._reached()
                return
            case _:
                pass
        self.tell_up(event)

    def _hear_word(self, member: int, encoded: bytes) -> None:
        known = self._known.get(member)
        if known is None:
            return
        try:
            known.word = _decode_word(encoded)
        except msgspec.MsgspecError:
            return
        proposal = self._proposal
        if self._agreed and proposal is not None and known.word.view == proposal.ballot:
            self._enter()  # somebody has entered the view that we agreed to
        self._look_soon()

    def _suspect(self, member: int) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.step != ENTERING and member in attempt.missing():
            self._give_up()
        self._look_soon()

    def _live(self, member: int) -> bool:
        if member == self.node.me:
            return True
        known = self._known.get(member)
        return known is not None and not known.suspected

    # Whether to lead

    def _look_soon(self, delay_s: float = GATHER_S) -> None:
        if self._look is None:
            self._look = self.after(delay_s, self._look_around)

    def _look_around(self) -> None:
        """Is a change needed, and is it ours to lead?"""
        self._look = None
        wait_s = self._not_before - self.ports.clock.now()
        if wait_s > 0:
            self._look_soon(wait_s + 0.001)
            return
        if self._attempt is not None or self._busy or not self._needed():
            return
        if not self._mine_to_lead():
            self._look_soon(PATIENCE_S * (0.5 + self.ports.random.random()))
            self._impatient += 1
            if self._impatient < 3:
                return
        self._impatient = 0
        self._lead()

    _impatient = 0

    def _needed(self) -> bool:
        members = self._members
        if any(not self._live(member) for member in members):
            return True
        if any(self._live(member) and not self._with_us(known) for member, known in self._known.items()):
            return True
        if self._groups_differ():
            return True
        return not self._primary and self._view.link is None and self._may_found()

    def _with_us(self, known: Known) -> bool:
        return known.word is None or known.word.view == self._view.ballot

    def _may_found(self) -> bool:
        return self._last is None and not self._attempts and len(self._members) >= self._founders

    def _groups_differ(self) -> bool:
        """Whether the view's rosters are not what members wish, as far as this member knows."""
        if self._asked_for:
            return True
        ballot = self._view.ballot
        return any(
            known.word is not None and known.word.wants and known.word.view == ballot and not known.suspected
            for known in self._known.values()
        )

    _asked_for: frozenset[int] = frozenset()

    def _mine_to_lead(self) -> bool:
        """The eldest live member of the best view; views are compared by what everybody tells of its own."""
        me = self.node.me
        first = next((member for member in self._members if self._live(member)), me)
        if first != me:
            return False
        if any(not self._live(member) for member in self._members) or self._groups_differ():
            return True
        ours = self._rank(self._own_word())
        theirs = [
            self._rank(known.word)
            for member, known in self._known.items()
            if not known.suspected and known.word is not None and known.word.view != self._view.ballot
        ]
        return all(ours > rank for rank in theirs)

    @staticmethod
    def _rank(word: Word) -> tuple[bool, int, int, int]:
        return (word.primary, word.epoch, word.size, -word.view[1])

    # Leading

    def _lead(self) -> None:
        now = self.ports.clock.now()
        me = self.node.me
        seen = [self._promised[0], *(known.word.view[0] for known in self._known.values() if known.word is not None)]
        ballot = (max(seen) + 1, me)
        everybody = [me, *(member for member in self._known if self._live(member))]
        ours = [member for member in self._members if member in everybody]
        invited = (ours + [member for member in everybody if member not in ours])[:VIEW_MEMBERS_MAX]
        names = {me: self.node.name, **{member: known.name for member, known in self._known.items()}}
        self._attempt = Attempt(ballot, invited, names, now)
        self._send_step()
        self._invited(me, Invite(ballot))

    def _send_step(self) -> None:
        """Say the present step to everybody who has not answered it; again until they have or time is up."""
        attempt = self._attempt
        if attempt is None:
            return
        if self._repeat is not None:
            self._repeat.cancel()
        self._repeat = self.after(REPEAT_S, self._step_again)
        for member in attempt.missing():
            if member != self.node.me:
                self._say(member, self._step_for(attempt, member))

    def _step_for(self, attempt: Attempt, member: int) -> Any:
        if attempt.step == INVITING or attempt.proposal is None:
            return Invite(attempt.ballot)
        if attempt.step == PROPOSING:
            return Propose(attempt.proposal, attempt.cuts[member])
        return Enter(attempt.ballot)

    def _step_again(self) -> None:
        self._repeat = None
        attempt = self._attempt
        if attempt is None:
            return
        waited_s = self.ports.clock.now() - attempt.step_at
        if attempt.step == INVITING and waited_s > ANSWER_S:
            for member in attempt.missing():
                attempt.invited.remove(member)
            self._answered()
            return
        if attempt.step != INVITING and waited_s > REACH_S:
            if attempt.step == ENTERING:
                self._attempt = None  # the view is real; who did not enter it hears of it by beats, or is suspected
            else:
                self._give_up()
            return
        self._send_step()

    def _give_up(self) -> None:
        """This attempt fails. Wait a little, a random while, so that two leaders do not go on disturbing each other."""
        self._attempt = None
        self.attempts_lost += 1
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeat = None
        self._busy = False
        self._not_before = self.ports.clock.now() + RACE_S * self.ports.random.random()
        self._look_soon()

    def _answered(self) -> None:
        """Somebody answered the present step; if everybody has, go on to the next."""
        attempt = self._attempt
        if attempt is None or attempt.missing():
            return
        now = self.ports.clock.now()
        if attempt.step == INVITING:
            behind = attempt.behind()
            for member, ballot in behind.items():
                del attempt.answers[member]
                self._say_or_do(member, Enter(ballot))
            if behind:
                self._send_step()
                return
            attempt.propose(self._members, self._founders, now)
            self._send_step()
            self._proposed(self.node.me, Propose(attempt.proposal, attempt.cuts[self.node.me]))  # type: ignore[arg-type]
        elif attempt.step == PROPOSING:
            attempt.enter(now)
            self._send_step()
            self._enter()
        else:
            self._attempt = None
            if self._repeat is not None:
                self._repeat.cancel()
                self._repeat = None
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
            case _:
                self.pass_up(frame)

    def _outbid(self, promised: Ballot) -> None:
        attempt = self._attempt
        if attempt is not None and promised > attempt.ballot and attempt.step != ENTERING:
            self._promised = max(self._promised, (promised[0], 0))
            self._give_up()

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
            if not self._agreed:
                self._proposal = None
            self._freeze()
        self._be_patient()
        self._say_or_do(leader, self._joined(ballot))

    def _freeze(self) -> None:
        if not self._busy:
            self._blocked_at = self.ports.clock.now()
            self.tell_up(Blocked(True))
        self._busy = True
        self.tell_down(Freeze())

    def _joined(self, ballot: Ballot) -> Joined:
        digest: dict[tuple[int, int], int] = {}
        own: dict[int, int] = {}
        self.tell_down(CollectDigest(digest, own))
        progress = [Progress(sender, group, upto) for (sender, group), upto in sorted(digest.items())]
        agreed = self._proposal.ballot if self._agreed and self._proposal is not None else self._view.ballot
        wishes = [self._wishes[group] for group in sorted(self._wishes)]
        return Joined(
            ballot, self._view.ballot, agreed, self._members, progress, sorted(own.items()), wishes, self._past()
        )

    def _past(self) -> Past:
        return Past(self._last, tuple(self._attempts))

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.after(PATIENCE_S, self._lose_patience)

    def _lose_patience(self) -> None:
        """The leader is silent: whoever is eldest now leads; if nobody does, this member will."""
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
        self._be_patient()
        if self._proposal is not None and self._proposal.ballot == proposal.ballot:
            if self._agreed:
                self._say_or_do(leader, Agree(proposal.ballot))
            return
        self._proposal = proposal
        self._agreed = False
        self._cut = propose.cut
        upto = {(piece.sender, piece.group): piece.upto for piece in propose.cut}
        holders = {(piece.sender, piece.group): piece.holder for piece in propose.cut}
        self.tell_down(Reach(upto, holders))

    def _reached(self) -> None:
        proposal = self._proposal
        if proposal is None or self._agreed or proposal.ballot != self._promised:
            return
        self._agreed = True
        if proposal.link is not None:
            self._attempts.append(proposal.link)
            del self._attempts[:-ATTEMPTS_REMEMBERED_MAX]
        self._tell_word()
        self._say_or_do(proposal.ballot[1], Agree(proposal.ballot))

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
        self._view = proposal
        self.views += 1
        self._primary = proposal.link is not None
        if proposal.link is not None:
            self._last = proposal.link
            self._attempts = []
        self._left.clear()
        self._settle_wishes(proposal)
        self._show_view(proposal)
        groups = {roster.group: tuple(roster.members) for roster in proposal.rosters}
        starts = {(progress.sender, progress.group): progress.upto for progress in proposal.starts}
        stamp = proposal.ballot[0] << 16 | proposal.ballot[1] & 0xFFFF
        self.tell_down(Install(stamp, tuple(proposal.members), groups, starts))
        if proposal.ballot >= self._promised:
            self._busy = False
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
            self.flush_s.append(self.ports.clock.now() - self._blocked_at)
            del self.flush_s[:-1_000]
            self.tell_up(Blocked(False))
        self._tell_word()
        attempt = self._attempt
        if attempt is not None and attempt.ballot == proposal.ballot:
            attempt.entered.add(self.node.me)
            self._answered()
        self._look_soon()

    # Groups

    def event_down(self, event: Event) -> None:
        if isinstance(event, JoinGroup):
            self._wishes[event.group] = Wish(event.group, event.name, event.promises)
            self._wishes_changed()
        elif isinstance(event, LeaveGroup) and self._wishes.pop(event.group, None) is not None:
            self._left.add(event.group)
            self._wishes_changed()
        self.tell_down(event)

    def _wishes_changed(self) -> None:
        self._settle_wishes(self._view)
        self._tell_word()
        if self._asked_for:
            self._look_soon()

    def _settle_wishes(self, view: Proposal) -> None:
        """Which of this member's wishes the view does not show yet."""
        me = self.node.me
        shown = {roster.group for roster in view.rosters if me in roster.members}
        # A group that was left and joined again within one view needs a new view too: it missed messages in between.
        self._asked_for = frozenset(shown ^ self._wishes.keys()) | (self._left & self._wishes.keys())

    # Telling

    def _show_view(self, view: Proposal) -> None:
        names = dict(zip(view.members, view.names, strict=True))
        link = view.link
        chain = (link.lineage, link.epoch) if link is not None else (0, 0)
        self.tell_up(ViewChanged(*view.ballot, tuple(view.members), link is not None, *chain))
        self.tell_up(Members(0, tuple(view.members), names, agreed=True))
        shown = {roster.group for roster in view.rosters}
        for roster in view.rosters:
            members = tuple(roster.members)
            shown_names = {member: names[member] for member in members}
            self.tell_up(Members(roster.group, members, shown_names, agreed=True, promises=roster.promises))
        for group in sorted(self._shown - shown):
            self.tell_up(Members(group, (), {}, agreed=True))
        self._shown = shown

    _shown: set[int] = set()  # noqa: RUF012 - replaced, never changed

    def _own_word(self) -> Word:
        agreed = self._proposal.ballot if self._agreed and self._proposal is not None else self._view.ballot
        epoch = self._last.epoch if self._last is not None else 0
        wants = bool(self._asked_for)
        return Word(self._view.ballot, agreed, len(self._members), epoch, self._primary, self._may_found(), wants)

    def _tell_word(self) -> None:
        self.tell_down(Tell(msgspec.msgpack.encode(self._own_word())))

    def _say(self, member: int, header: Any) -> None:
        self.pass_down(Frame(sender=self.node.me, to=member, headers=[header]))

    def _say_or_do(self, member: int, header: Any) -> None:
        """To another member by a frame; to itself at once, after what is going on."""
        if member == self.node.me:
            frame = Frame(sender=member, to=member, headers=[header])
            self.stimulus(lambda: self.up(frame))
        else:
            self._say(member, header)

    def stats(self) -> dict[str, Any]:
        flushes = sorted(self.flush_s)
        return {
            "view": self._view.ballot[0],
            "members": len(self._members),
            "primary": self._primary,
            "views": self.views,
            "attempts_lost": self.attempts_lost,
            "flush_s_p95": flushes[int(len(flushes) * 0.95)] if flushes else 0.0,
        }

    def validate(self) -> None:
        assert self.node.me in self._members
        assert self._promised >= self._view.ballot
        assert not self._agreed or self._proposal is not None
        assert ALL not in self._members
