"""Leading: whether a change of the view is needed, whether this member leads it, and the steps of leading."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from ...core.limits import VIEW_MEMBERS_MAX
from .attempt import ENTERING, INVITING, PROPOSING, Attempt
from .regrouping import Regrouping
from .state import ANSWER_S, CLAIM_S, CLAIM_TOLD_S, GATHER_S, PATIENCE_S, RACE_S, REACH_S, REPEAT_S, Known
from .words import (
    REGROUPS_MAX,
    Enter,
    Invite,
    Propose,
    Word,
)

log = logging.getLogger(__name__)


class Leading(Regrouping):
    """The half of ``Membership`` that leads changes of views; ``layer`` follows them."""

    # Whether to lead

    def _look_soon(self, delay_s: float = GATHER_S) -> None:
        """Look around within ``delay_s``, even if that was planned for later."""
        at = self.ports.clock.now() + delay_s
        if self._look is not None:
            if self._look_at <= at:
                return
            self._look.cancel()
        self._look = self.after(delay_s, self._look_around)
        self._look_at = at

    def _look_around(self) -> None:
        """Lead a change, if one is needed and this member is to lead it."""
        self._look = None
        wait_s = self._not_before - self.ports.clock.now()
        if wait_s > 0:
            self._look_soon(wait_s + 0.001)
            return
        if self._attempt is not None or self._busy:
            return
        if not self._needed():
            self._impatient_at = None
            return
        if not self._mine_to_lead() and not self._claimed_first() and not self._impatient():
            return
        self._impatient_at = None
        self._lead()

    def _impatient(self) -> bool:
        """Whether others should have led by now."""
        now = self.ports.clock.now()
        if self._impatient_at is None:
            self._impatient_at = now + PATIENCE_S * (1.5 + 1.5 * self.ports.random.random())
        self._look_soon(max(self._impatient_at - now, GATHER_S))
        return now >= self._impatient_at

    def _needed(self) -> bool:
        members = self._members
        if self._forced or self._owes:
            return True
        if any(not self._live(member) for member in members):
            return True
        if any(not self._with_us(known) and self._is_wanted(member, known) for member, known in self._known.items()):
            return True
        if self._regroups >= REGROUPS_MAX - 1:
            return True
        return self._founds()

    def _with_us(self, known: Known) -> bool:
        return known.word is None or known.word.view == self._view.ballot

    def _is_wanted(self, member: int, known: Known) -> bool:
        """Whether a member of another view should be in ours. Full views are left as they are: else members that find
        no room would make everybody change views again and again."""
        if not self._live(member):
            return False
        if member in self._members:
            return True
        full = len(self._members) >= VIEW_MEMBERS_MAX or self._kept_out()
        if full and not self._told_full:
            self._told_full = True
            log.warning("a view has room for %d members: others wait until one leaves", VIEW_MEMBERS_MAX)
        return not full

    def _kept_out(self) -> bool:
        return any(self._is_full(member, known) for member, known in self._known.items())

    def _is_full(self, member: int, known: Known) -> bool:
        """Whether a member is in a view that has no room for us, and is not on its way to our view."""
        if known.word is None or known.suspected or known.word.size < VIEW_MEMBERS_MAX or self._with_us(known):
            return False
        return member not in self._members or known.word.view > self._view.ballot

    def _mine_to_lead(self) -> bool:
        """The eldest live member of the best view; views are compared by what everybody tells of its own."""
        if self._owes:
            return True
        if self._eldest() != self.node.me and not self._forced:
            return False
        if any(not self._live(member) for member in self._members) or self._forced:
            return True
        if self._regroups >= REGROUPS_MAX - 1:
            return True
        ours = self._rank(self._own_word())
        theirs = [
            self._rank(known.word)
            for member, known in self._known.items()
            if not known.suspected and known.word is not None and known.word.view != self._view.ballot
        ]
        return all(ours > rank for rank in theirs)

    def _eldest(self) -> int:
        return next((member for member in self._members if self._live(member)), self.node.me)

    @staticmethod
    def _rank(word: Word) -> tuple[bool, int, int, int]:
        return (word.primary, word.epoch, word.size, -word.view[1])

    # Founding

    def _founds(self) -> bool:
        """Whether a first primary is due and this member is to found it. If it only has to listen longer, or lacks the
        lock of the machine, it will look again."""
        if self._primary or not self._all_unfounded() or self._kept_out():
            return False
        words = [known.word for member, known in self._known.items() if member in self._members]
        founders = max([self._founders, *(word.founders for word in words if word is not None)])
        if len(self._members) < founders or (self._eldest() != self.node.me and not self._claimed):
            return False
        return self._permitted(founders)

    def _all_unfounded(self) -> bool:
        """True if no member here was ever in a primary, nor agreed to one; otherwise a first primary is out of the
        question. Where the machine's lock does not reach everybody, members that are silent now count too."""
        reach = self._known if self._listen_s else self._members
        words = [known.word for member, known in self._known.items() if member in reach]
        return self._unfounded and all(word is not None and word.unfounded for word in words)

    def _claimed_first(self) -> bool:
        """A member that has claimed its machine's lock founds, even if another is older: no other there can."""
        return self._claimed and self._founds()

    @property
    def _listen_s(self) -> float:
        return self.ports.founding.listen_s if self.ports.founding is not None else 0.0

    def _permitted(self, founders: int) -> bool:
        """Whether this member may lead the first primary now; if not, it looks again soon. With ``founders`` above 1
        nobody has to listen: fewer members than that start out of each other's hearing."""
        now = self.ports.clock.now()
        wait_s = self._started_at + self._listen_s - now
        if founders == 1 and wait_s > 0:
            self._look_soon(wait_s + 0.001)
            return False
        if not self._claimed and self.ports.founding is not None:
            self._claimed = self.ports.founding.claim()
            if not self._claimed:
                self._look_soon(CLAIM_S)
                if now - self._started_at > CLAIM_TOLD_S and not self._told_claim:
                    self._told_claim = True
                    log.warning(
                        "bus %r: another process of this machine is or was in its primary, and is not heard; there is "
                        "no primary here until it is heard or ends: is it stopped, or has it another secret?",
                        self.node.bus,
                    )
                return False
        return True

    # Leading

    def _lead(self) -> None:
        now = self.ports.clock.now()
        me = self.node.me
        seen = [self._promised[0], *(known.word.view[0] for known in self._known.values() if known.word is not None)]
        ballot = (max(seen) + 1, me)
        everybody = [me, *(m for m, known in self._known.items() if self._live(m) and not self._is_full(m, known))]
        ours = [member for member in self._members if member in everybody]
        invited = (ours + [member for member in everybody if member not in ours])[:VIEW_MEMBERS_MAX]
        names = {me: self.node.name, **{member: known.name for member, known in self._known.items()}}
        self._attempt = Attempt(ballot, invited, names, now)
        self._owes = False
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
            return Propose(attempt.proposal, attempt.cuts[member], attempt.delivered[member], attempt.limbo)
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
                # The view is real; members that did not enter it hear of it by beats, or are suspected.
                self._attempt = None
                self._look_soon()
            else:
                self._give_up()
            return
        self._send_step()

    def _give_up(self, *, outbid: bool = False) -> None:
        """This attempt failed. Wait for a short random time, so that two leaders do not keep disturbing each other.
        Members that promised to follow send nothing until there is a view. So this member owes them a view even if its
        reason for the change is gone, unless another leader has outbid it."""
        self._attempt = None
        self._owes = not outbid
        self.attempts_lost += 1
        if self._repeat is not None:
            self._repeat.cancel()
            self._repeat = None
        self._busy = False
        self._not_before = self.ports.clock.now() + RACE_S * self.ports.random.random()
        self._look_soon()

    def _answered(self) -> None:
        """A member answered the present step; if all have, go on to the next step."""
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
            permit = partial(self._permitted, attempt.founders)
            attempt.propose(self._members, now, forced=self._forced, permit=permit)
            self._forced = False
            self._send_step()
            self._proposed(self.node.me, self._step_for(attempt, self.node.me))
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
