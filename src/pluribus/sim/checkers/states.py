"""Checkers of state transfer, for states that are the list of applied messages: none twice, none left out."""

from __future__ import annotations

import msgspec

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import Happening, History

_decode = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode

Place = tuple[int, str]
"""A member and a group."""


class Kept:
    """One member's state of one group, as its own reader made it."""

    __slots__ = ("applied", "point", "views")

    def __init__(self, applied: list[MessageId], point: int) -> None:
        self.applied = dict.fromkeys(applied)
        self.point = point
        self.views: list[MessageId] = []


def applied_once(history: History) -> int:
    """No member applies a message that its state holds, whether it applied it itself or was given it."""
    kept: dict[Place, set[MessageId]] = {}
    checks = 0
    for h in history.happenings:
        place = (h.member, h.group)
        if h.what == "open":
            kept[place] = set()
        elif h.what == "restored":
            given = _decode(h.body)
            kept[place] = set(given)
            if len(kept[place]) < len(given):
                raise Violation(f"{MemberId(h.member)!r} was given a state of {h.group!r} that holds a message twice")
        elif h.what == "apply":
            checks += 1
            if h.id in kept[place]:
                raise Violation(f"{MemberId(h.member)!r} applied {h.id} of {h.group!r} at {h.at:.6f} a second time")
            kept[place].add(h.id)
    return checks


def nothing_left_out(history: History) -> int:
    """What a member is delivered in the view of the state that it was given, and later, it applies, or its state holds
    it already. ``view`` and ``deliver`` are what the stack tells, ``restored``, ``older``, ``apply`` and ``end`` what
    the reader comes to. A state that goes on although it is older begins anew with that view: what was delivered before
    to who waited for a later state is lost with those who had it. So nobody in that view may have a later one."""
    delivered: dict[Place, list[tuple[int, MessageId]]] = {}
    view: dict[Place, int] = {}
    states: dict[Place, Kept] = {}
    checks = 0
    for h in history.happenings:
        place = (h.member, h.group)
        if h.what == "open":
            states[place] = Kept([], -1)
            delivered[place] = []
            view.pop(place, None)
        elif h.what == "view" and h.member in h.members:
            view[place] = h.id[0]
        elif h.what == "deliver" and place in view:
            delivered[place].append((view[place], h.id))
        elif h.what == "founded":
            states[place] = Kept([], h.id[0])
        elif h.what == "restored":
            states[place] = Kept(_decode(h.body), h.id[0])
        elif h.what == "older":
            states[place].point = h.id[0]
        elif h.what == "apply":
            states[place].applied[h.id] = None
        elif h.what == "end":
            checks += _complete(h, states[place], delivered[place])
    return checks + _latest_goes_on(history)


def _latest_goes_on(history: History) -> int:
    """A member that goes on with an older state lacks nothing that another member of the view has applied. A state that
    has nothing in common with it is of another chain of primaries; a member that was given a state in this view follows
    it."""
    applied: dict[Place, set[MessageId]] = {}
    follows: dict[Place, int] = {}
    checks = 0
    for h in history.happenings:
        place = (h.member, h.group)
        if h.what == "open":
            applied[place] = set()
            follows.pop(place, None)
        elif h.what == "restored":
            applied[place] = set(_decode(h.body))
            follows[place] = h.id[0]
        elif h.what == "apply":
            applied[place].add(h.id)
        elif h.what == "older":
            follows[place] = h.id[0]
            for other in h.members:
                theirs = applied.get((other, h.group), set())
                if follows.get((other, h.group), -1) >= h.id[0]:
                    continue
                checks += len(theirs)
                if theirs & applied[place] and not theirs <= applied[place]:
                    who, whom = MemberId(h.member), MemberId(other)
                    raise Violation(f"{who!r} goes on with an older state of {h.group!r} than {whom!r} has")
    return checks


def _complete(h: Happening, state: Kept, delivered: list[tuple[int, MessageId]]) -> int:
    expected = [message for point, message in delivered if point >= state.point]
    for message in expected:
        if message not in state.applied:
            raise Violation(f"{MemberId(h.member)!r} was delivered {message} of {h.group!r}, and its state lacks it")
    return len(expected)


def same_state(history: History) -> int:
    """In ordered groups, all members that are up in the end have applied the same messages in the same order."""
    first: dict[str, Happening] = {}
    checks = 0
    for h in history.of("end"):
        if not h.promises.startswith("total"):
            continue
        mine, theirs = _decode(h.body), _decode(first.setdefault(h.group, h).body)
        checks += len(mine)
        if mine != theirs:
            at = next((at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), -1)
            raise Violation(
                f"{MemberId(h.member)!r} and {MemberId(first[h.group].member)!r} ended with different states of "
                f"{h.group!r}, from place {at} on"
            )
    return checks


def heard(history: History) -> int:
    """Liveness: messages sent after the last fault are in every member's state in the end."""
    settled = next(history.of("settled"), None)
    if settled is None:
        return 0
    ends = {(h.member, h.group): set(_decode(h.body)) for h in history.of("end")}
    checks = 0
    for h in history.of("send"):
        if h.at > settled.at:
            for (member, group), state in ends.items():
                if group == h.group:
                    checks += 1
                    if h.id not in state:
                        raise Violation(f"{MemberId(member)!r} lacks {h.id} of {group!r}, sent after all faults")
    return checks
