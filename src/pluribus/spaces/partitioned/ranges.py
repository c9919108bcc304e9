"""One range of a partitioned space: its tuples, waiting interests, tuples that are set aside, results of requests, and
registrations (``watches``).

The state changes by numbered steps only, so that a copy after the same steps is the same. ``placement`` gives the
members of each range, ``range_of`` the range of a tuple, and ``ranges_of`` the ranges in which a template can match.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from heapq import heappop, heappush

from ..index import TupleIndex, Wishes
from ..templates import ARITY_ANY, Template
from ..values import BASE, FieldValue, Item
from .watches import Watches
from .words import RANGES, Change, Interest, Name, Owed, State

ENDS_SLACK = 64
RESULTS_MAX = 100_000
"""Results of requests that one range remembers; with each request a worker says which of them it needs no more."""
WORKERS_MAX = 10_000
"""Workers of which one range knows which results they need."""


def range_of(item: Item, key: int) -> int:
    """The range of a tuple, by the number of fields and the field at ``key``; of an entry, by the last of its base
    classes."""
    if item.of:
        return _hashed(b"@" + _root(item.of))
    return _of_tuple(len(item.fields), item.fields[key] if key < len(item.fields) else None)


def ranges_of(template: Template, key: int) -> Sequence[int]:
    """One range if the template fixes the hashed field; else all."""
    if template.of:
        return [_hashed(b"@" + _root(template.of))]
    if template.arity == ARITY_ANY:
        return range(RANGES)
    if key >= template.arity:
        return [_of_tuple(template.arity, None)]
    value = template.fields[key].value
    return range(RANGES) if value is None else [_of_tuple(template.arity, value)]


def _root(of: str) -> bytes:
    return of.rpartition(BASE)[2].lstrip("@").encode()


def _of_tuple(arity: int, field: FieldValue | None) -> int:
    return _hashed(b"%d\0" % arity + (b"" if field is None else field.kind.encode() + b"\0" + field.raw))


def _hashed(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") % RANGES


def placement(holders: Sequence[int], copies: int) -> list[list[int]]:
    """By range: the owner, then those who keep copies. Each is the member that scores highest for the range, but no
    member owns more than its share; so when a member comes or goes, few ranges move between other members."""
    share = -(-RANGES // len(holders)) if holders else 0
    owned = dict.fromkeys(holders, 0)
    placed: list[list[int]] = []
    for number in range(RANGES):
        ranked = sorted(holders, key=partial(_score, number))
        owner = next((member for member in ranked if owned[member] < share), None)
        if owner is None:
            placed.append([])
            continue
        owned[owner] += 1
        placed.append([owner, *[member for member in ranked if member != owner][: copies - 1]])
    return placed


def _score(number: int, member: int) -> bytes:
    return blake2b(b"%d/%d" % (number, member), digest_size=8).digest()


class RangeState:
    def __init__(self, epoch: int, born: int) -> None:
        self.epoch = epoch
        """The epoch of the state; a range that begins empty has none until its epoch is opened."""
        self.born = born
        self.steps = 0
        self.tuples: dict[Name, tuple[Item, float]] = {}
        self.waiting: dict[tuple[int, int], Interest] = {}
        self._wishes: Wishes[tuple[int, int]] = Wishes()
        self._turns: dict[tuple[int, int], int] = {}
        self.aside: dict[Name, tuple[int, int]] = {}
        self.done: dict[int, dict[int, tuple[Name, Item | None]]] = {}
        self._order: deque[tuple[int, int]] = deque()
        """Requests with a result, oldest first, and some whose result is forgotten."""
        self.floors: dict[int, int] = {}
        self.owed: dict[tuple[int, int], Owed] = {}
        """By request: the tuple that replaces the one taken here, and that is not kept elsewhere yet."""
        self.free = TupleIndex()
        self.kept = TupleIndex()
        """Tuples that are set aside: they can be read."""
        self._numbers: dict[Name, int] = {}
        self._names: dict[int, Name] = {}
        self._next = 0
        self.ends: list[tuple[float, Name]] = []
        self.watches = Watches(born)

    def step(self, changes: Sequence[Change], now: float) -> None:
        self.steps += 1
        for change in changes:
            self._apply(change, now)

    def _apply(self, change: Change, now: float) -> None:
        if change.add is not None:
            self._add(*change.add, now)
            self.watches.tell(change.add[1], self.steps)
        if change.remove is not None and change.remove in self.tuples:
            self._remove(change.remove)
        if change.wait is not None:
            self._wait(change.wait)
        if change.leave is not None:
            if self.waiting.pop(change.leave, None) is not None:
                del self._turns[change.leave]
                self._wishes.remove(change.leave)
            for name in [name for name, holder in self.aside.items() if holder == change.leave]:
                self._put_back(name)
        if change.set_aside is not None:
            self._set_aside(*change.set_aside)
        if change.done is not None:
            self._remember(*change.done)
        if change.floor is not None:
            self._forget(*change.floor)
        if change.relet is not None and change.relet[0] in self.tuples:
            self._let(*change.relet, now)
        if change.owe is not None:
            self.owed[change.owe.worker, change.owe.number] = change.owe
        if change.paid is not None:
            self.owed.pop(change.paid, None)
        if change.watch is not None:
            self.watches.add(*change.watch, now)
        if change.hears is not None:
            self.watches.heard(*change.hears)
        if change.rewatch is not None:
            self.watches.renew(*change.rewatch, now)
        if change.unwatch is not None:
            self.watches.remove(change.unwatch)

    def _remember(self, worker: int, number: int, name: Name, item: Item | None) -> None:
        """The result of a request. Of too many the oldest are forgotten: while one request of a worker waits, it
        says of none of its later ones that it needs the result no more."""
        self.done.setdefault(worker, {})[number] = (name, item)
        self._order.append((worker, number))
        if len(self._order) > RESULTS_MAX:
            self._order = deque((worker, number) for worker, number, *_ in self.results())
            while len(self._order) > RESULTS_MAX // 2:
                worker, number = self._order.popleft()
                self._drop_results(worker, [number])

    def _forget(self, worker: int, floor: int) -> None:
        """A worker needs no results of requests before this one."""
        before = self.floors.pop(worker, 0)
        self.floors[worker] = max(floor, before)
        if floor > before:
            self._drop_results(worker, [number for number in self.done.get(worker, ()) if number < floor])
        while len(self.floors) > WORKERS_MAX:
            del self.floors[next(iter(self.floors))]

    def _drop_results(self, worker: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.done[worker][number]
        if worker in self.done and not self.done[worker]:
            del self.done[worker]

    def results(self) -> Iterator[tuple[int, int, Name, Item | None]]:
        """The results of requests, oldest first."""
        for worker, number in dict.fromkeys(self._order):
            if number in self.done.get(worker, ()):
                yield (worker, number, *self.done[worker][number])

    def _let(self, name: Name, lease_us: int, now: float) -> None:
        until = now + lease_us / 1e6 if lease_us else 0.0
        self.tuples[name] = (self.tuples[name][0], until)
        self._ends(until, name)

    def _add(self, name: Name, item: Item, lease_us: int, now: float) -> None:
        until = now + lease_us / 1e6 if lease_us else 0.0
        self._next += 1
        self.tuples[name] = (item, until)
        self._numbers[name] = self._next
        self._names[self._next] = name
        self.free.add(self._next, item)
        self._ends(until, name)

    def _ends(self, until: float, name: Name) -> None:
        """Remember when a lease ends. Outdated entries are removed when they are most of the list."""
        if not until:
            return
        heappush(self.ends, (until, name))
        if len(self.ends) > 2 * len(self.tuples) + ENDS_SLACK:
            self.ends = sorted((end, one) for one, (_, end) in self.tuples.items() if end)

    def _remove(self, name: Name) -> None:
        del self.tuples[name]
        number = self._numbers.pop(name)
        del self._names[number]
        (self.free if self.aside.pop(name, None) is None else self.kept).remove(number)

    def _set_aside(self, name: Name, worker: int, number: int) -> None:
        at = self._numbers[name]
        self.aside[name] = (worker, number)
        self.kept.add(at, self.free.remove(at))

    def _put_back(self, name: Name) -> None:
        at = self._numbers[name]
        del self.aside[name]
        self.free.add(at, self.kept.remove(at))
        self._ends(self.tuples[name][1], name)  # it may have ended meanwhile

    def _wait(self, interest: Interest) -> None:
        holder = (interest.worker, interest.number)
        if holder not in self.waiting:
            self._next += 1
            self.waiting[holder] = interest
            self._turns[holder] = self._next
            self._wishes.add(holder, interest.template)

    def interested(self, item: Item) -> list[Interest]:
        """Interests that an item matches, in their order."""
        return [self.waiting[holder] for holder in sorted(self._wishes.of(item), key=self._turns.__getitem__)]

    def find(self, template: Template, reads: bool) -> Name | None:
        number = self.free.find(template)
        if number is None and reads:
            number = self.kept.find(template)
        return None if number is None else self._names[number]

    def result(self, worker: int, number: int) -> tuple[Name, Item | None] | None:
        """The tuple that a request was given here before."""
        return self.done.get(worker, {}).get(number)

    def over(self, worker: int, number: int) -> bool:
        """True if a word of this request is late: its worker has long finished it."""
        return number < self.floors.get(worker, 0)

    def expired(self, now: float) -> list[Name]:
        """Tuples whose leases have ended, and that no take is about to get."""
        found: list[Name] = []
        while self.ends and self.ends[0][0] <= now:
            until, name = heappop(self.ends)
            if name in self.tuples and self.tuples[name][1] == until and name not in self.aside:
                found.append(name)
        return found

    def count(self, template: Template) -> int:
        return self.free.count(template) + self.kept.count(template)

    def matches(self, template: Template) -> list[Item]:
        numbers = sorted([*self.free.matches(template), *self.kept.matches(template)])
        return [self.tuples[self._names[number]][0] for number in numbers]

    # State transfer.

    def left_us(self, name: Name, now: float) -> int:
        """The rest of a tuple's lease; 0: it has no end."""
        until = self.tuples[name][1]
        return max(int((until - now) * 1e6), 1) if until else 0

    def interests(self) -> list[Interest]:
        """Waiting interests, in their order."""
        return list(self.waiting.values())

    @classmethod
    def arriving(cls, first: State) -> RangeState:
        """An empty one, to which the pieces are added (``arrived``)."""
        return cls(0 if first.born == first.epoch else first.epoch, first.born)

    def arrived(self, piece: State, now: float) -> None:
        """Pieces are added in their order, each once."""
        for name, item, lease_us in piece.tuples:
            self._add(name, item, lease_us, now)
        for one in piece.waiting:
            self._wait(one)
        for name, worker, number in piece.aside:
            self._set_aside(name, worker, number)
        for worker, number, name, found in piece.done:
            self._remember(worker, number, name, found)
        self.floors.update(piece.floors)
        self.owed.update({(one.worker, one.number): one for one in piece.owed})
        self.steps = piece.steps
        self.watches.restore(piece.watches, now)

    def validate(self) -> None:
        self.free.validate()
        self.kept.validate()
        self.watches.validate()
        assert len(self.free) + len(self.kept) == len(self.tuples) == len(self._numbers)
        assert set(self.aside) <= set(self.tuples) and len(self.kept) == len(self.aside)
