"""Bitmaps over words of slots: which slots an event can still match, by one coordinate at a time.

A coordinate that many slots have an interval on gets a matrix of bits. Its rows are *buckets*: stretches of the
coordinate between sorted thresholds, chosen so that each holds the same number of interval ends; one more row is for
events without the coordinate. A slot's bit is set in the rows that its interval touches, and in all rows if it has
none. For an event, the rows of its buckets are ANDed, word by word, for the words of its clusters. What is left are
candidates: a few more than match, by the intervals that end inside the event's buckets.

The thresholds only decide how many candidates are in vain, never what matches, so they may be old. They are chosen
again when the number of slots has doubled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .slots import WORD, Condition, Floats, Numbers, Slots

BUCKETS = 64
MATRICES_MAX = 8
"""The coordinates with most intervals; the others are left to the exact comparison."""
SHARE_MIN = 1 / 16
"""Of all slots, that must have an interval on a coordinate for a matrix to pay."""
PLAN_SLOTS_MIN = 256

Words = npt.NDArray[np.uint64]


class Matrix:
    """The bits of one coordinate: ``rows[bucket, word]``; the last row is for events without it."""

    def __init__(self, thresholds: Floats, words: int) -> None:
        self.thresholds = thresholds
        self._sorted: list[float] = thresholds.tolist()
        self.rows: Words = np.zeros((len(thresholds) + 2, words), np.uint64)

    def grow(self, words: int) -> None:
        more = np.zeros((len(self.rows), words - self.rows.shape[1]), np.uint64)
        self.rows = np.concatenate([self.rows, more], axis=1)

    def buckets(self, coordinates: Floats) -> Numbers:
        found = np.searchsorted(self.thresholds, coordinates, "right")
        found[np.isnan(coordinates)] = len(self.rows) - 1
        return found

    def put(self, slot: int, condition: Condition | None) -> None:
        """The slot's bits are clear."""
        bit = np.uint64(1 << (slot % WORD))
        if condition is None:
            self.rows[:, slot // WORD] |= bit
        else:
            first, last = bisect_right(self._sorted, condition.low), bisect_right(self._sorted, condition.high)
            self.rows[first : last + 1, slot // WORD] |= bit

    def clear(self, slot: int) -> None:
        self.rows[:, slot // WORD] &= ~np.uint64(1 << (slot % WORD))

    def fill(self, slots: Numbers, lows: Floats, highs: Floats) -> None:
        """Set the bits of many slots, one after the other bucket: each begins in one and ends before another."""
        first, end = self.buckets(lows), self.buckets(highs) + 1
        words, bits = slots // WORD, np.uint64(1) << (slots % WORD).astype(np.uint64)
        changes = np.concatenate([first, end])
        order = np.argsort(changes, kind="stable")
        words, bits = np.concatenate([words, words])[order], np.concatenate([bits, bits])[order]
        edges = np.searchsorted(changes[order], np.arange(len(self.rows)))
        row = np.zeros(self.rows.shape[1], np.uint64)
        for bucket in range(len(self.rows) - 1):
            here = slice(edges[bucket], edges[bucket + 1])
            np.bitwise_xor.at(row, words[here], bits[here])
            self.rows[bucket] |= row


class Bitmaps:
    def __init__(self) -> None:
        self.words = 1
        self.alive: Words = np.zeros(self.words, np.uint64)
        self.matrices: dict[int, Matrix] = {}
        self.planned_for = PLAN_SLOTS_MIN // 2

    def grow(self, words: int) -> None:
        if self.words < words:
            larger = max(words, 2 * self.words)
            self.alive = np.concatenate([self.alive, np.zeros(larger - self.words, np.uint64)])
            for matrix in self.matrices.values():
                matrix.grow(larger)
            self.words = larger

    def put(self, slot: int, conditions: Sequence[Condition]) -> None:
        self.alive[slot // WORD] |= np.uint64(1 << (slot % WORD))
        if self.matrices:
            by_coordinate = {condition.coordinate: condition for condition in conditions}
            for coordinate, matrix in self.matrices.items():
                matrix.put(slot, by_coordinate.get(coordinate))

    def free(self, slot: int) -> None:
        self.alive[slot // WORD] &= ~np.uint64(1 << (slot % WORD))
        for matrix in self.matrices.values():
            matrix.clear(slot)

    def forget(self, coordinates: Iterable[int]) -> None:
        for coordinate in coordinates:
            self.matrices.pop(coordinate, None)

    def plan(self, slots: Slots, live: int) -> None:
        """Choose coordinates and thresholds anew, for the slots that there are."""
        self.planned_for = live
        used = np.flatnonzero(slots.entry >= 0)
        counts = np.zeros(1, np.int64)
        for position in slots.positions:
            found = np.bincount(position.coordinate[used])
            counts = found if len(found) > len(counts) else counts
        counts = sum(
            (np.bincount(position.coordinate[used], minlength=len(counts)) for position in slots.positions),
            np.zeros(len(counts), np.int64),
        )
        counts[0] = 0
        best = np.argsort(-counts, kind="stable")[:MATRICES_MAX]
        self.matrices = {
            int(coordinate): self._matrix(slots, used, int(coordinate))
            for coordinate in best
            if counts[coordinate] >= max(1.0, SHARE_MIN * live)
        }

    def _matrix(self, slots: Slots, used: Numbers, coordinate: int) -> Matrix:
        lows, highs = np.full(len(used), -np.inf), np.full(len(used), np.inf)
        has = np.zeros(len(used), bool)
        for position in slots.positions:
            here = position.coordinate[used] == coordinate
            has |= here
            lows[here], highs[here] = position.low[used[here]], position.high[used[here]]
        ends = np.concatenate([lows[has], highs[has]])
        ends = ends[np.isfinite(ends)]
        shares = np.arange(1, BUCKETS) / BUCKETS
        thresholds = np.unique(np.quantile(ends, shares, method="inverted_cdf")) if len(ends) else np.zeros(0)
        matrix = Matrix(thresholds, self.words)
        matrix.fill(used, lows, highs)
        np.bitwise_or.at(matrix.rows[-1], used[~has] // WORD, np.uint64(1) << (used[~has] % WORD).astype(np.uint64))
        return matrix

    def validate(self, slots: Slots, used: set[int]) -> None:
        ones = [slot for slot in range(self.words * WORD) if int(self.alive[slot // WORD]) >> (slot % WORD) & 1]
        assert ones == sorted(used)
        for coordinate, matrix in self.matrices.items():
            for slot in used:
                found = [condition for condition in slots.conditions(slot) if condition.coordinate == coordinate]
                bits = (matrix.rows[:, slot // WORD] >> np.uint64(slot % WORD)) & np.uint64(1)
                if not found:
                    assert bits.all()
                    continue
                first, last = matrix.buckets(np.array([found[0].low, found[0].high]))
                assert np.array_equal(np.flatnonzero(bits), np.arange(first, last + 1))

    def candidates(
        self, events: Numbers, words: Numbers, rows: Iterable[tuple[Matrix, Numbers]]
    ) -> tuple[Numbers, Numbers]:
        """Of pairs of an event and a word, the pairs of an event and a slot that are still possible."""
        left = self.alive[words]
        for matrix, buckets in rows:
            left &= matrix.rows.ravel()[buckets[events] * self.words + words]
        return _bits(left, events, words)


def _bits(left: Words, events: Numbers, words: Numbers) -> tuple[Numbers, Numbers]:
    """Takes the lowest bit of every word, then of those that have more: few words have many."""
    one = np.uint64(1)
    at = np.flatnonzero(left)
    left = left[at]
    found_events, found_slots = [], []
    while len(left):
        rest = left & (left - one)
        bit = np.frexp((left ^ rest).astype(np.float64))[1] - 1
        found_events.append(events[at])
        found_slots.append(words[at] * WORD + bit)
        more = np.flatnonzero(rest)
        left, at = rest[more], at[more]
    if not found_events:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(found_events), np.concatenate(found_slots)
