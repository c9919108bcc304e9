"""Parts of a replicated space's state: a tuple, a waiting take, a transaction, and how full the parts of the snapshot
are; and what a transaction across machines will do to it."""

from __future__ import annotations

import msgspec

from ..group.host.machine import Effects
from .templates import Template
from .values import Item
from .words import FOR_EVER_US, Write

PART_BYTES = 512 << 10
PART_TUPLES = 2_048
PART_BYTES_LOW = 128 << 10
"""A part with fewer bytes is filled up before another is begun."""
LEASE_US_MAX = 365 * 24 * 3_600 * 1_000_000
"""The longest lease: a longer one is granted with this length; one for ever is granted for ever."""


def granted(lease_us: int) -> int:
    return min(lease_us, LEASE_US_MAX)


class KeptTuple(msgspec.Struct, array_like=True, gc=False):
    """One tuple of the space."""

    number: int
    item: Item
    part: int
    until_us: int = FOR_EVER_US
    """When its lease ends; below 0: this long after the next tick."""
    held: int = 0
    """The consumer to which it was handed over."""
    taken: int = 0
    """The transaction that took it."""
    written: int = 0
    """The transaction that wrote it."""
    readers: tuple[int, ...] = ()
    """Transactions that have read it."""


class Waiter(msgspec.Struct, array_like=True):
    """A take that stands in line."""

    consumer: int
    tag: int
    if_exists: bool


class WaitingLine(msgspec.Struct, array_like=True):
    """All takes that wait with one template, in one transaction or in none."""

    tag: int
    template: Template
    transaction: int
    waiters: int = 0


class SpaceTransaction(msgspec.Struct, array_like=True):
    number: int
    until_us: int
    prepared: bool = False
    wrote: dict[int, None] = {}
    took: dict[int, None] = {}
    read: dict[int, None] = {}

    def saved(self) -> SavedTransaction:
        return (self.number, self.until_us, self.prepared, sorted(self.wrote), sorted(self.took), sorted(self.read))


SavedTransaction = tuple[int, int, bool, list[int], list[int], list[int]]
SavedTransactions = tuple[list[SavedTransaction], list[tuple[int, bool]]]


class SpaceEffects(Effects):
    """The effects here of a transaction across machines."""

    writes: list[Write]
    takes: list[int]
    commits: list[int]
    prepares: list[int]
    aborts: list[int]


class Filled(msgspec.Struct, array_like=True):
    """How full one part of the snapshot is."""

    tuples: int = 0
    size_bytes: int = 0


SavedNumbers = tuple[int, int, int, int, list[tuple[int, Filled]]]


class Filling:
    """The part of the snapshot of each tuple. It follows from the commands, like all of the state."""

    def __init__(self) -> None:
        self.filled: dict[int, Filled] = {}
        self.members: dict[int, set[int]] = {}
        self.part = 0

    def add(self, size: int, number: int) -> int:
        """Choose the part for a new tuple: the present part while it has room, then the emptiest, then a new one."""
        now = self.filled.get(self.part)
        if now is not None and (now.size_bytes + size > PART_BYTES or now.tuples >= PART_TUPLES):
            low = min(self.filled, key=lambda part: (self.filled[part].size_bytes, part))
            other = self.filled[low]
            roomy = other.size_bytes + size <= PART_BYTES_LOW and other.tuples < PART_TUPLES // 4
            self.part = low if roomy else max(self.filled) + 1
        filled = self.filled.setdefault(self.part, Filled())
        filled.tuples += 1
        filled.size_bytes += size
        self.members.setdefault(self.part, set()).add(number)
        return self.part

    def remove(self, kept: KeptTuple, size: int) -> bool:
        """True if the part is empty, and gone."""
        filled = self.filled[kept.part]
        filled.tuples -= 1
        filled.size_bytes -= size
        self.members[kept.part].discard(kept.number)
        if filled.tuples:
            return False
        del self.filled[kept.part], self.members[kept.part]
        return True

    def saved(self) -> tuple[int, list[tuple[int, Filled]]]:
        return self.part, sorted(self.filled.items())

    def restore(self, part: int, filled: list[tuple[int, Filled]]) -> None:
        self.part, self.filled = part, dict(filled)
