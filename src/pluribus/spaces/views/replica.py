"""A replica: all tuples of the space, the locks on tuple sets that takers hold here, and the registrations
(``listeners``).

A replica executes the operations of each worker in the order of their numbers, each once: ``marks`` has the last one
executed. A tuple that is not here although its writer's mark is past it was removed. So removed tuples need not be
remembered.

*Locks.* A template whose first field is a value locks the tuple set of that name; any other template, and one of an
entry, locks all sets. A lock is granted at once or denied. No taker starves: a request that was denied is remembered
for ``RESERVED_S``, and meanwhile a free lock goes to no request of fewer attempts. A taker that has most of the locks
already is exempt, or two takers might wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from ..index import TupleIndex
from ..templates import Template
from ..values import Item
from .listeners import Listeners
from .merging import first_of
from .words import KeptListener, Name, Op

RESERVED_S = 2.0
MATCHES_MAX = 256
"""Tuples in one answer to a lock: the first by name, and no more than fit into one word."""

Holder = tuple[int, int]
"""A worker and its request."""
NONE: Name = (0, 0)
ALL_SETS = b""
OVER = 1 << 62
"""Later than every attempt."""
OVER_MAX = 10_000
WORKER_BITS = 64
"""The number of the worker is in the bits above these."""


def set_of(template: Template) -> bytes:
    """The tuple set that a template locks."""
    first = template.fields[0].value if template.fields and not template.of else None
    return ALL_SETS if first is None else first.kind.encode() + b"\0" + first.raw


class TupleReplica:
    def __init__(self) -> None:
        self.epoch = -1
        """The epoch of the tuples that are here; -1: none were installed yet."""
        self.tuples: dict[Name, tuple[Item, float]] = {}
        """Tuples, with the end of the lease by this member's clock; 0: never."""
        self.marks: dict[int, int] = {}
        self.ahead: dict[int, set[int]] = {}
        """By worker: removals beyond its mark that were executed when an epoch began."""
        self._ends: list[tuple[float, Name]] = []
        self._index = TupleIndex()
        """The numbers in it are in the order of the names, which is the same at all replicas: so the first matches of a
        take are the same."""
        self._arrived: dict[int, int] = {}
        """By number: when the tuple came here."""
        self._next = 0
        self.locks: dict[bytes, tuple[Holder, int]] = {}
        """By tuple set: the holder of its lock, and the attempt."""
        self._over: dict[Holder, int] = {}
        """Attempts that were given up: a late word of such an attempt takes no lock."""
        self._denied: dict[Holder, tuple[int, bytes, float]] = {}
        self.listeners = Listeners()

    # Tuples.

    def add(self, name: Name, item: Item, until: float) -> None:
        number = _number(name)
        self._next += 1
        self.tuples[name] = (item, until)
        self._arrived[number] = self._next
        self._index.add(number, item)
        if until:
            heappush(self._ends, (until, name))

    def remove(self, name: Name) -> bool:
        if name not in self.tuples:
            return False
        del self.tuples[name]
        number = _number(name)
        del self._arrived[number]
        self._index.remove(number)
        return True

    def execute(self, worker: int, op: Op, now: float) -> bool:
        """False if an operation before this one is missing."""
        mark = self.marks.get(worker, 0)
        if op.number != mark + 1:
            return op.number <= mark
        self.marks[worker] = op.number
        ahead = self.ahead.get(worker, set())
        done = op.number in ahead
        ahead.discard(op.number)
        if op.name != NONE:
            self.remove(op.name)
            self.unlock((worker, op.request), OVER)
        if op.item is not None and not done:
            self.add((worker, op.number), op.item, now + op.lease_us / 1e6 if op.lease_us else 0.0)
            if not op.again:
                self.listeners.tell((worker, op.number), op.item)
        if op.listening is not None:
            self.listeners.add((worker, op.number), op.listening, now)
        if op.heard is not None:
            self.listeners.heard(op.heard, self.executed, now)
        return True

    def executed(self, name: Name) -> bool:
        """True if the operation was executed here."""
        worker, number = name
        return number <= self.marks.get(worker, 0) or number in self.ahead.get(worker, ())

    def find(self, template: Template) -> tuple[Name, Item] | None:
        number = self._index.find(template)
        if number is None:
            return None
        name = _name(number)
        return name, self.tuples[name][0]

    def matches(self, template: Template, only: Name, now: float) -> list[tuple[Name, Item, int]]:
        if only != NONE:
            return [self.travelling(only, now)] if only in self.tuples else []
        lowest = self._index.lowest(template, MATCHES_MAX)
        return first_of(self.travelling(_name(number), now) for number in lowest)

    def travelling(self, name: Name, now: float) -> tuple[Name, Item, int]:
        item, until = self.tuples[name]
        return name, item, max(int((until - now) * 1e6), 1) if until else 0

    def count(self, template: Template) -> int:
        return self._index.count(template)

    def every(self, template: Template) -> list[Item]:
        """Every match, the oldest first."""
        found = sorted(self._index.matches(template), key=self._arrived.__getitem__)
        return [self._index.items[number] for number in found]

    def expire(self, now: float) -> None:
        """Remove tuples whose lease has ended. Each replica does it by its own clock."""
        while self._ends and self._ends[0][0] <= now:
            until, name = heappop(self._ends)
            if name in self.tuples and self.tuples[name][1] == until:
                self.remove(name)
        self.listeners.expire(now)

    @property
    def next_end(self) -> float:
        return min(self._ends[0][0] if self._ends else float("inf"), self.listeners.next_end)

    # Locks.

    def lock(self, holder: Holder, template: Template, attempt: int, most: bool, now: float) -> bool | None:
        """True: granted; False: denied; None: the request is over, and this word of it is late."""
        if attempt <= self._over.get(holder, -1):
            return None
        wanted = set_of(template)
        if wanted in self.locks and self.locks[wanted][0] == holder:
            self.locks[wanted] = (holder, max(attempt, self.locks[wanted][1]))
            return True
        clash = any(one == wanted or ALL_SETS in (one, wanted) for one in self.locks)
        if not clash and (most or not self._reserved(holder, wanted, attempt, now)):
            self.locks[wanted] = (holder, attempt)
            self._denied.pop(holder, None)
            return True
        self._denied[holder] = (attempt, wanted, now)
        return False

    def _reserved(self, holder: Holder, wanted: bytes, attempt: int, now: float) -> bool:
        self._denied = {one: asked for one, asked in self._denied.items() if now - asked[2] < RESERVED_S}
        return any(
            (-asked[0], one) < (-attempt, holder) and (asked[1] == wanted or ALL_SETS in (asked[1], wanted))
            for one, asked in self._denied.items()
            if one != holder
        )

    def unlock(self, holder: Holder, attempt: int) -> None:
        """Free a lock of this attempt or an earlier one."""
        self._denied.pop(holder, None)
        self._over[holder] = max(attempt, self._over.get(holder, -1))
        while len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]
        for name in [name for name, (one, held) in self.locks.items() if one == holder and held <= attempt]:
            del self.locks[name]

    # Epochs.

    def install(
        self,
        epoch: int,
        drop: Iterable[Name],
        add: Iterable[tuple[Name, Item, int]],
        marks: dict[int, int],
        ahead: dict[int, list[int]],
        listeners: Iterable[KeptListener],
        now: float,
    ) -> None:
        for name in drop:
            self.remove(name)
        for name, item, lease_us in add:
            if name not in self.tuples:
                self.add(name, item, now + lease_us / 1e6 if lease_us else 0.0)
        self.epoch = epoch
        self.marks = dict(marks)
        self.ahead = {worker: set(numbers) for worker, numbers in ahead.items()}
        self.listeners.install(listeners, now)
        self.locks.clear()
        self._denied.clear()
        self._over.clear()

    def validate(self) -> None:
        self._index.validate()
        assert set(map(_name, self._arrived)) == set(self.tuples)
        assert not (ALL_SETS in self.locks and len(self.locks) > 1), "a lock on all sets is not alone"
        assert all(map(self.executed, self.tuples))
        self.listeners.validate()


def _number(name: Name) -> int:
    return name[0] << WORKER_BITS | name[1]


def _name(number: int) -> Name:
    return number >> WORKER_BITS, number & ((1 << WORKER_BITS) - 1)
