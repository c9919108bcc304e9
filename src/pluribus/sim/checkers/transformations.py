"""Messages that are transformed on the way from one queue to another: each is moved once, and a message that cannot be
transformed is kept with the reason.

Senders write down ``sending`` and, when it is confirmed, ``sent``: the number of a message, and in the body whether it
can be transformed. At the end ``moved`` and ``dead`` are written down for every message of the target, and for every
dead letter of the source: its number, with what it holds, or with its reason.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from ...core.errors import Violation
from ..machinery.history import History

_decode = msgspec.msgpack.decode


def _numbers(history: History, what: str, good: bool) -> set[int]:
    return {h.id[0] for h in history.of(what) if _decode(h.body) is good}


def moved_once(history: History) -> int:
    """What was confirmed and can be transformed is in the target, once; nothing else is there."""
    moved = Counter(h.id[0] for h in history.of("moved"))
    twice = [number for number, count in moved.items() if count > 1]
    if twice:
        raise Violation(f"messages {sorted(twice)[:5]} are in the target more than once")
    lost = _numbers(history, "sent", True) - moved.keys()
    if lost:
        raise Violation(f"messages {sorted(lost)[:5]} were confirmed, and are not in the target")
    strange = moved.keys() - _numbers(history, "sending", True)
    if strange:
        raise Violation(f"messages {sorted(strange)[:5]} are in the target, and nobody sent them so")
    return len(moved)


def transformed_whole(history: History) -> int:
    """A message in the target is the result of the chain."""
    checks = 0
    for h in history.of("moved"):
        checks += 1
        if _decode(h.body) != [3 * h.id[0], f"key {h.id[0] % 5}"]:
            raise Violation(f"message {h.id[0]} came as {_decode(h.body)!r}")
    return checks


def failures_kept(history: History) -> int:
    """A message that cannot be transformed is a dead letter of the source, once, with the reason."""
    dead = Counter(h.id[0] for h in history.of("dead"))
    twice = [number for number, count in dead.items() if count > 1]
    if twice:
        raise Violation(f"messages {sorted(twice)[:5]} are dead letters more than once")
    lost = _numbers(history, "sent", False) - dead.keys()
    if lost:
        raise Violation(f"messages {sorted(lost)[:5]} cannot be transformed, and are no dead letters")
    for h in history.of("dead"):
        reason = _decode(h.body)
        if h.id[0] not in _numbers(history, "sending", False) or "step 1, json" not in reason:
            raise Violation(f"message {h.id[0]} is a dead letter: {reason}")
    return len(dead)
