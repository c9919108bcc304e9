"""Checkers of total and safe order."""

from __future__ import annotations

from collections.abc import Collection

from ..core.errors import Violation
from ..core.ids import MemberId, MessageId
from .history import History
from .orders import groups_of
from .views import ViewKey, stays, together

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
    """Uniform: of two members of a view, whether they survived it or not, one delivered a beginning of what the other
    did, as far as groups that both are in go."""
    checks = 0
    by_view: dict[ViewKey, list[int]] = {}
    groups = groups_of(history, "safe")
    sequences = _sequences(history, groups)
    shown: dict[tuple[int, ViewKey], dict[str, tuple[int, ...]]] = {}
    for stay in stays(history):
        by_view.setdefault(stay.key, []).append(stay.member)
        shown[(stay.member, stay.key)] = stay.groups
    for key, members in by_view.items():
        for one in members:
            for other in members:
                if one >= other:
                    continue
                both = {
                    group
                    for group in groups
                    if one in shown[(one, key)].get(group, ()) and other in shown[(one, key)].get(group, ())
                }
                mine = [place for place in sequences[(one, key)] if place[0] in both]
                theirs = [place for place in sequences[(other, key)] if place[0] in both]
                checks += min(len(mine), len(theirs))
                for a, b in zip(mine, theirs, strict=False):
                    if a != b:
                        raise Violation(
                            f"in view {key[0]} {MemberId(one)!r} delivered {a} where {MemberId(other)!r} delivered {b}"
                        )
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
