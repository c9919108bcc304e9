"""Checkers of objects. A history tells, by the body of each message or call, which is used once:

``told`` (to one of an alias), ``asked``, ``broadcast``, ``called`` (queued): by the sender. ``handled`` (``group`` is
the object's id, ``promises`` its role), ``guarded`` (by a preemptive object), ``done`` (a queued call). ``answer`` and
``result`` (``promises`` is the value), ``over`` (``promises`` says how it ended). ``settled`` when all faults are over:
``promises`` has the ids of all objects of the alias, one after another.
"""

from __future__ import annotations

from collections import Counter

from ...core.errors import Violation
from ...core.ids import MemberId
from ..machinery.history import History

ANSWERED, FAILED, UNCERTAIN = "answered", "failed", "uncertain"


def expected(body: bytes) -> str:
    """The answer of an object."""
    return f"re {body.decode()}"


def one_handles_it(history: History) -> int:
    """A message or question to one object of an alias is handled by one of them, once; in a calm network, surely."""
    settled = next(history.of("settled"), None)
    handled: Counter[bytes] = Counter(h.body for h in history.of("handled"))
    checks = 0
    for h in history.happenings:
        if h.what in ("told", "asked"):
            checks += 1
            if handled[h.body] > 1:
                raise Violation(f"{h.body!r} was for one object, and was handled {handled[h.body]} times")
            if settled is not None and h.at >= settled.at and not handled[h.body]:
                raise Violation(f"{h.body!r} was sent in a calm network, and nobody handled it")
    return checks


def all_handle_it(history: History) -> int:
    """A broadcast is handled by no object twice; in a calm network, by every object of the alias."""
    settled = next(history.of("settled"), None)
    handled: Counter[tuple[bytes, str]] = Counter((h.body, h.group) for h in history.of("handled"))
    checks = 0
    for h in history.of("broadcast"):
        checks += 1
        if settled is not None and h.at >= settled.at:
            for id in settled.promises.split():
                if handled[(h.body, id)] != 1:
                    raise Violation(f"{id} handled the broadcast {h.body!r} {handled[(h.body, id)]} times")
    for (body, id), times in handled.items():
        checks += 1
        if times > 1:
            raise Violation(f"{id} handled {body!r} {times} times")
    return checks


def answers_are_the_askers(history: History) -> int:
    """An answer is the one to that question, which an object handled."""
    handled = {h.body for h in history.of("handled")}
    checks = 0
    for h in history.of("answer"):
        checks += 1
        if h.promises != expected(h.body):
            raise Violation(f"{MemberId(h.member)!r} asked {h.body!r} and was answered {h.promises!r}")
        if h.body not in handled:
            raise Violation(f"{h.body!r} was answered, and nobody handled it")
    return checks


def asks_end(history: History) -> int:
    """Every question of a process that is still there is over in the end."""
    over = {h.body for h in history.of("over")}
    there = next(history.of("settled")).members
    checks = 0
    for h in history.of("asked"):
        checks += 1
        if h.body not in over and h.member in there:
            raise Violation(f"{MemberId(h.member)!r} asked {h.body!r} at {h.at:.3f}, and still waits")
    return checks


def guards_come_first(history: History) -> int:
    """The target of a preemptive object handles nothing that its preemptive object has not seen before."""
    seen: set[bytes] = set()
    checks = 0
    for h in history.happenings:
        if h.what == "guarded":
            seen.add(h.body)
        elif h.what == "handled" and h.promises == "target":
            checks += 1
            if h.body not in seen:
                raise Violation(f"a target handled {h.body!r} before its preemptive object")
    return checks


def queued_calls_are_done_once(history: History) -> int:
    """A queued call is done at most once; one that was answered was done."""
    done: Counter[bytes] = Counter(h.body for h in history.of("done"))
    checks = 0
    for body, times in done.items():
        checks += 1
        if times > 1:
            raise Violation(f"the queued call {body!r} was done {times} times")
    for h in history.of("result"):
        checks += 1
        if h.promises not in (expected(h.body), UNCERTAIN):
            raise Violation(f"the queued call {h.body!r} returned {h.promises!r}")
        if h.promises != UNCERTAIN and not done[h.body]:
            raise Violation(f"the queued call {h.body!r} has a result, and nobody did it")
    return checks
