"""Checkers of founding: effects that were acknowledged in a primary stay, and losses are reported."""

from __future__ import annotations

import msgspec

from ...core.errors import Violation
from ...core.events import Run
from ...core.ids import MemberId, MessageId
from ..machinery.history import Happening, History

_tokens = msgspec.msgpack.Decoder(list[MessageId]).decode
_runs = msgspec.msgpack.Decoder(list[Run]).decode

Token = tuple[str, MessageId]
"""An effect that a member wanted to be kept, by a call or by a message: its identity, as an application has it."""

APART = "apart"
"""Written down at first in a world whose members may be founded apart: there only the second promise holds."""


def kept(history: History) -> int:
    """Nothing that was acknowledged in a primary is lost while somebody lives who had it.

    ``acknowledged`` is what its caller was told. ``has`` is all that a member has at that moment, ``gets`` is one more.
    ``settled`` names those who live at the end, and ``end`` what each of them has."""
    lost = _lost(history)
    checks = sum(1 for _ in history.of("acknowledged"))
    if next(history.of(APART), None) is not None:
        return checks
    living = _living(history)
    had: dict[Token, set[int]] = {}
    for h in history.happenings:
        if h.what == "gets":
            had.setdefault((h.group, h.id), set()).add(h.member)
        elif h.what == "has":
            for token in _tokens(h.body):
                had.setdefault((h.group, token), set()).add(h.member)
    for h in lost:
        holders = had.get((h.group, h.id), set()) & living
        if holders:
            holder = MemberId(min(holders))
            raise Violation(
                f"{h.id} of {h.group} was acknowledged to {MemberId(h.member)!r} at {h.at:.6f} and is lost, although "
                f"{holder!r} lives, which had it"
            )
    return checks


def told(history: History) -> int:
    """A member that lives, and to which something was acknowledged that is lost, was told so."""
    living = _living(history)
    named: dict[tuple[int, str], list[Run]] = {}
    for h in history.of("dissolved"):
        named.setdefault((h.member, h.group), []).extend(_runs(h.body))
    for h in _lost(history):
        owner, number = h.parent or (0, 0)
        runs = named.get((h.member, h.group), [])
        if h.member in living and not any(of == owner and first <= number < stop for of, first, stop in runs):
            raise Violation(
                f"{h.id} of {h.group} was acknowledged to {MemberId(h.member)!r} at {h.at:.6f} and is lost, and it was "
                "never told"
            )
    return sum(1 for h in history.of("acknowledged") if h.member in living)


def alike(history: History) -> int:
    """In the end all members have the same."""
    ends: dict[str, Happening] = {}
    checks = 0
    for h in history.of("end"):
        checks += len(_tokens(h.body))
        first = ends.setdefault(h.group, h)
        if sorted(_tokens(h.body)) != sorted(_tokens(first.body)):
            raise Violation(f"{MemberId(h.member)!r} and {MemberId(first.member)!r} do not have the same {h.group}")
    return checks


def _living(history: History) -> set[int]:
    return {member for h in history.of("settled") for member in h.members}


def _lost(history: History) -> list[Happening]:
    """Acknowledged effects that no member has at the end."""
    final = {(h.group, token) for h in history.of("end") for token in _tokens(h.body)}
    return [h for h in history.of("acknowledged") if (h.group, h.id) not in final]
