"""Checkers of causal and semantic order, and the restriction of a checker to certain groups."""

from __future__ import annotations

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import History
from .delivery import Checker


def groups_of(history: History, *words: str) -> frozenset[str]:
    """The groups whose members were promised one of these."""
    return frozenset(h.group for h in history.of("view") if any(word in words for word in h.promises.split()))


def among(check: Checker, *words: str) -> Checker:
    """The checker for groups that were promised one of these alone; it sees nothing of the others."""

    def checked(history: History) -> int:
        groups = groups_of(history, *words)
        part = History()
        part.happenings = [h for h in history.happenings if not h.group or h.group in groups]
        return check(part)

    return checked


def causal(history: History) -> int:
    """No member delivers a message before one that its sender had delivered, in the same view of the group, when it
    sent it.

    The sender's order among its own messages is the fifo checker's. A message that was sent when one view ended may
    travel in the next one; what its sender had delivered before then is no cause there, because the view was finished.
    """
    groups = groups_of(history, "causal")
    view: dict[tuple[int, str], MessageId] = {}
    latest: dict[tuple[int, str], dict[int, int]] = {}
    causes: dict[tuple[str, MessageId], tuple[MessageId | None, dict[int, int]]] = {}
    checks = 0
    for h in history.happenings:
        if h.group in groups and h.what == "view":
            view[(h.member, h.group)] = h.id
            latest[(h.member, h.group)] = {}
        elif h.group in groups and h.what == "send":
            had = latest.get((h.member, h.group), {}).copy()
            had.pop(
                h.member, None
            )  # its own are the fifo checker's; this one may have come back before ``send`` returned
            causes[(h.group, h.id)] = (view.get((h.member, h.group)), had)
        elif h.group in groups and h.what == "deliver":
            mine = latest.setdefault((h.member, h.group), {})
            then, needed = causes.get((h.group, h.id), (None, {}))
            if then is not None and then == view.get((h.member, h.group)):
                for sender, number in needed.items():
                    checks += 1
                    if mine.get(sender, -1) < number:
                        raise Violation(
                            f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r} at {h.at:.6f} before "
                            f"{(sender, number)}, which its sender had delivered when it sent it"
                        )
            mine[h.id[0]] = h.id[1]
    return checks


def semantic(history: History) -> int:
    """No member delivers a message before the one that it answers, unless it is marked as an orphan; and it is marked
    only if that one was not delivered.

    A member that was not there when the parent was delivered gets the answer alone, unmarked: the parent is not lost.
    One that left the group and came back is new to it.
    """
    groups = groups_of(history, "semantic")
    parents = {(h.group, h.id): h.parent for h in history.of("send") if h.group in groups}
    places = _places(history, groups)
    view: dict[tuple[int, str], MessageId] = {}
    had: dict[tuple[int, str], set[MessageId]] = {}
    orphaned: set[tuple[int, str, MessageId, MessageId | None]] = set()
    checks = 0
    for h in history.happenings:
        if h.what == "view":
            view[(h.member, h.group)] = h.id
            if h.member not in h.members:
                had.pop((h.member, h.group), None)
        if h.what != "deliver" or h.group not in groups:
            continue
        here = view.get((h.member, h.group))
        where = f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r} at {h.at:.6f}"
        mine = had.setdefault((h.member, h.group), set())
        mine.add(h.id)
        if (h.member, h.group, h.id, here) in orphaned:
            raise Violation(f"{where} after an answer to it, which was marked as an orphan")
        if h.parent != parents.get((h.group, h.id), h.parent):
            raise Violation(f"{where} as an answer to {h.parent}, which it is not")
        if h.parent is None:
            continue
        checks += 1
        if h.orphan:
            if h.parent in mine:
                raise Violation(f"{where} as an orphan, after its parent {h.parent}")
            orphaned.add((h.member, h.group, h.parent, here))
        elif h.parent not in mine:
            seen = places.get((h.group, h.parent), set())
            if not seen or here in seen:
                raise Violation(f"{where} before its parent {h.parent}")
    return checks


def answers(history: History) -> int:
    """No member delivers a message after an answer to it, in whatever view, unless that was marked as an orphan; and
    what is marked was not delivered after its parent. A member that leaves the group and comes back is new to it."""
    answered: dict[tuple[int, str], set[MessageId]] = {}
    had: dict[tuple[int, str], set[MessageId]] = {}
    talks = {h.group for h in history.of("deliver") if h.parent is not None}
    checks = 0
    for h in history.happenings:
        key = (h.member, h.group)
        if h.what == "view" and h.member not in h.members:
            answered.pop(key, None)
            had.pop(key, None)
        elif h.what == "deliver" and h.group in talks:
            checks += 1
            where = f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r} at {h.at:.6f}"
            early = answered.setdefault(key, set())
            if h.id in early:
                raise Violation(f"{where} after an answer to it")
            mine = had.setdefault(key, set())
            mine.add(h.id)
            if h.orphan and h.parent in mine:
                raise Violation(f"{where} as an orphan, after its parent {h.parent}")
            if h.parent is not None and not h.orphan and h.parent not in mine:
                early.add(h.parent)
    return checks


def unmarked(history: History) -> int:
    """Without agreed views: an answer that comes without its parent is marked as an orphan, unless the parent is older
    than the first message of its sender that the member has heard since it joined the group."""
    began: dict[tuple[int, str], dict[int, int]] = {}
    had: dict[tuple[int, str], set[MessageId]] = {}
    checks = 0
    for h in history.happenings:
        key = (h.member, h.group)
        if h.what == "view" and h.member not in h.members:
            had.pop(key, None)
            began.pop(key, None)
        elif h.what == "deliver":
            mine, first = had.setdefault(key, set()), began.setdefault(key, {})
            if h.parent is not None and not h.orphan:
                checks += 1
                sender, number = h.parent
                if h.parent not in mine and first.get(sender, number + 1) <= number:
                    raise Violation(
                        f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r} at {h.at:.6f} without its parent "
                        f"{h.parent}, which it should have waited for, and without a mark"
                    )
            mine.add(h.id)
            first[h.id[0]] = min(first.get(h.id[0], h.id[1]), h.id[1])
    return checks


def _places(history: History, groups: frozenset[str]) -> dict[tuple[str, MessageId], set[MessageId]]:
    """By message: the views of its group in which anybody delivered it."""
    found: dict[tuple[str, MessageId], set[MessageId]] = {}
    view: dict[tuple[int, str], MessageId] = {}
    for h in history.happenings:
        if h.what == "view":
            view[(h.member, h.group)] = h.id
        elif h.what == "deliver" and h.group in groups and (h.member, h.group) in view:
            found.setdefault((h.group, h.id), set()).add(view[(h.member, h.group)])
    return found
