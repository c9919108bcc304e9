"""Which view may be a primary: a chain in which every link is agreed by a majority of the one before.

Theory
------
Every member remembers the last primary that it was in, and the attempts at later primaries to which it agreed without
learning whether they were formed. An attempt is formed only after *all* its members agreed to it. So a set of members
that holds a majority of an attempt holds a member that remembers it. Hence the rule: a set of members may form the next
primary if it holds a majority of the last link that any of them knows, and of every later attempt that any of them
remembers, because members that cannot be asked now may have formed that attempt. Two disjoint sets cannot both hold a
majority of the same link; so there is one chain.

Exactly half suffices if it holds the eldest member of the link (dynamic linear voting).

Members that left for good from the last link, and that had agreed to nothing later when they said so, do not count.
They will never be in another set, so two disjoint sets would still have to share a member, whichever set heard of the
leaving.

If all members of an attempt are here and none of them is in it, it was never formed and is forgotten.

The first link has no link before it, so the rule above does not prevent two sets of starters from founding two chains.
A first link needs ``founders`` members, the greatest number that any of them asks for. And its leader needs a permit
(``leading``, *Founding*): it has listened for longer than a living member needs to be heard, and it alone holds the
lock that all members of a primary on its machine share, whether they run or are stopped. A member that agreed to an
earlier attempt at a first link has held that lock since, and that attempt had a permit; if such a member is here, no
other permit is needed.

Different chains can meet when processes were started apart. The longer chain wins, then the chain with more members
here, then the smaller lineage. Members of the other chains count as newcomers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from ...core import view
from .words import NO_BALLOT, Ballot, Link, Past


def is_quorum(here: Iterable[int], link: Link, left: Container[int] = ()) -> bool:
    """True for a majority of the link's members, or for half of them with the eldest; ``left`` are not counted."""
    return view.is_quorum(frozenset(here), [member for member in link.members if member not in left])


def chain_of(pasts: dict[int, Past]) -> int | None:
    """The lineage that continues when these members meet; None if none of them was ever in a primary."""
    best: dict[int, tuple[int, int, int]] = {}
    for past in pasts.values():
        if past.last is not None:
            epoch, count, _ = best.get(past.last.lineage, (0, 0, 0))
            best[past.last.lineage] = (max(epoch, past.last.epoch), count + 1, -past.last.lineage)
    return max(best, key=lambda lineage: best[lineage]) if best else None


def latest(pasts: dict[int, Past]) -> Link | None:
    """The last link that any of these members was in, of the chain that continues."""
    lineage = chain_of(pasts)
    own = [past.last for past in pasts.values() if past.last is not None and past.last.lineage == lineage]
    return max(own, key=lambda link: (link.epoch, link.view), default=None)


def next_link(
    ballot: Ballot,
    members: tuple[int, ...],
    pasts: dict[int, Past],
    views: dict[int, Ballot],
    founders: int,
    permit: Callable[[], bool] = lambda: True,
) -> Link | None:
    """The link that these members may form under this ballot, or None. ``views`` has the present view of each of them.
    ``permit`` is asked if the link would be the first of a new chain."""
    lineage = chain_of(pasts)
    attempts = {attempt for past in pasts.values() for attempt in past.attempts}
    if lineage is None:
        open_attempts = [a for a in attempts if not _refuted(a, pasts, views)]
        if len(members) < founders or not all(is_quorum(members, attempt) for attempt in open_attempts):
            return None
        return first_link(ballot, members, pasts) if attempts or permit() else None
    last = latest(pasts)
    assert last is not None, "there is a lineage, so somebody was in it"
    later = [a for a in attempts if a.lineage == lineage and (a.epoch, a.view) > (last.epoch, last.view)]
    open_attempts = [attempt for attempt in later if not _refuted(attempt, pasts, views)]
    left = {member for past in pasts.values() if past.last == last for member in past.left}
    if not is_quorum(members, last, left) or not all(is_quorum(members, attempt) for attempt in open_attempts):
        return None
    epoch = max([last.epoch, *(attempt.epoch for attempt in later)]) + 1
    return Link(lineage, epoch, ballot, members, last.view)


def first_link(ballot: Ballot, members: tuple[int, ...], pasts: dict[int, Past]) -> Link:
    """The first link of a new chain. Its epoch is greater than all that its members have seen, so that this chain wins
    when chains meet. If the chain is forced, members that come from the same primary continue its order."""
    epoch = max([past.last.epoch for past in pasts.values() if past.last is not None], default=0) + 1
    recent = latest(pasts)
    after = recent.view if recent is not None else NO_BALLOT
    return Link(ballot[0] << 20 | ballot[1] & 0xFFFFF, epoch, ballot, members, after)


def _refuted(attempt: Link, pasts: dict[int, Past], views: dict[int, Ballot]) -> bool:
    """True if all members of the attempt are here and none of them formed it."""
    return all(member in pasts for member in attempt.members) and all(
        views[member] != attempt.view and (pasts[member].last is None or pasts[member].last.view != attempt.view)  # type: ignore[union-attr]
        for member in attempt.members
    )
