"""Checkers of total and safe order, and of what is told to those who miss some of it."""

from __future__ import annotations

from collections.abc import Collection

from ..core.errors import Violation
from ..core.ids import MemberId, MessageId
from .history import History
from .orders import groups_of
from .views import GroupStay, GroupViewKey, ViewKey, group_stays, together

Place = tuple[str, MessageId]


def total(history: History) -> int:
    """Members that leave a view together delivered what both delivered, of all groups, in the same order."""
    checks = 0
    sequences = _sequences(history, groups_of(history, "total"))
    for passage in together(history):
        first, *rest = passage
        theirs = sequences[(first.member, first.key)]
        for stay in rest:
            checks += len(theirs)
            mine = sequences[(stay.member, stay.key)]
            shared = set(mine) & set(theirs)
            one, other = [m for m in mine if m in shared], [m for m in theirs if m in shared]
            if one != other:
                at = next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
                who, whom = MemberId(stay.member), MemberId(first.member)
                raise Violation(
                    f"in view {stay.key[0]} {who!r} delivered {one[at]} where {whom!r} delivered {other[at]}"
                )
    return checks


def safe(history: History) -> int:
    """Uniform: of two members of a group's view, whether they survived it or not, one delivered a beginning of what the
    other did."""
    checks = 0
    groups = groups_of(history, "safe")
    longest: dict[GroupViewKey, GroupStay] = {}
    for stay in sorted(group_stays(history), key=lambda stay: -len(stay.delivered)):
        if stay.key[0] not in groups:
            continue
        most = longest.setdefault(stay.key, stay)
        checks += len(stay.delivered)
        for mine, theirs in zip(stay.delivered, most.delivered, strict=False):
            if mine != theirs:
                raise Violation(
                    f"in view {stay.key[1][0]} of {stay.key[0]!r} {MemberId(stay.member)!r} delivered {mine} where "
                    f"{MemberId(most.member)!r} delivered {theirs}"
                )
    return checks


def reported(history: History) -> int:
    """What a member that is up in the end sent to a totally ordered group it delivers itself, or it is told that it is
    uncertain; never both. Who leaves the group does not wait for the answer."""
    settled = next(history.of("settled"), None)
    survivors = set(settled.members) if settled is not None else set()
    groups = groups_of(history, "total")
    own = {(h.group, h.id) for h in history.of("deliver") if h.id[0] == h.member}
    uncertain = {(h.group, h.id) for h in history.of("uncertain")}
    left = {(h.member, h.group): h.at for h in history.of("view") if h.member not in h.members}
    checks = 0
    for h in history.of("send"):
        if h.member in survivors and h.group in groups:
            checks += 1
            place = (h.group, h.id)
            if place not in own and place not in uncertain and h.at > left.get((h.member, h.group), -1.0):
                raise Violation(f"{MemberId(h.member)!r} never learned what became of its {h.id} of {h.group!r}")
            if place in own and place in uncertain:
                raise Violation(f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r}, and was told it is uncertain")
    return checks


def excluded(history: History) -> int:
    """A member that enters a primary is told that it was excluded if another member of it comes from a later primary of
    the same chain than it does itself, and only then."""
    entered: dict[int, list[tuple[MessageId, tuple[int, int]]]] = {}
    for h in history.of("bus"):
        if h.chain != (0, 0):
            entered.setdefault(h.member, []).append((h.id, h.chain))
    told = {(h.member, h.id) for h in history.of("excluded")}
    checks = 0
    for h in history.of("bus"):
        lineage = h.chain[0]
        before = {
            member: [chain for view, chain in entered.get(member, ()) if view < h.id][-1:] for member in h.members
        }
        mine = before.get(h.member)
        if not lineage or not mine or mine[0][0] != lineage:
            continue
        checks += 1
        latest = max(chain for chains in before.values() for chain in chains if chain[0] == lineage)
        if (latest > mine[0]) is not ((h.member, h.id) in told):
            what = "was not told that it missed one" if latest > mine[0] else "was told that it missed one"
            raise Violation(f"{MemberId(h.member)!r} came from primary {mine[0][1]} to {h.chain[1]} and {what}")
    return checks


def _sequences(history: History, groups: Collection[str]) -> dict[tuple[int, ViewKey], list[Place]]:
    """By member and view: what it delivered in these groups, in one sequence."""
    found: dict[tuple[int, ViewKey], list[Place]] = {}
    now: dict[int, ViewKey] = {}
    for h in history.happenings:
        if h.what == "bus":
            now[h.member] = (h.id, h.members)
            found[(h.member, now[h.member])] = []
        elif h.what == "deliver" and h.member in now and h.group in groups:
            found[(h.member, now[h.member])].append((h.group, h.id))
    return found
