"""Two foundings at once.

Who begins a log judges by what it has heard, so two keepers may each begin one, with the same founders: a keeper whose
process stood still begins one in a view that is over, and another one hears what it said before that. The elections
decide: a leader needs most of the founders, and each of these belongs to one log. The other log was founded *in vain*
(``Ledger.in_vain``), and who belongs to it has nothing but, perhaps, its first row. It leaves

- when the leader of another log speaks to it, and it hears none of its own;
- before any election, when a candidate of a log with a higher number asks it. Else two founders of three would wait for
  the third.

**Why nothing is lost.** No row of a keeper that leaves was counted for anything that was acknowledged, and it keeps
what it promised.
"""

from __future__ import annotations

from .candidate import Candidate
from .follower import Follower
from .leader import Leader
from .seat import Seat
from .words import Ask, Offer, Piece, Rows, Word


def gives_way(seat: Seat, role: Follower | Candidate | Leader | None, cluster: int, word: Word) -> bool:
    """Whether a keeper that hears this word of another log leaves its own, and belongs to none again."""
    ledger = seat.ledger
    if role is None or role.hears_leader or seat.commit or not ledger.in_vain:
        return False
    if isinstance(word, Ask):
        return ledger.epoch == 0 and cluster > ledger.meta.cluster
    return isinstance(word, (Rows, Offer, Piece))
