"""Checkers for durable topics: acknowledged events are kept, once and in order, and read by every subscriber.

They read ``sent`` and ``acked`` (of a publisher; the number is the event's identity, the body its own), ``handled`` (of
a subscriber; offset and life), ``committed`` (the same, once a commit was confirmed), ``wrote`` (a writer's batch, once
its commit was confirmed; the body lists its events), and ``final`` (of a keeper; the body is everything it keeps).
"""

from __future__ import annotations

import msgspec

from ...core.errors import Violation
from ..machinery.history import History

SHORT = "short"
"""The topic from which retention removes."""
Kept = list[tuple[int, int, int, bytes]]
"""Offset, session, sequence and body."""


class Finals(msgspec.Struct, frozen=True, array_like=True):
    """All that one keeper keeps: by topic, what it reads from the first offset to the end."""

    topics: dict[str, tuple[int, Kept]]


encode = msgspec.msgpack.Encoder().encode
_finals = msgspec.msgpack.Decoder(Finals).decode


def finals_of(history: History) -> Finals:
    found = next(iter(history.of("final")), None)
    return Finals({}) if found is None else _finals(found.body)


def kept(history: History) -> int:
    """Every keeper ends with the same topics, and acknowledged events are in them, under their identities."""
    checks = 0
    first = None
    for h in history.of("final"):
        checks += 1
        if first is None:
            first = h
        elif h.body != first.body:
            raise Violation(f"keepers {first.member} and {h.member} end with different topics")
    there = {
        (session, number): body
        for _, events in finals_of(history).topics.values()
        for _, session, number, body in events
    }
    for h in history.of("acked"):
        checks += 1
        if h.group != SHORT and there.get(h.id) != h.body:
            raise Violation(f"event {h.id} was acknowledged as {h.body!r} and ended as {there.get(h.id)!r}")
    return checks


def in_order(history: History) -> int:
    """Offsets have no gap; a publisher's events are there once, in its order, without one left out."""
    sent = {h.body for h in history.of("sent")}
    checks = 0
    for topic, (first, events) in finals_of(history).topics.items():
        last: dict[int, int] = {}
        bodies: set[bytes] = set()
        for place, (offset, session, number, body) in enumerate(events):
            checks += 1
            if offset != first + place:
                raise Violation(f"offset {offset} of {topic!r} stands where {first + place} should")
            before = last.get(session, 0 if topic != SHORT else number - 1)
            if number != before + 1:
                raise Violation(f"event {(session, number)} of {topic!r} stands behind {before}")
            if body in bodies or body not in sent:
                raise Violation(f"{body!r} is in {topic!r} twice, or was never published")
            bodies.add(body)
            last[session] = number
    return checks


def read(history: History) -> int:
    """A subscriber gets every event, in order. One that was restarted goes on no later than where it was and no earlier
    than what it had committed."""
    checks = 0
    there: dict[int, bytes] = {}
    for topic, (_, events) in finals_of(history).topics.items():
        if topic == "a":
            there = {offset: body for offset, _, _, body in events}
    due, committed, life_of = 0, 0, -1
    for h in history.happenings:
        if h.what == "committed":
            committed = max(committed, h.id[0])
        elif h.what == "handled":
            checks += 1
            offset, life = h.id
            if there.get(offset) != h.body:
                raise Violation(f"the subscriber got {h.body!r} at {offset}, kept is {there.get(offset)!r}")
            if life != life_of:
                life_of = life
                if not committed <= offset <= due:
                    raise Violation(f"the subscriber began again at {offset}, with {committed} committed, {due} due")
            elif offset != due:
                raise Violation(f"the subscriber got {offset} at {h.at:.6f}, and {due} was due")
            due = offset + 1
    if finals_of(history).topics and due != len(there):
        raise Violation(f"the subscriber came to {due} of {len(there)} events")
    return checks


def atomic(history: History) -> int:
    """The events that a writer committed are there completely, together, and once; events that it only staged are
    nowhere."""
    _, events = finals_of(history).topics.get("sink", (0, []))
    place = {body: at for at, (_, _, _, body) in enumerate(events)}
    checks = 0
    for h in history.of("wrote"):
        bodies = h.body.split()
        checks += len(bodies)
        found = [place.get(body) for body in bodies]
        if found[0] is None or found != list(range(found[0], found[0] + len(bodies))):
            raise Violation(f"batch {h.id[1]} was committed, and its events are at {found}")
    for _, _, _, body in events:
        if body.startswith(b"orphan"):
            raise Violation(f"{body!r} was never committed, and is visible")
    return checks


def settled(history: History) -> int:
    """Liveness: after the last fault every request was done."""
    if next(history.of("settled"), None) is None:
        raise Violation("publishers, subscribers or keepers did not settle after the last fault")
    return sum(1 for _ in history.of("acked"))
