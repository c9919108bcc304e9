"""Requests of a worker of a partitioned space, their results, and what its listeners have acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from ..templates import Template
from ..values import Item
from ..watching import REGISTRATIONS_MAX, Mark, Watched, first_of
from . import words
from .words import Name, Watching, Word


class PartitionRequest(msgspec.Struct):
    """A request of this worker."""

    number: int
    template: Template | None = None
    takes: bool = False
    probe: bool = False
    item: Item | None = None
    lease_us: int = 0
    ranges: list[int] = []
    """The ranges in which it can match; of a write: the range of the tuple."""
    left: list[int] = []
    """Ranges that were not asked yet."""
    asked: list[int] = []
    """Ranges that the question under way is about."""
    recalls: bool = False
    """True if it must ask first which tuple it was given in ``asked``."""
    word: Word | None = None
    """The question under way."""
    to: int = 0
    attempt: int = 0
    again_at: float = 0.0
    interested: bool = False
    offers: deque[tuple[int, int, Name]] = msgspec.field(default_factory=deque)
    """The offer: its server, its range, its tuple."""
    cancelled: bool = False
    written: Item | None = None
    """The tuple that a take writes in place of the one taken."""
    relets: Name = (0, 0)
    """The tuple whose lease is renewed, or ends."""
    ends: bool = False
    first: int = 0
    """Of a write: the epoch in which it was first sent."""
    most: int = 0
    """Of a tally: how many items are wanted."""
    tallies: dict[int, words.Tallied] = {}
    registers: Watching | None = None
    renews: Name = (0, 0)
    """The registration whose lease is renewed, or ends."""
    listens: Name = (0, 0)
    """The registration whose events are asked for."""
    answers: dict[int, words.Told | words.Renewed] = {}
    """By server: of a question to all of them."""


class PartitionResult(msgspec.Struct, frozen=True):
    """The result of a request. A write has the name of its tuple, a registration its own, a tally its count and items.
    ``unknown``: the range of a write was lost while it was under way, perhaps with the tuple in it."""

    request: int
    name: Name = (0, 0)
    item: Item | None = None
    count: int = 0
    items: list[Item] = []
    unknown: bool = False
    done: bool = False
    """True if a lease was renewed, or has ended."""
    lease_us: int = 0
    """The rest of the lease of a taken tuple; 0: it had no end, or the rest is not known."""
    watched: Watched | None = None
    """Events of a registration."""
    full: bool = False
    """A registration was refused, because there are too many."""


class ListenerMarks:
    """What listeners of this worker have acknowledged, by registration and range. Every question repeats it, because an
    earlier one may not have come to all servers."""

    def __init__(self) -> None:
        self._marks: dict[Name, dict[int, int]] = {}

    def add(self, registration: Name, seen: Iterable[Mark]) -> None:
        known = self._marks.pop(registration, {})
        for number, event in seen:
            known[number] = max(event, known.get(number, 0))
        self._marks[registration] = known
        while len(self._marks) > REGISTRATIONS_MAX:
            del self._marks[next(iter(self._marks))]

    def of(self, registration: Name) -> list[Mark]:
        return list(self._marks.get(registration, {}).items())

    def told(self, registration: Name, told: list[words.Told]) -> Watched:
        """The answers of several servers as one."""
        watched = [one.watched for one in told]
        first = watched[0]
        if first.ended:
            self._marks.pop(registration, None)
            return first
        return Watched(
            list(first_of(event for one in watched for event in one.events)),
            sum(one.missed for one in watched),
            any(one.gap for one in watched),
            False,
            first.hand_back,
            sum(one.seen for one in watched),
            first.left_us,
            [mark for one in watched for mark in one.gaps],
        )
