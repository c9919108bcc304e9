"""The conditions of all conjunctions, in columns of numpy arrays, and which slots belong together.

A conjunction has a *slot*. Sixty-four slots are a *word*: one bit each in the bitmaps. A *cluster* has the conjunctions
under one value of one equality; it owns whole words, so that an event with the value looks at these words and no
others. A cluster of few slots would waste most of its word, so it shares words with other small ones and is a plain
list of slots; it moves into a word of its own when it grows.

Slots never move otherwise, and freed ones are used again, so adding and removing cost the same however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

WORD = 64
SMALL_MAX = 24
"""Slots of a cluster without words of its own: looking at each costs about as much as looking at a word."""
POSITIONS_MAX = 16
"""Intervals of a conjunction; those beyond are left to the rest."""
NOTHING = -1

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


class Condition(NamedTuple):
    """An interval on a coordinate, by the coordinate's number; 0 is the coordinate that is always zero."""

    coordinate: int
    low: float
    high: float


ALWAYS = Condition(0, -np.inf, np.inf)


class Position:
    """The first, second, … condition of every slot."""

    def __init__(self, size: int) -> None:
        self.coordinate = np.zeros(size, np.int32)
        self.low = np.full(size, -np.inf)
        self.high = np.full(size, np.inf)

    def grow(self, size: int) -> None:
        more = size - len(self.low)
        self.coordinate = np.concatenate([self.coordinate, np.zeros(more, np.int32)])
        self.low = np.concatenate([self.low, np.full(more, -np.inf)])
        self.high = np.concatenate([self.high, np.full(more, np.inf)])

    def put(self, slot: int, condition: Condition) -> None:
        self.coordinate[slot], self.low[slot], self.high[slot] = condition


class Slots:
    """Arrays that double when they are full; ``entry`` is the entry of each slot, ``rest`` the rest to evaluate."""

    def __init__(self) -> None:
        self.size = WORD
        self.positions: list[Position] = []
        self.entry = np.full(self.size, NOTHING, np.int64)
        self.rest = np.full(self.size, NOTHING, np.int64)

    def grow(self, words: int) -> None:
        while self.size < words * WORD:
            self.entry = np.concatenate([self.entry, np.full(self.size, NOTHING, np.int64)])
            self.rest = np.concatenate([self.rest, np.full(self.size, NOTHING, np.int64)])
            self.size *= 2
            for position in self.positions:
                position.grow(self.size)

    def put(self, slot: int, entry: int, conditions: Sequence[Condition], rest: int) -> None:
        while len(self.positions) < len(conditions):
            self.positions.append(Position(self.size))
        for at, position in enumerate(self.positions):
            position.put(slot, conditions[at] if at < len(conditions) else ALWAYS)
        self.entry[slot] = entry
        self.rest[slot] = rest

    def free(self, slot: int) -> None:
        self.entry[slot] = NOTHING

    def conditions(self, slot: int) -> list[Condition]:
        found = (
            Condition(int(position.coordinate[slot]), float(position.low[slot]), float(position.high[slot]))
            for position in self.positions
        )
        return [condition for condition in found if condition.coordinate]


class Cluster:
    """Small: ``members`` are slots. Large: ``members`` are words, and ``free`` the unused slots in them."""

    __slots__ = ("_array", "free", "live", "members", "small")

    def __init__(self) -> None:
        self.small = True
        self.members: list[int] = []
        self.free: list[int] = []
        self.live = 0
        self._array: Numbers | None = None

    def array(self) -> Numbers:
        if self._array is None:
            self._array = np.array(self.members, np.int64)
        return self._array

    def add_member(self, member: int) -> None:
        self.members.append(member)
        self._array = None

    def drop_slot(self, slot: int) -> None:
        self.members.remove(slot)
        self._array = None

    def replace_members(self, members: list[int]) -> None:
        self.members = members
        self._array = None


class Arena:
    """Gives out words, and single slots of shared words."""

    def __init__(self) -> None:
        self.words = 0
        self._free_words: list[int] = []
        self._free_slots: list[int] = []

    def take_word(self) -> int:
        if self._free_words:
            return self._free_words.pop()
        self.words += 1
        return self.words - 1

    def give_words(self, words: list[int]) -> None:
        self._free_words += words

    def take_slot(self) -> int:
        if not self._free_slots:
            word = self.take_word()
            self._free_slots = slots_of(word)
        return self._free_slots.pop()

    def give_slot(self, slot: int) -> None:
        self._free_slots.append(slot)


def slots_of(word: int) -> list[int]:
    """Last first, so that popping gives the lowest."""
    return list(range(word * WORD + WORD - 1, word * WORD - 1, -1))
