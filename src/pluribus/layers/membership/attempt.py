"""A leader's attempt at a view: three steps, each repeated to members that have not answered, until a time-out.

The attempt holds the answers and decides what to send; ``layer`` sends it. If a member does not answer in time the
attempt is over, and a new one with a greater ballot begins without that member.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.limits import VIEW_MEMBERS_MAX
from .primary import first_link, latest, next_link
from .words import FIRST_NUMBER, NO_BALLOT, Ballot, Joined, Piece, Places, Progress, Proposal, Roster

INVITING, PROPOSING, ENTERING = "inviting", "proposing", "entering"


class Attempt:
    def __init__(self, ballot: Ballot, invited: list[int], names: dict[int, str], started_at: float) -> None:
        self.ballot = ballot
        self.invited = invited
        self.names = names
        self.step = INVITING
        self.step_at = started_at
        self.answers: dict[int, Joined] = {}
        self.agreed: set[int] = set()
        self.entered: set[int] = set()
        self.proposal: Proposal | None = None
        self.cuts: dict[int, list[Piece]] = {}
        self.delivered: dict[int, Places] = {}
        self.limbo: Places | None = None

    def missing(self) -> list[int]:
        """Members that have not answered the present step."""
        if self.step == INVITING:
            return [member for member in self.invited if member not in self.answers]
        heard = self.agreed if self.step == PROPOSING else self.entered
        members = self.proposal.members if self.proposal is not None else []
        return [member for member in members if member not in heard]

    def behind(self) -> dict[int, Ballot]:
        """Members that agreed to a view which somebody here has entered: they must enter it before anything else."""
        entered = {answer.view for answer in self.answers.values()}
        return {
            member: answer.agreed
            for member, answer in self.answers.items()
            if answer.agreed > answer.view and answer.agreed in entered
        }

    @property
    def founders(self) -> int:
        """How many members a first primary needs: the greatest number that any answer named."""
        return max((answer.founders for answer in self.answers.values()), default=1)

    def propose(
        self, eldest_first: list[int], now: float, *, forced: bool = False, permit: Callable[[], bool] = lambda: True
    ) -> Proposal:
        """Everybody who answered becomes a member. ``eldest_first`` is the order of the leader's present view."""
        answers = self.answers
        members = self._order(eldest_first)
        best: dict[tuple[Ballot, int, int], tuple[int, int]] = {}
        for member in members:
            answer = answers[member]
            for progress in answer.progress:
                key = (answer.view, progress.sender, progress.group)
                upto, _ = best.get(key, (-1, 0))
                if progress.upto > upto:
                    best[key] = (progress.upto, member)
        for member in members:
            view = answers[member].view
            self.cuts[member] = [
                Piece(sender, group, upto, holder)
                for (of, sender, group), (upto, holder) in sorted(best.items())
                if of == view
            ]
            alike = [other.delivered for other in answers.values() if other.view == view]
            self.delivered[member] = (max(places for places, _ in alike), max(safe for _, safe in alike))
        starts = [Progress(member, group, first) for member in members for group, first in answers[member].own]
        pasts = {member: answers[member].past for member in members}
        views = {member: answers[member].view for member in members}
        link = next_link(self.ballot, tuple(members), pasts, views, self.founders, permit)
        if link is None and forced:
            link = first_link(self.ballot, tuple(members), pasts)
        names = [self.names.get(member, "") for member in members]
        recent = latest(pasts)
        if link is not None and recent is not None and link.after == recent.view:
            came = [answers[member] for member in members if pasts[member].last == recent]
            new_chain = link.lineage != recent.lineage
            if new_chain or any(answer.view != recent.view for answer in came):
                self.limbo = _all_have(came, new_chain)
        self.proposal = Proposal(
            self.ballot,
            members,
            names,
            link,
            self._rosters(members),
            starts,
            self._sides(members),
            recent.view if recent is not None else NO_BALLOT,
        )
        self.step, self.step_at = PROPOSING, now
        return self.proposal

    def _sides(self, members: list[int]) -> list[list[int]]:
        """Members by the view that they come from, without newcomers, which are in their very first view."""
        sides: dict[Ballot, list[int]] = {}
        for member in members:
            view = self.answers[member].view
            if view[0] > FIRST_NUMBER:
                sides.setdefault(view, []).append(member)
        return list(sides.values()) if len(sides) > 1 else []

    def enter(self, now: float) -> None:
        self.step, self.step_at = ENTERING, now

    def _order(self, eldest_first: list[int]) -> list[int]:
        """The leader's view first, in its order; then the other views, larger first, each in its order."""
        answers = self.answers
        members = [member for member in eldest_first if member in answers]
        rest = [member for member in answers if member not in members]

        def age(member: int) -> tuple[int, Ballot, int]:
            answer = answers[member]
            place = answer.members.index(member) if member in answer.members else 0
            return (-len(answer.members), answer.view, place)

        return (members + sorted(rest, key=age))[:VIEW_MEMBERS_MAX]

    def _rosters(self, members: list[int]) -> list[Roster]:
        """The members of each group. The promises of the group's eldest member count; members with others are left
        out."""
        rosters: dict[int, Roster] = {}
        for member in members:
            for wish in self.answers[member].wishes:
                roster = rosters.get(wish.group)
                if roster is None:
                    rosters[wish.group] = Roster(wish.group, wish.name, wish.promises, [member])
                elif roster.promises == wish.promises and roster.members[-1] != member:
                    roster.members.append(member)
        return [rosters[group] for group in sorted(rosters)]


def _all_have(came: list[Joined], new_chain: bool) -> Places:
    """The position in the last primary's order up to which all members that come from it hold its messages. In a chain
    that was forced it is at most what one of them has delivered: the absent members, for whom a forced chain does not
    wait, may have agreed on something else behind that."""
    held, safe = min(answer.held[0] for answer in came), min(answer.held[1] for answer in came)
    if new_chain:
        held, safe = min(held, max(a.reached[0] for a in came)), min(safe, max(a.reached[1] for a in came))
    return held, safe
