"""Promises, each as a function that reads a history, counts what it checked, and raises ``Violation`` at the first
breach.

A checker that made no checks proves nothing; campaigns report the counts and fail when they are too small.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import Happening, History

Checker = Callable[[History], int]


def integrity(history: History) -> int:
    """What is delivered was sent, by that sender, with that body, in that group, and is delivered once a member."""
    sent: dict[tuple[str, MessageId], bytes] = {(h.group, h.id): h.body for h in history.of("send")}
    seen: set[tuple[int, str, MessageId]] = set()
    checks = 0
    for h in history.of("deliver"):
        checks += 1
        body = sent.get((h.group, h.id))
        if body is None:
            raise Violation(f"{_who(h)} delivered {h.id} in {h.group!r} at {h.at:.6f}, which nobody sent")
        if body != h.body:
            raise Violation(f"{_who(h)} delivered {h.id} in {h.group!r} at {h.at:.6f} with another body")
        key = (h.member, h.group, h.id)
        if key in seen:
            raise Violation(f"{_who(h)} delivered {h.id} in {h.group!r} a second time at {h.at:.6f}")
        seen.add(key)
    return checks


def fifo(history: History) -> int:
    """No member delivers a sender's message after a later one of that sender in the same group."""
    last: dict[tuple[int, str, int], int] = {}
    checks = 0
    for h in history.of("deliver"):
        checks += 1
        sender, sequence = h.id
        key = (h.member, h.group, sender)
        if sequence <= last.get(key, -1):
            raise Violation(f"{_who(h)} delivered {h.id} after {last[key]} of the same sender at {h.at:.6f}")
        last[key] = sequence
    return checks


def reached(history: History) -> int:
    """Liveness: what was sent after the last fault, in a calm network, was delivered by every member that was there.

    ``settled`` marks the moment, with the members that are up; messages sent later must reach all of them.
    """
    settled = next((h for h in history.of("settled")), None)
    if settled is None:
        return 0
    delivered = {(h.member, h.group, h.id) for h in history.of("deliver")}
    checks = 0
    for h in history.of("send"):
        if h.at <= settled.at:
            continue
        for member in settled.members:
            checks += 1
            if (member, h.group, h.id) not in delivered:
                raise Violation(
                    f"{MemberId(member)!r} never delivered {h.id} of {h.group!r}, sent at {h.at:.6f} after all faults"
                )
    return checks


def _who(h: Happening) -> str:
    return repr(MemberId(h.member))
