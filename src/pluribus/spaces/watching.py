"""What the kinds *views* and *partitioned* have in common about registrations (``notify``): limits, and what a listener
is told.

A registration is part of the state of the space. Its events are kept there until a listener acknowledges them; so a
listener can go on after a break, at any member. ``views.listeners`` and ``partitioned.watches`` say where the state is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from .values import Item

REGISTRATIONS_MAX = 1_000
"""Registrations of one space."""
EVENTS_MAX = 1_024
EVENTS_BYTES_MAX = 4 << 20
"""Events that one registration keeps, and their bytes: the oldest are dropped, and the listener is told how many."""
ALL_BYTES_MAX = 32 << 20
"""Bytes of the events of all registrations together, in one state: they travel when an epoch begins."""
TOLD_MAX = 256
TOLD_BYTES_MAX = 1 << 20
"""Events in one answer."""

Mark = tuple[Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)], Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]]
"""The name of an event: with *views* the name of its tuple, with *partitioned* the range and the number there."""


class Watched(msgspec.Struct, frozen=True, array_like=True):
    """What a listener is told. The events come after ``missed`` others that were dropped. ``gap``: events were lost
    with a member, and nobody knows how many. ``seen``: how many events were acknowledged before, or told as missed."""

    events: list[tuple[Mark, Item]] = []
    missed: int = 0
    gap: bool = False
    ended: bool = False
    """The registration is over."""
    hand_back: bytes = b""
    seen: int = 0
    left_us: int = 0
    """The rest of its lease; 0: it has no end."""
    gaps: list[Mark] = []
    """What acknowledges the gap, like an event."""


def first_of(events: Iterable[tuple[Mark, Item]]) -> Iterator[tuple[Mark, Item]]:
    """As many events as fit into one answer."""
    count = size = 0
    for mark, item in events:
        count, size = count + 1, size + item.size
        if count > TOLD_MAX or (size > TOLD_BYTES_MAX and count > 1):
            return
        yield mark, item
