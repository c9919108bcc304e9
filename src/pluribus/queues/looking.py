"""Questions to a queue, which do not change it: single messages, and the state of the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .batch import properties_of
from .segments import Segment, bits_of
from .selectors import seen_of, selector_of
from .words import Look, Looked, Seen, Stats

if TYPE_CHECKING:
    from .machine import Queue

LOOKED_MAX = 20_000
"""Messages that one question looks at; the answer says where to go on."""

Stood = tuple[int, int, int, int, list[tuple[int, int]]]
"""A message: its row, place and piece, and the places of the pieces of its long body."""


def looked(queue: Queue, asked: Look) -> Looked:
    """Messages from a number on that match, in the order of sending."""
    wanted = selector_of(asked.selector).predicate() if asked.selector else None
    found: list[Seen] = []
    count = 0
    for segment in queue.messages.segments.since(asked.start):
        for at in bits_of(segment.dead if asked.dead else segment.live & ~segment.dead):
            thing = segment.thing_at(at)
            if thing < asked.start:
                continue
            count += 1
            if wanted is None or wanted(seen_of(segment, at)):
                found.append(seen(queue, segment, at))
            if len(found) >= asked.count or count >= LOOKED_MAX:
                return Looked(found, thing + 1)
    return Looked(found, 0)


def seen(queue: Queue, segment: Segment, at: int) -> Seen:
    encoded = segment.properties_of(at)
    reason = "" if segment.extra is None else segment.extra.reasons.get(at, (0, 0, ""))[2]
    return Seen(
        segment.thing_at(at),
        *segment.handle(at),
        state_of(queue, segment, at),
        segment.priority_of(at),
        segment.tries_of(at),
        queue.messages.charge(segment, at),
        segment.at_us_of(at),
        segment.due_of(at),
        segment.expiry_of(at),
        segment.key_of(at),
        properties_of(encoded) if encoded else {},
        reason,
        [] if segment.extra is None else [(row, place) for row, place, _ in segment.extra.pieces.get(at, ())],
    )


def state_of(queue: Queue, segment: Segment, at: int) -> str:
    if segment.dead >> at & 1:
        return "dead"
    if segment.held >> at & 1:
        return "held"
    if segment.due_of(at):
        return "delayed"
    return "ready" if queue.messages.segments.is_ready(segment, at) else "behind its key"


def where(queue: Queue, things: Sequence[int]) -> list[Stood]:
    """The places of those of these messages that are still there."""
    found: list[Stood] = []
    for thing in things:
        there = queue.messages.segments.find(thing)
        if there is not None:
            segment, at = there
            pieces = () if segment.extra is None else segment.extra.pieces.get(at, ())
            found.append((thing, *segment.handle(at), [(row, place) for row, place, _ in pieces]))
    return found


def stats_of(queue: Queue) -> Stats:
    totals, consumers = queue.messages.totals, queue.demands.consumers
    return Stats(
        queue.messages.count,
        queue.messages.segments.ready_count,
        queue.messages.held,
        queue.messages.delayed,
        len(queue.messages.dead),
        queue.messages.size,
        len(consumers),
        sum(1 for consumer in consumers.values() if consumer.turn),
        _oldest_s(queue),
        totals.sent,
        totals.settled,
        totals.redelivered,
        totals.expired,
        totals.duplicates,
        totals.paused,
        queue.messages.settings,
        queue.ground.now_us,
        totals.changes,
    )


def _oldest_s(queue: Queue) -> float:
    for segment in queue.messages.segments:
        bits = segment.live & ~segment.dead & ~segment.held
        if bits:
            return max(queue.ground.now_us - segment.at_us_of((bits & -bits).bit_length() - 1), 0) / 1e6
    return 0.0
