"""Bitmaps over words of slots: which slots an event can still match, by one coordinate at a time.

A coordinate that many slots have an interval on gets a matrix of bits. Its rows are *buckets*: stretches of the
coordinate between sorted thresholds, chosen so that each holds the same number of interval ends; one more row is for
events without the coordinate. A slot's bit is set in the rows that its interval touches, and in all rows if it has
none. For an event, the rows of its buckets are ANDed, word by word, for the words of its clusters. What is left are
candidates: a few more than match, by the intervals that end inside the event's buckets.

The thresholds only decide how many candidates are in vain, never what matches, so they may be old. They are chosen
again when half of the slots have come since: when their number has doubled, or when as many left. The new matrices are
filled a thousand slots at each addition, beside the old ones, and replace them when they are complete: no addition has
to go through a million slots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .slots import WORD, Condition, Floats, Numbers, Slots

BUCKETS = 64
MATRICES_MAX = 8
"""The coordinates with most intervals; the others are left to the exact comparison."""
SHARE_MIN = 1 / 16
"""The share of all slots that must have an interval on a coordinate for a matrix to pay."""
PLAN_SLOTS_MIN = 256
SAMPLE_SLOTS = 4_096
"""The interval ends from which thresholds are chosen."""
STEP_WORDS = 16
"""Slots that are filled at each addition while matrices are made anew."""

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

    def fill(self, first_word: int, lows: Floats, highs: Floats) -> None:
        """Set the bits of whole words; a slot whose interval has its end before its start is free."""
        first, last = self.buckets(lows), self.buckets(highs)
        rows = np.arange(len(self.rows) - 1)[:, None]
        bits = (first <= rows) & (rows <= last) & (lows <= highs)
        everywhere = np.isneginf(lows) & np.isposinf(highs)
        packed = np.packbits(np.concatenate([bits, everywhere[None]]), axis=1, bitorder="little").view(np.uint64)
        self.rows[:, first_word : first_word + packed.shape[1]] = packed


class Bitmaps:
    def __init__(self) -> None:
        self.words = 1
        self.alive: Words = np.zeros(self.words, np.uint64)
        self.matrices: dict[int, Matrix] = {}
        self._coming: dict[int, Matrix] | None = None
        """Matrices that are being filled; of words below ``_filled`` they are kept up to date."""
        self._filled = 0
        self._changes = 0

    def grow(self, words: int) -> None:
        if self.words < words:
            larger = max(words, 2 * self.words)
            self.alive = np.concatenate([self.alive, np.zeros(larger - self.words, np.uint64)])
            for matrix in (*self.matrices.values(), *(self._coming or {}).values()):
                matrix.grow(larger)
            self.words = larger

    def put(self, slot: int, conditions: Sequence[Condition]) -> None:
        self.alive[slot // WORD] |= np.uint64(1 << (slot % WORD))
        self._changes += 1
        if self.matrices or self._coming:
            by_coordinate = {condition.coordinate: condition for condition in conditions}
            for coordinate, matrix in self._kept(slot):
                matrix.put(slot, by_coordinate.get(coordinate))

    def free(self, slot: int) -> None:
        self.alive[slot // WORD] &= ~np.uint64(1 << (slot % WORD))
        for _, matrix in self._kept(slot):
            matrix.clear(slot)

    def _kept(self, slot: int) -> Iterator[tuple[int, Matrix]]:
        yield from self.matrices.items()
        if self._coming is not None and slot // WORD < self._filled:
            yield from self._coming.items()

    def forget(self, coordinates: Iterable[int]) -> None:
        for coordinate in coordinates:
            self.matrices.pop(coordinate, None)
            if self._coming is not None:
                self._coming.pop(coordinate, None)

    def keep_up(self, slots: Slots, live: int, uses: Sequence[int]) -> None:
        """After an addition: begin to make the matrices anew, or go on with it. ``uses`` are by coordinate."""
        if self._coming is not None:
            self._fill(slots)
        elif 2 * self._changes >= max(live, PLAN_SLOTS_MIN):
            self._changes = self._filled = 0
            wanted = sorted(range(1, len(uses)), key=lambda coordinate: -uses[coordinate])[:MATRICES_MAX]
            used = np.flatnonzero(slots.entry >= 0)
            sample = used[:: max(1, len(used) // SAMPLE_SLOTS)]
            self._coming = {
                coordinate: Matrix(_thresholds(slots, sample, coordinate), self.words)
                for coordinate in wanted
                if uses[coordinate] >= max(1.0, SHARE_MIN * live)
            }

    def _fill(self, slots: Slots) -> None:
        assert self._coming is not None
        end = min(self._filled + STEP_WORDS, self.words, slots.size // WORD)
        here = np.arange(self._filled * WORD, end * WORD)
        nobody = slots.entry[here] < 0
        for coordinate, matrix in self._coming.items():
            _, lows, highs = _intervals(slots, here, coordinate)
            lows[nobody], highs[nobody] = np.inf, -np.inf
            matrix.fill(self._filled, lows, highs)
        self._filled = end
        if end == min(self.words, slots.size // WORD):
            self.matrices, self._coming = self._coming, None

    def validate(self, slots: Slots, used: set[int]) -> None:
        ones = [slot for slot in range(self.words * WORD) if int(self.alive[slot // WORD]) >> (slot % WORD) & 1]
        assert ones == sorted(used)
        for slot in used:
            for coordinate, matrix in self._kept(slot):
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


def _intervals(slots: Slots, some: Numbers, coordinate: int) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
    """Which of some slots have an interval on the coordinate, and where it begins and ends."""
    lows, highs = np.full(len(some), -np.inf), np.full(len(some), np.inf)
    has = np.zeros(len(some), np.bool_)
    for position in slots.positions:
        here = position.coordinate[some] == coordinate
        has |= here
        lows[here], highs[here] = position.low[some[here]], position.high[some[here]]
    return has, lows, highs


def _thresholds(slots: Slots, sample: Numbers, coordinate: int) -> Floats:
    has, lows, highs = _intervals(slots, sample, coordinate)
    ends = np.concatenate([lows[has], highs[has]])
    ends = ends[np.isfinite(ends)]
    if not len(ends):
        return np.zeros(0)
    return np.unique(np.quantile(ends, np.arange(1, BUCKETS) / BUCKETS, method="inverted_cdf"))


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
