"""The events that wait for one subscriber, and what happens to them if the subscriber is slow.

Theory of operation
-------------------
Runs of events are put in as they arrive, still encoded; they are decoded when the reader takes them. So events that a
slow reader never sees are never decoded.

The subscriber chooses what happens when its backlog is full. Only the first choice affects publishers:

*wait*        the window of the group stays closed until the reader has taken the events that it holds: publishers slow
              down to the pace of the reader, and nothing is lost. A reader that takes nothing at all for some time is
              treated as with *tell*.
*tell*        further events are dropped, and the reader gets ``Gap`` in their place, with their number.
*buffer*      up to ``BACKLOG_EVENTS_MAX`` events wait; then as with *tell*.
*disconnect*  the subscription ends: the reader gets the events that wait, then ``Overflow``.
*sample*      every second waiting event is dropped, again and again, so that the rest is spread evenly. Only counted.

Every dropped event is counted in ``missed``, whatever the choice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..core.errors import BadInput, Gap, MalformedFrame, Overflow
from ..core.limits import BACKLOG_EVENTS_MAX
from .batch import Section
from .event import Event

SHORT = 16
"""Runs with fewer events are taken together."""

WAIT, TELL, BUFFER, DISCONNECT, SAMPLE = CHOICES = ("wait", "tell", "buffer", "disconnect", "sample")


Some = bytes | list[Event[Any]] | None
"""Which events of a part: those with a 1 at their place; these; or, with None, all."""


class Hold:
    """A frame of the group whose room in the window is not given back yet. ``release`` is called when no subscription
    holds it any more."""

    __slots__ = ("_holders", "_release")

    def __init__(self, release: Callable[[], None]) -> None:
        self._holders = 1
        self._release = release

    def keep(self) -> Hold:
        self._holders += 1
        return self

    def let_go(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._release()


class Run:
    """Events that arrived together: a part of a batch, some events of a part, or events that were decoded already."""

    __slots__ = ("count", "hold", "missed", "section", "some")

    def __init__(self, count: int, section: Section | None, some: Some, hold: Hold | None, missed: int) -> None:
        self.count = count
        self.section = section
        self.some = some
        self.hold = hold
        self.missed = missed
        """If above 0, this run stands for so many dropped events."""

    def events(self) -> list[Event[Any]]:
        if isinstance(self.some, list):
            return self.some
        assert self.section is not None
        return self.section.events() if self.some is None else self.section.picked(self.some)

    def thin(self, keep_first: bool) -> None:
        """Drop every other event."""
        at = 0 if keep_first else 1
        if isinstance(self.some, list):
            self.some = self.some[at::2]
        else:
            assert self.section is not None
            chosen = bytearray(self.some or b"\1" * self.section.part.count)
            place = -1
            for turn in range(self.count):
                place = chosen.index(1, place + 1)
                if turn % 2 != at:
                    chosen[place] = 0
            self.some = bytes(chosen)
        self.count = len(range(at, self.count, 2))


def checked_slow(slow: str, limit: int) -> str:
    """The policy, if it is one, and the backlog has bounds that a backlog may have."""
    if slow not in CHOICES:
        raise BadInput(f"slow={slow!r} is no choice: use {', '.join(CHOICES)}")
    if not 1 <= limit <= BACKLOG_EVENTS_MAX:
        raise BadInput(f"backlog={limit} is out of bounds: use 1 to {BACKLOG_EVENTS_MAX:,} events")
    return slow


class Backlog:
    """Bounded by its size; with *wait*, by the window of the group."""

    def __init__(self, limit: int, slow: str = WAIT) -> None:
        checked_slow(slow, limit)
        self.limit = BACKLOG_EVENTS_MAX if slow == BUFFER else limit
        self.slow = slow
        self.waiting = 0
        """Events."""
        self.missed = 0
        self.malformed = 0
        self.ended = ""
        """Why there will be no more events; empty while there may be."""
        self._runs: deque[Run] = deque()
        self._thinned = False

    def __bool__(self) -> bool:
        return bool(self._runs)

    def put(self, section: Section, some: bytes | None = None, hold: Hold | None = None) -> None:
        """Put in all events of a part, or those with a 1 at their place in ``some``."""
        self._put(section.part.count if some is None else some.count(1), section, some, hold)

    def put_events(self, events: list[Event[Any]], hold: Hold | None = None) -> None:
        self._put(len(events), None, events, hold)

    def _put(self, count: int, section: Section | None, some: Some, hold: Hold | None) -> None:
        if not count or self.ended:
            return
        if self.slow == WAIT:
            self._runs.append(Run(count, section, some, hold.keep() if hold is not None else None, 0))
            self.waiting += count
            return
        if self.waiting + count > self.limit:
            if self.slow == DISCONNECT:
                self.missed += count
                self.ended = f"{self.waiting} events wait, and slow='disconnect' was asked for"
                return
            if self.slow != SAMPLE:
                self._miss(count)
                return
        self._runs.append(Run(count, section, some, None, 0))
        self.waiting += count
        while self.waiting > self.limit:
            self._thin()

    def _miss(self, count: int) -> None:
        self.missed += count
        last = self._runs[-1] if self._runs else None
        if last is not None and last.missed > 0:
            last.missed += count
        else:
            self._runs.append(Run(0, None, None, None, count))

    def _thin(self) -> None:
        self._thinned = not self._thinned
        before = self.waiting
        keep = self._thinned
        for run in self._runs:
            if run.missed:
                continue  # the place where this member was cut off: there is nothing to drop, and it stays
            odd = run.count % 2
            run.thin(keep)
            keep = keep is not bool(odd)
        self._runs = deque(run for run in self._runs if run.count or run.missed)
        self.waiting = sum(run.count for run in self._runs)
        self.missed += before - self.waiting

    def lost(self) -> None:
        """An unknown number of events is missing here."""
        self._runs.append(Run(0, None, None, None, -1))

    def give_up(self) -> int:
        """Drop the waiting events, because the reader does not take them and others wait for it; returns how many."""
        dropped = self.waiting
        runs, self._runs, self.waiting = self._runs, deque(), 0
        for run in runs:
            if run.hold is not None:
                run.hold.let_go()
            if run.missed > 0:
                self._miss(run.missed)
                self.missed -= run.missed
        if dropped:
            self._miss(dropped)
        return dropped

    def close(self) -> None:
        """The subscription is closed: drop the waiting events, without counting them as missed."""
        self.give_up()
        self._runs.clear()

    def take(self) -> list[Event[Any]]:
        """The next run of events. Where events are missing it raises ``Gap``, once; at the end of a subscription that
        was too slow it raises ``Overflow``."""
        while self._runs:
            run = self._runs.popleft()
            if run.missed < 0:
                raise Gap("this member was cut off, so events may be missing here: get the state anew, and read on")
            if run.missed:
                raise Gap(
                    f"{run.missed} events are missing here, because they were not read in time: read faster, or ask "
                    "for a larger backlog=",
                    run.missed,
                )
            events = self._taken(run)
            if events:
                return events
        if self.ended:
            raise Overflow(f"the subscription has ended: {self.ended}; subscribe again, and read faster")
        return []

    def put_back(self, gap: Gap) -> None:
        """A reader that had taken events before this gap met it: the next one to take gets it."""
        self._runs.appendleft(Run(0, None, None, None, gap.missed or -1))

    def take_some(self) -> list[Event[Any]]:
        """The next run of events; if it is short, those behind it, too."""
        events, runs = self.take(), self._runs
        while len(events) < SHORT and runs and not runs[0].missed:
            events = events + self._taken(runs.popleft())  # not +=: other subscriptions have the same list
        return events

    def _taken(self, run: Run) -> list[Event[Any]]:
        self.waiting -= run.count
        if run.hold is not None:
            run.hold.let_go()
        try:
            return run.events()
        except MalformedFrame:
            self.malformed += run.count
            return []

    def validate(self) -> None:
        assert self.waiting == sum(run.count for run in self._runs)
        assert self.slow == WAIT or self.waiting <= self.limit
