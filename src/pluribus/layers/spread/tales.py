"""What a member of a crowd has heard: the latest messages of all origins, kept for a while for members that lack them.

Messages of one origin are passed up in order. A missing message is awaited until it comes, or until the members that
were asked do not hold it any more; then it is lost, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ...core.frame import Frame
from .crowd_words import Story

ORIGINS_MAX = 10_000
KEEP_S = 20.0
KEEP_BYTES_MAX = 16 << 20
GIVE_UP_S = 8.0
"""A gap that nobody could fill in this time is given up."""


class Told:
    """One origin's messages as one member has them."""

    __slots__ = ("frames", "gap_since", "heard_at", "low", "next")

    def __init__(self, next: int, low: int, now: float) -> None:
        self.next = next
        self.low = low
        """Older messages cannot be had any more."""
        self.frames: dict[int, Frame] = {}
        self.heard_at = now
        self.gap_since = now


class Tales:
    """By origin, bounded in number, in bytes and in time."""

    def __init__(self) -> None:
        self._told: dict[int, Told] = {}
        self._kept: deque[tuple[float, int, int]] = deque()
        self._bytes = 0
        self.lost = 0

    def get(self, origin: int) -> Told | None:
        return self._told.get(origin)

    def open(self, origin: int, next: int, low: int, now: float) -> Told:
        """The messages of an origin that was not heard before count from ``next``."""
        if len(self._told) >= ORIGINS_MAX:
            quiet = min(self._told, key=lambda known: self._told[known].heard_at)
            self._bytes -= sum(frame.size for frame in self._told.pop(quiet).frames.values())
        told = self._told[origin] = Told(next, low, now)
        return told

    def keep(self, origin: int, number: int, frame: Frame, now: float) -> bool:
        """Keep a message; true if it is new."""
        told = self._told[origin]
        if number < told.next or number in told.frames:
            return False
        if number > told.next and not self.missing(origin):
            told.gap_since = now
        told.frames[number] = frame
        told.heard_at = now
        self._kept.append((now, origin, number))
        self._bytes += frame.size
        return True

    def due(self, origin: int, now: float) -> Iterator[Frame]:
        """The messages that may be passed up, in order."""
        told = self._told[origin]
        while told.next in told.frames:
            frame = told.frames[told.next]
            told.next += 1
            told.gap_since = now
            yield frame

    def missing(self, origin: int) -> bool:
        told = self._told[origin]
        return any(number >= told.next for number in told.frames)

    def excuse(self, late_s: float, now: float) -> None:
        """This member was held up for ``late_s`` seconds, which do not count as time to fill gaps."""
        for told in self._told.values():
            told.gap_since = min(told.gap_since + late_s, now)

    def give_up(self, now: float) -> list[int]:
        """Origins with a gap that was awaited too long: they go on behind it."""
        gone = []
        for origin, told in self._told.items():
            ahead = [number for number in told.frames if number > told.next]
            if ahead and now - told.gap_since > GIVE_UP_S:
                self.lost += min(ahead) - told.next
                told.next = min(ahead)
                gone.append(origin)
        return gone

    def forget(self, now: float) -> None:
        """Forget old messages, and the oldest if there are too many."""
        while self._kept and (now - self._kept[0][0] > KEEP_S or self._bytes > KEEP_BYTES_MAX):
            _, origin, number = self._kept.popleft()
            told = self._told.get(origin)
            if told is None or number not in told.frames:
                continue
            if number >= told.next:  # it waits for one that does not come
                self.lost += number + 1 - told.next
                told.next = number + 1
            self._bytes -= told.frames.pop(number).size

    def stories(self, now: float) -> list[Story]:
        """A digest entry for every origin that sent something lately."""
        return [
            Story(origin, told.low, told.next)
            for origin, told in self._told.items()
            if told.frames or now - told.heard_at < KEEP_S
        ]

    def between(self, origin: int, first: int, most: int) -> Iterator[tuple[int, Frame]]:
        told = self._told[origin]
        numbers = sorted(number for number in told.frames if first <= number < told.next)
        return ((number, told.frames[number]) for number in numbers[:most])

    def oldest(self, origin: int) -> int:
        """The oldest message of an origin that is still here."""
        told = self._told[origin]
        return min(told.frames, default=told.next)

    def learn_low(self, origin: int, low: int) -> None:
        """Messages before ``low`` cannot be had any more, so they are not awaited."""
        told = self._told[origin]
        told.low = max(told.low, low)
        if told.next < told.low:
            self.lost += told.low - told.next
            told.next = told.low

    @property
    def kept(self) -> int:
        return sum(len(told.frames) for told in self._told.values())

    def validate(self) -> None:
        assert len(self._told) <= ORIGINS_MAX
        assert self._bytes == sum(frame.size for told in self._told.values() for frame in told.frames.values())
