"""Checkers of the promises to senders from outside of a group: their messages are delivered once, in order, without
gaps, and a message is everywhere if its sender was told so.

Happenings: ``send`` and ``deliver`` with the sender's own identity; ``stable`` (the sender was told that everybody has
the message), ``view`` also of the sender, which is in none of them.
"""

from __future__ import annotations

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ...group.relay.words import RELAYED_FIRST
from ..machinery.history import Happening, History
from .views import group_stays


def relayed(history: History, what: str) -> list[Happening]:
    return [h for h in history.of(what) if h.id[1] >= RELAYED_FIRST]


def relayed_once(history: History) -> int:
    """A member delivers what was sent, with that body, once, and a sender's messages in the order of their numbers. One
    that was excluded, or left the group and came back, begins anew: it may have read what the others have not."""
    sent = {(h.group, h.id): h.body for h in relayed(history, "send")}
    last: dict[tuple[int, str, int], int] = {}
    checks = 0
    for h in history.happenings:
        if h.what == "excluded" or (h.what == "view" and h.member not in h.members):
            last = {key: number for key, number in last.items() if key[0] != h.member}
        if h.what != "deliver" or h.id[1] < RELAYED_FIRST:
            continue
        checks += 1
        if sent.get((h.group, h.id)) != h.body:
            raise Violation(f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r}, which was not sent so")
        key = (h.member, h.group, h.id[0])
        if h.id[1] <= last.get(key, -1):
            raise Violation(
                f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r} at {h.at:.6f} after {last[key]} of the same "
                "sender from outside"
            )
        last[key] = h.id[1]
    return checks


def relayed_without_gaps(history: History) -> int:
    """In a view of the group a sender's messages follow each other without a gap."""
    checks = 0
    for stay in group_stays(history):
        last: dict[int, int] = {}
        for sender, number in stay.delivered:
            if number >= RELAYED_FIRST:
                checks += 1
                if number != last.get(sender, number - 1) + 1:
                    raise Violation(
                        f"{MemberId(stay.member)!r} delivered {number} of {MemberId(sender)!r} after {last[sender]} in "
                        f"view {stay.key[1][0]} of {stay.key[0]!r}"
                    )
                last[sender] = number
    return checks


def relayed_everywhere(history: History) -> int:
    """What a sender from outside was told is everywhere was delivered by every member that was in all views of the
    group which the sender saw from the sending to that moment, unless it is gone, was excluded or left later."""
    settled = next(history.of("settled"), None)
    survivors = set(settled.members) if settled is not None else set()
    views: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
    for h in history.of("view"):
        views.setdefault(h.member, []).append((h.at, h.members))
    away = (h for h in history.happenings if h.what == "excluded" or (h.what == "view" and h.member not in h.members))
    last_away: dict[int, float] = {h.member: h.at for h in away}
    delivered: set[tuple[int, MessageId]] = {(h.member, h.id) for h in relayed(history, "deliver")}
    sent = {h.id: h.at for h in relayed(history, "send")}
    checks = 0
    for h in relayed(history, "stable"):
        since = sent[h.id]
        before = [members for at, members in views.get(h.member, []) if at < since][-1:]
        seen = before + [members for at, members in views.get(h.member, []) if since <= at <= h.at]
        for member in set.intersection(*map(set, seen)) & survivors if seen else ():
            if last_away.get(member, -1.0) < since:
                checks += 1
                if (member, h.id) not in delivered:
                    raise Violation(f"{MemberId(member)!r} never delivered {h.id}, which {h.group!r} was said to have")
    return checks
