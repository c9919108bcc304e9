"""The times at which messages are due: one index for delays, expiry and leases.

Messages are gathered in *buckets* of 16 ms, so that a message costs 8 bytes here and not an entry of a heap. The index
is not part of the state: the times themselves are, with their messages, and ``restore`` fills the index from them. So
an entry may be stale: its message is gone, or its time was changed. Code that takes entries out asks which of them are
*real* (their time is still in this bucket), and acts on no others; else two keepers, one of which was restored and has
no stale entries, would do different things.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable

BUCKET_BITS = 14
"""Low bits of a microsecond that a bucket ignores."""

Real = Callable[[int, int], bool]
"""``real(thing, bucket)``: true if a time of the thing is in this bucket."""


def bucket_of(time_us: int) -> int:
    return time_us >> BUCKET_BITS


def is_over(time_us: int, now_us: int) -> bool:
    """True if the bucket of a time is over."""
    return (bucket_of(time_us) + 1) << BUCKET_BITS <= now_us


class Times:
    def __init__(self, real: Real) -> None:
        self._real = real
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []
        """The existing buckets, as a heap."""
        self.entries = 0

    def add(self, thing: int, time_us: int) -> None:
        bucket = bucket_of(time_us)
        things = self._buckets.get(bucket)
        if things is None:
            things = self._buckets[bucket] = array("q")
            heapq.heappush(self._order, bucket)
        things.append(thing)
        self.entries += 1

    def next_us(self) -> int | None:
        """The time when the first bucket with a real entry is over."""
        while self._order:
            bucket = self._order[0]
            if any(self._real(thing, bucket) for thing in self._buckets[bucket]):
                return (bucket + 1) << BUCKET_BITS
            self._drop()
        return None

    def take(self, now_us: int) -> tuple[int, list[int]] | None:
        """The first bucket that is over, and its real entries, in order; None if there is none."""
        while self._order and (self._order[0] + 1) << BUCKET_BITS <= now_us:
            bucket = self._order[0]
            things = sorted({thing for thing in self._buckets[bucket] if self._real(thing, bucket)})
            self._drop()
            if things:
                return bucket, things
        return None

    def put_back(self, bucket: int, things: list[int]) -> None:
        for thing in things:
            self.add(thing, bucket << BUCKET_BITS)

    def _drop(self) -> None:
        bucket = heapq.heappop(self._order)
        self.entries -= len(self._buckets.pop(bucket))

    def tidy(self, wanted: int) -> None:
        """Forget stale entries, if most are stale; ``wanted`` is about how many are real."""
        if self.entries < 4 * wanted + 4_096:
            return
        for bucket in list(self._buckets):
            things = self._buckets[bucket]
            kept = array("q", sorted({thing for thing in things if self._real(thing, bucket)}))
            self.entries -= len(things) - len(kept)
            if kept:
                self._buckets[bucket] = kept
            else:
                del self._buckets[bucket]
        self._order = sorted(self._buckets)
