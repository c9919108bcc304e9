"""Columns of a queue's messages, copied a slice at a time for a query over the queue.

A question looks at no more than ``SLICE`` messages, so that it blocks the loop for a few milliseconds only; the answer
says where to go on. Messages that come after the first question are left out (``end``), and ages are those of that
moment (``now_us``), however many questions it takes. A message that is settled meanwhile is copied or not.

The fields that are in memory here can be columns: ``COLUMNS``. Bodies, and the fields beside them in the log, are read
by the handle of a message, which is a column too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput
from .batch import properties_of
from .looking import state_of
from .segments import Segment, bits_of
from .selectors import selector_of
from .words import Copied, Copy

if TYPE_CHECKING:
    from .machine import Queue

SLICE = 4_000
"""Messages that one question looks at."""
NAMES_MAX = 1_024
"""Names of properties in one answer, at most."""

Reader = Callable[["Queue", Segment, int, int], Any]


def _seconds(time_us: int, now_us: int) -> float | None:
    """Seconds until a time; None if there is none."""
    return max(time_us - now_us, 0) / 1e6 if time_us else None


def _reason(queue: Queue, segment: Segment, at: int, now_us: int) -> str | None:
    if segment.extra is None or at not in segment.extra.reasons:
        return None
    return segment.extra.reasons[at][2]


def _size(queue: Queue, segment: Segment, at: int, now_us: int) -> int:
    return queue.messages.charge(segment, at)


COLUMNS: dict[str, Reader] = {
    "number": lambda queue, segment, at, now_us: segment.thing_at(at),
    "priority": lambda queue, segment, at, now_us: segment.priority_of(at),
    "key": lambda queue, segment, at, now_us: segment.key_of(at) or None,
    "age_s": lambda queue, segment, at, now_us: max(now_us - segment.at_us_of(at), 0) / 1e6,
    "ttl": lambda queue, segment, at, now_us: _seconds(segment.expiry_of(at), now_us),
    "delay": lambda queue, segment, at, now_us: _seconds(segment.due_of(at), now_us),
    "deliveries": lambda queue, segment, at, now_us: segment.tries_of(at),
    "state": lambda queue, segment, at, now_us: state_of(queue, segment, at),
    "size": _size,
    "reason": _reason,
    "properties": lambda queue, segment, at, now_us: segment.properties_of(at),
    "handle": lambda queue, segment, at, now_us: segment.handle(at),
}
"""``properties`` are encoded as they were sent; ``handle`` is the place of the message in the log."""
COMPARED = ("number", "priority", "key", "age_s", "ttl", "delay", "deliveries", "state", "size", "reason")
"""Columns that a selector sees; properties of the same names are hidden by them."""


def copied(queue: Queue, asked: Copy) -> Copied:
    for name in asked.columns:
        if name not in COLUMNS:
            raise BadInput(f"messages have no column {name!r}: there are {', '.join(COLUMNS)}")
    wanted = selector_of(asked.selector).predicate() if asked.selector else None
    readers = [COLUMNS[name] for name in asked.columns]
    compared = [(name, COLUMNS[name]) for name in COMPARED] if wanted is not None else []
    now_us = asked.now_us or queue.ground.now_us
    end = asked.end or queue.messages.totals.next
    columns: list[list[Any]] = [[] for _ in readers]
    names: dict[str, None] = {}
    looked = 0
    for segment in queue.messages.segments.since(asked.start):
        for at in bits_of(segment.live):
            thing = segment.thing_at(at)
            if thing < asked.start:
                continue
            if thing >= end:
                return Copied(columns, list(names), 0, end, now_us)
            if looked >= SLICE:
                return Copied(columns, list(names), thing, end, now_us)
            looked += 1
            encoded = segment.properties_of(at) if asked.properties else b""
            properties = properties_of(encoded) if encoded else {}
            if len(names) < NAMES_MAX:
                names.update(dict.fromkeys(properties))
            if wanted is not None:
                seen = properties | {name: read(queue, segment, at, now_us) for name, read in compared}
                if not wanted(seen):
                    continue
            for column, read in zip(columns, readers, strict=True):
                column.append(read(queue, segment, at, now_us))
    return Copied(columns, list(names), 0, end, now_us)
