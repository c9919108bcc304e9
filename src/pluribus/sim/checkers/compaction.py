"""Checkers for a topic that keeps the last event of each key.

Clients write down ``sent`` and ``acked`` (of a publisher; the body is ``KEY NUMBER``) and ``read`` (offset, and which
reading it was). Keepers write down ``final``: everything that is there when the last pass is over.
"""

from __future__ import annotations

from ...core.errors import Violation
from ..machinery.history import History
from .durable_topics import finals_of

NO_KEY = b"-"


def key_of(body: bytes) -> bytes:
    return body.split()[0]


def last_of_each_key(history: History) -> int:
    """Every keeper ends with the same events: of each key that was acknowledged one, and no event that was acknowledged
    before another of its key was sent."""
    finals = list(history.of("final"))
    checks = 0
    for h in finals:
        checks += 1
        if h.body != finals[0].body:
            raise Violation(f"keepers {finals[0].member} and {h.member} end with different topics")
    left: dict[bytes, list[bytes]] = {}
    for _, events in finals_of(history).topics.values():
        for _, _, _, body in events:
            left.setdefault(key_of(body), []).append(body)
    sent_at = {h.body: h.at for h in history.of("sent")}
    acked_at = {h.body: h.at for h in history.of("acked")}
    for body in acked_at:
        key = key_of(body)
        if key == NO_KEY:
            continue
        checks += 1
        if len(left.get(key, ())) != 1:
            raise Violation(f"of the key {key!r} there are {left.get(key, [])} at the end: one was to stay")
        kept = left[key][0]
        if acked_at.get(kept, float("inf")) < sent_at[body]:
            raise Violation(f"{kept!r} stayed, and {body!r} was sent after it was acknowledged")
    return checks


def nothing_else_went(history: History) -> int:
    """Events without a key stay, and no reader finds an event that was not sent."""
    sent = {h.body for h in history.of("sent")}
    there = {body for _, events in finals_of(history).topics.values() for _, _, _, body in events}
    checks = 0
    for h in history.of("acked"):
        if key_of(h.body) == NO_KEY:
            checks += 1
            if h.body not in there:
                raise Violation(f"{h.body!r} has no key, was acknowledged, and is gone")
    for body in there:
        checks += 1
        if body not in sent:
            raise Violation(f"{body!r} is there, and nobody sent it")
    return checks


def read_onward(history: History) -> int:
    """A reading comes to higher offsets only, and an offset is the same event to everybody."""
    last: dict[int, int] = {}
    bodies: dict[int, bytes] = {}
    for _, events in finals_of(history).topics.values():
        bodies |= {offset: body for offset, _, _, body in events}
    checks = 0
    for h in history.of("read"):
        offset, reading = h.id
        checks += 1
        if offset <= last.get(reading, -1):
            raise Violation(f"a reader came from offset {last[reading]} to {offset}")
        last[reading] = offset
        if bodies.setdefault(offset, h.body) != h.body:
            raise Violation(f"offset {offset} is {bodies[offset]!r}, and {h.body!r} to a reader")
    return checks
