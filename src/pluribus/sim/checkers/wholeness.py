"""Checkers for missing messages: in the middle of a stream, when a member leaves, in the last view, for a reader."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import History
from .orders import groups_of
from .views import GroupStay, GroupViewKey, group_stays

Stream = tuple[str, int]
"""A group and a sender in it."""


def without_gaps(history: History) -> int:
    """In a view of a group a member delivers what a sender sent without leaving one out, whichever of them dies. What
    the sender was told is uncertain may be missing. In semantic order what is late waits alone, so it is not looked
    at."""
    groups = groups_of(history, "fifo", "causal", "total")
    uncertain = {(h.group, h.id) for h in history.of("uncertain")}
    sent: dict[Stream, list[int]] = {}
    for h in history.of("send"):
        if h.group in groups and (h.group, h.id) not in uncertain:
            sent.setdefault((h.group, h.id[0]), []).append(h.id[1])
    before: dict[tuple[str, MessageId], int] = {}
    for (group, sender), numbers in sent.items():
        numbers.sort()
        before.update({(group, (sender, later)): number for number, later in pairwise(numbers)})
    checks = 0
    for stay in group_stays(history):
        last: dict[int, int] = {}
        for sender, number in stay.delivered if stay.key[0] in groups else ():
            checks += 1
            missed = before.get((stay.key[0], (sender, number)), -1)
            if sender in last and missed > last[sender]:
                raise Violation(
                    f"{MemberId(stay.member)!r} delivered {(sender, number)} in view {stay.key[1][0]} of "
                    f"{stay.key[0]!r} without {missed} before it"
                )
            last[sender] = number
    return checks


def alike_in_the_end(history: History) -> int:
    """Members of the same view of a group in the end delivered the same in it; in total order, in the same order. A
    member that left it before delivered nothing in its last view that those who stayed did not, its own last words
    too."""
    stays = group_stays(history)
    return _in_the_last_view(history, stays) + _before_leaving(stays)


def _in_the_last_view(history: History, stays: list[GroupStay]) -> int:
    settled = next(history.of("settled"), None)
    survivors = set(settled.members) if settled is not None else set()
    ordered = groups_of(history, "total")
    first: dict[GroupViewKey, GroupStay] = {}
    checks = 0
    for stay in stays:
        if stay.member not in survivors or stay.next is not None or stay.left is not None:
            continue
        other = first.setdefault(stay.key, stay)
        checks += len(stay.delivered)
        mine, theirs = stay.delivered, other.delivered
        if mine != theirs if stay.key[0] in ordered else set(mine) != set(theirs):
            raise Violation(
                f"{MemberId(stay.member)!r} and {MemberId(other.member)!r} ended in view {stay.key[1][0]} of "
                f"{stay.key[0]!r} with {len(mine)} and {len(theirs)} messages, and not with the same"
            )
    return checks


def _before_leaving(stays: list[GroupStay]) -> int:
    stayed: dict[tuple[GroupViewKey, GroupViewKey], GroupStay] = {}
    for stay in stays:
        if stay.next is not None:
            stayed.setdefault((stay.key, stay.next), stay)
    checks = 0
    for stay in stays:
        other = stayed.get((stay.key, stay.left)) if stay.left is not None else None
        if other is not None:
            checks += len(stay.delivered)
            alone = set(stay.delivered) - set(other.delivered)
            if alone:
                raise Violation(
                    f"{MemberId(stay.member)!r} left {stay.key[0]!r} with {min(alone)}, which "
                    f"{MemberId(other.member)!r}, who stayed, has not delivered"
                )
    return checks


def all_is_read(history: History) -> int:
    """A reader gets what comes up for its group, in that order and with nothing left out, until it leaves the group or
    its member is gone. ``read`` is what the application was given, ``leave`` that it closes the group: from there to
    the view in which it is back nobody reads."""
    settled = next(history.of("settled"), None)
    survivors = set(settled.members) if settled is not None else set()
    unread: dict[tuple[int, str], deque[MessageId]] = {}
    leaving: set[tuple[int, str]] = set()
    checks = 0
    for h in history.happenings:
        where = (h.member, h.group)
        if h.what == "leave":
            unread.pop(where, None)
            leaving.add(where)
        elif h.what == "view" and h.member not in h.members:
            leaving.discard(where)
        elif h.what == "view" and where not in leaving:
            unread.setdefault(where, deque())
        elif h.what == "deliver" and where in unread:
            unread[where].append(h.id)
        elif h.what == "read" and where in unread:
            checks += 1
            due = unread[where].popleft() if unread[where] else None
            if due != h.id:
                raise Violation(f"a reader of {h.group!r} at {MemberId(h.member)!r} got {h.id}, and {due} was next")
    for (member, group), missed in unread.items():
        if missed and member in survivors:
            raise Violation(f"a reader of {group!r} at {MemberId(member)!r} never got {missed[0]}, which had come up")
    return checks
