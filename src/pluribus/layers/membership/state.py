"""What a member knows: its view, the others, what it promised and remembers, and what it tells others of itself."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core.errors import BadInput
from ...core.frame import Frame
from ...core.ids import ALL
from ...core.limits import VIEW_MEMBERS_MAX
from ...core.ports import Timer
from ...stack.events import (
    NOWHERE,
    Members,
    Places,
    Tell,
    ViewChanged,
)
from ...stack.layer import Layer
from .attempt import Attempt
from .words import (
    NO_BALLOT,
    Ballot,
    Invite,
    Link,
    Proposal,
    Propose,
    Roster,
    Wish,
    Word,
    stamp_of,
)

DISCOVERY_S = 0.3
"""A new member waits so long for others before it opens groups or changes views. Before it founds a primary it waits
as long as its port ``founding`` says, if that is longer."""
CLAIM_S = 0.1
"""How often a member asks again for the lock of its machine, which another process holds."""
CLAIM_TOLD_S = 5.0
GATHER_S = 0.03
"""Changes that come within this time are made together."""
REPEAT_S = 0.06
ANSWER_S = 0.6
REACH_S = 2.0
PATIENCE_S = 3.0
"""An invited member that hears nothing for so long leads a change itself."""
RACE_S = 0.3
ATTEMPTS_REMEMBERED_MAX = 16
FLUSHES_REMEMBERED_MAX = 1_000


class Known:
    """Another process on the bus."""

    __slots__ = ("name", "suspected", "word")

    def __init__(self, name: str) -> None:
        self.name = name
        self.suspected = False
        self.word: Word | None = None


class State(Layer):
    """The memory of ``Membership``; ``leading`` and ``layer`` act on it."""

    def __init__(self, founders: int = 1) -> None:
        if not 1 <= founders <= VIEW_MEMBERS_MAX:
            raise BadInput(f"founders={founders} cannot found a primary: use 1 to {VIEW_MEMBERS_MAX}")
        self._founders = founders
        self._started_at = 0.0
        self._claimed = False
        """This member has claimed the lock of its machine, alone, when no other process there could be in a primary."""
        self._told_claim = False
        self._known: dict[int, Known] = {}
        self._wishes: dict[int, Wish] = {}
        self._promised: Ballot = NO_BALLOT
        self._proposal: Proposal | None = None
        self._delivered = NOWHERE
        self._limbo: Places | None = None
        self._agreed = False
        self._busy = False
        self._flushing = False
        """True from the first invitation to the next view, whichever attempts fail: nothing may be sent."""
        self._attempt: Attempt | None = None
        self._last: Link | None = None
        self._attempts: list[Link] = []
        self._departed: set[int] = set()
        """Members of the last primary that left the bus for good from it."""
        self._view = Proposal(NO_BALLOT, [], [], None, [], [])
        self._primary = False
        self._look: Timer | None = None
        self._look_at = 0.0
        self._patience: Timer | None = None
        self._repeat: Timer | None = None
        self._not_before = 0.0
        self._impatient_at: float | None = None
        """Until then others may lead the change that is needed; None: no change is needed."""
        self._owes = False
        """Others wait for a view because of an attempt that this member gave up."""
        self._asked_for: frozenset[int] = frozenset()
        self._rosters: dict[int, Roster] = {}
        self._blocked_at = 0.0
        self._forced = False
        self._told_full = False
        self.views = 0
        self.attempts_lost = 0
        self.refused = 0
        """Proposals that could not be a view, and were refused."""
        self.flushes = 0
        self.flush_s: list[float] = []
        """How long senders were blocked by each of the last view changes."""

    @property
    def _members(self) -> list[int]:
        return self._view.members

    def settings(self) -> dict[str, Any]:
        return {} if self._founders == 1 else {"founders": self._founders}

    def _live(self, member: int) -> bool:
        if member == self.node.me:
            return True
        known = self._known.get(member)
        return known is not None and not known.suspected

    @property
    def _unfounded(self) -> bool:
        return self._last is None and not self._attempts

    # Telling

    def _show_view(self, view: Proposal, *, continues: bool = False, excluded: bool = False) -> None:
        names = dict(zip(view.members, view.names, strict=True))
        members, link = tuple(view.members), view.link
        chain = (link.lineage, link.epoch) if link is not None else (0, 0)
        sides = tuple(tuple(side) for side in view.sides)
        shown = ViewChanged(
            *view.ballot, members, link is not None, continues, self._delivered, *chain, sides, excluded
        )
        if link is not None:
            shown = msgspec.structs.replace(shown, after=link.after, limbo=self._limbo or NOWHERE)
        self.tell_up(shown)
        self.tell_up(Members(0, members, names, agreed=True, stamp=stamp_of(view.ballot)))
        gone = self._rosters.keys() - {roster.group for roster in view.rosters}
        self._rosters = {roster.group: roster for roster in view.rosters}
        starts: dict[int, dict[int, int]] = {}
        for progress in view.starts:
            starts.setdefault(progress.group, {})[progress.sender] = progress.upto
        for roster in view.rosters:
            self._show_group(roster, stamp_of(view.ballot), starts.get(roster.group, {}))
        for group in sorted(gone):
            self.tell_up(Members(group, (), {}, agreed=True, stamp=stamp_of(view.ballot)))

    def _show_group(self, roster: Roster, stamp: int, starts: dict[int, int]) -> None:
        known = dict(zip(self._view.members, self._view.names, strict=True))
        names = {member: known.get(member, "") for member in roster.members}
        members, promises = tuple(roster.members), roster.promises
        self.tell_up(Members(roster.group, members, names, True, promises, stamp, starts))

    def _own_word(self) -> Word:
        agreed = self._proposal.ballot if self._agreed and self._proposal is not None else self._view.ballot
        if self._attempts:  # what it once agreed to somebody may have formed
            agreed = max(agreed, self._attempts[-1].view)
        epoch = self._last.epoch if self._last is not None else 0
        size, founders = len(self._members), self._founders
        return Word(self._view.ballot, agreed, size, epoch, self._primary, self._unfounded, founders)

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
            "refused": self.refused,
            "flushes": self.flushes,
            "flush_s_last": self.flush_s[-1] if flushes else 0.0,
            "flush_s_p95": flushes[int(len(flushes) * 0.95)] if flushes else 0.0,
            "flush_s_max": flushes[-1] if flushes else 0.0,
        }

    def validate(self) -> None:
        assert self.node.me in self._members
        assert self._promised >= self._view.ballot
        assert not self._agreed or self._proposal is not None
        assert ALL not in self._members

    # What leading and following ask of each other

    def _look_soon(self, delay_s: float = GATHER_S) -> None:
        raise NotImplementedError

    def _invited(self, leader: int, invite: Invite) -> None:
        raise NotImplementedError

    def _proposed(self, leader: int, propose: Propose) -> None:
        raise NotImplementedError

    def _enter(self) -> None:
        raise NotImplementedError
