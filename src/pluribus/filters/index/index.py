"""The index: subscriptions come and go one at a time, events are matched in batches."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...core.errors import BadInput, TooLarge
from ...core.limits import INDEX_SUBSCRIPTIONS_MAX
from ..filter import Filter
from ..predicate import Now, Predicate, compile_predicate
from ..tree import And, Node
from .batch import Batch
from .bitmaps import Bitmaps
from .conjunctions import EXACT, Conjunction, Coordinate, Equality, conjunctions_of, narrow
from .coordinates import Coordinates, TextUse, Values
from .members import Members
from .slots import (
    NOTHING,
    POSITIONS_MAX,
    SMALL_MAX,
    WORD,
    Arena,
    Cluster,
    Condition,
    Numbers,
    Slots,
    slots_of,
)

BATCH_EVENTS = 1_024
"""Events that are matched together; more would only need more memory."""
PIECE_WORDS = 1 << 17
"""Words that are ANDed together: as many as a processor's cache holds."""

Home = tuple[Coordinate, Any]


class Place(msgspec.Struct, gc=False):
    """The place of a conjunction of an entry: its equality, its slot; and the coordinates that it uses."""

    slot: int
    cluster: Cluster
    home: Home | None
    rest: int
    coordinates: tuple[Coordinate, ...]
    texts: tuple[TextUse, ...]


class Entry(msgspec.Struct, gc=False):
    """A distinct filter: its places, and the keys of the subscriptions that have it.

    Most entries have one key; several keys are those of a dictionary, which finds each at once. There may be a million
    entries, so they are made to cost the garbage collector nothing: no reference goes back.
    """

    tree: Node
    keys: tuple[Hashable] | dict[Hashable, None]
    places: tuple[Place, ...] = ()


class Rest:
    __slots__ = ("number", "predicate", "tree", "uses")

    def __init__(self, tree: Node, number: int) -> None:
        self.tree = tree
        self.number = number
        self.uses = 0
        self.predicate: Predicate | None = None


class Pairs(NamedTuple):
    """Matches as numbers, ordered by event."""

    events: Numbers
    entries: Numbers


class Index:
    """Subscriptions by key; ``now`` is the clock for filters with ``NOW()``."""

    def __init__(self, *, now: Now | None = None) -> None:
        self._now = now
        self._entry_of: dict[Hashable, int] = {}
        self._entries: list[Entry | None] = []
        self._free_entries: list[int] = []
        self._keys = np.full(WORD, None)
        """By entry: its key, or the dictionary of its keys, in an array that can be asked for many at once."""
        self._shared = 0
        """Entries with several keys."""
        self._by_tree: dict[Node, int] = {}
        self._several = 0
        """Entries with several places, which an event may match more than once."""
        self._live = 0
        self._arena = Arena()
        self._slots = Slots()
        self._bitmaps = Bitmaps()
        self._everything = Cluster()
        """The cluster of conjunctions without an equality."""
        self._homes: dict[Coordinate, dict[Any, Cluster]] = {}
        self._coordinates = Coordinates()
        self._rests: list[Rest | None] = []
        self._free_rests: list[int] = []
        self._rest_by_tree: dict[Node, Rest] = {}

    def __len__(self) -> int:
        return len(self._entry_of)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entry_of

    def stats(self) -> dict[str, int]:
        return {
            "subscriptions": len(self._entry_of),
            "filters": len(self._by_tree),
            "conjunctions": self._live,
            "clusters": sum(map(len, self._homes.values())),
            "without_equality": self._everything.live,
            "rests": len(self._rest_by_tree),
            "bitmaps": len(self._bitmaps.matrices),
        }

    # --- adding and removing ----------------------------------------------------------------------------------------

    def add(self, key: Hashable, filter: Filter) -> None:
        """From now on, events that match the filter yield the key."""
        if key in self._entry_of:
            raise BadInput(f"the index has {key!r} already: remove it first, or use another key")
        if len(self._entry_of) >= INDEX_SUBSCRIPTIONS_MAX:
            raise TooLarge(f"the index holds {INDEX_SUBSCRIPTIONS_MAX:,} subscriptions, its limit: use several")
        if filter.needs_now and self._now is None:
            raise BadInput(f"filter '{filter}' asks for NOW(), and nobody tells the time: make the index with now=")
        number = self._by_tree.get(filter.tree)
        if number is None:
            self._entry_of[key] = self._add_entry(filter.tree, key)
            return
        self._entry_of[key] = number
        entry = self._entry(number)
        if isinstance(entry.keys, tuple):
            entry.keys = dict.fromkeys(entry.keys)
            self._shared += 1
        entry.keys[key] = None
        self._keys[number] = entry.keys

    def remove(self, key: Hashable) -> None:
        number = self._entry_of.pop(key, None)
        if number is None:
            raise BadInput(f"the index has no {key!r}: it was removed already, or never added")
        entry = self._entry(number)
        if isinstance(entry.keys, tuple) or len(entry.keys) == 1:
            self._shared -= isinstance(entry.keys, dict)
            self._drop_entry(number, entry)
        else:
            del entry.keys[key]

    def _entry(self, number: int) -> Entry:
        entry = self._entries[number]
        assert entry is not None
        return entry

    def _add_entry(self, tree: Node, key: Hashable) -> int:
        entry = Entry(tree, (key,))
        if self._free_entries:
            number = self._free_entries.pop()
            self._entries[number] = entry
        else:
            number = len(self._entries)
            self._entries.append(entry)
            if number == len(self._keys):
                self._keys = np.concatenate([self._keys, np.full(number, None)])
        self._keys[number] = key
        self._by_tree[tree] = number
        for conjunction in conjunctions_of(tree):
            self._place(number, entry, conjunction)
        self._several += len(entry.places) > 1
        self._bitmaps.keep_up(self._slots, self._live, self._coordinates.uses)
        return number

    def _drop_entry(self, number: int, entry: Entry) -> None:
        self._several -= len(entry.places) > 1
        for place in entry.places:
            self._unplace(place)
        del self._by_tree[entry.tree]
        self._entries[number] = self._keys[number] = None
        self._free_entries.append(number)

    def _place(self, number: int, entry: Entry, conjunction: Conjunction) -> None:
        chosen = min(conjunction.equalities, key=self._crowd, default=None)
        intervals, rest = dict(conjunction.intervals), list(conjunction.rest)
        texts: list[TextUse] = []
        for equality in conjunction.equalities:
            if equality is not chosen and not self._as_interval(equality, intervals, texts):
                rest.append(equality.condition)
        if any(low > high for low, high in intervals.values()):
            self._coordinates.release((), texts)
            return
        if len(intervals) > POSITIONS_MAX:
            intervals, rest = dict(list(intervals.items())[:POSITIONS_MAX]), [entry.tree]
        conditions = []
        for coordinate, (low, high) in intervals.items():
            known = self._coordinates.take(coordinate)
            if known is None:
                rest = [entry.tree]
            else:
                conditions.append(Condition(known, low, high))
        conditions.sort()
        taken = tuple(self._coordinates.known[condition.coordinate] for condition in conditions)
        homes: list[Home | None] = [(chosen.coordinate, value) for value in chosen.values] if chosen else [None]
        for at, home in enumerate(homes):
            cluster = self._cluster(home)
            slot, left = self._take_slot(cluster), self._take_rest(rest)
            entry.places += (Place(slot, cluster, home, left, *((taken, tuple(texts)) if at == 0 else ((), ()))),)
            self._slots.put(slot, number, conditions, left)
            self._bitmaps.put(slot, conditions)
            self._live += 1

    def _crowd(self, equality: Equality) -> int:
        """How many conjunctions an event with such a value would have to check: the fewest is best."""
        table = self._homes.get(equality.coordinate, {})
        return len(equality.values) + sum(table[value].live for value in equality.values if value in table)

    def _as_interval(
        self,
        equality: Equality,
        intervals: dict[Coordinate, tuple[float, float]],
        texts: list[TextUse],
    ) -> bool:
        if len(equality.values) != 1:
            return False
        (value,) = equality.values
        if isinstance(value, str):
            code = float(self._coordinates.code(equality.coordinate, value))
            texts.append((equality.coordinate, value))
            narrow(intervals, equality.coordinate, code, code)
            return True
        if abs(value) < EXACT:
            narrow(intervals, equality.coordinate, float(value), float(value))
        return abs(value) < EXACT

    def _cluster(self, home: Home | None) -> Cluster:
        if home is None:
            return self._everything
        return self._homes.setdefault(home[0], {}).setdefault(home[1], Cluster())

    def _take_slot(self, cluster: Cluster) -> int:
        cluster.live += 1
        if cluster.small and len(cluster.members) >= SMALL_MAX:
            self._enlarge(cluster)
        if cluster.small:
            slot = self._arena.take_slot()
            cluster.add_member(slot)
        else:
            if not cluster.free:
                word = self._arena.take_word()
                cluster.add_member(word)
                cluster.free = slots_of(word)
            slot = cluster.free.pop()
        self._slots.grow(self._arena.words)
        self._bitmaps.grow(self._arena.words)
        return slot

    def _enlarge(self, cluster: Cluster) -> None:
        """Move a small cluster into a word of its own."""
        old, word = cluster.members, self._arena.take_word()
        self._slots.grow(self._arena.words)
        self._bitmaps.grow(self._arena.words)
        cluster.small = False
        cluster.replace_members([word])
        cluster.free = slots_of(word)
        for slot in old:
            to = cluster.free.pop()
            conditions = self._slots.conditions(slot)
            number = int(self._slots.entry[slot])
            self._slots.put(to, number, conditions, int(self._slots.rest[slot]))
            self._bitmaps.put(to, conditions)
            self._free_slot(slot)
            self._arena.give_slot(slot)
            for place in self._entry(number).places:
                if place.slot == slot:
                    place.slot = to

    def _free_slot(self, slot: int) -> None:
        self._slots.free(slot)
        self._bitmaps.free(slot)

    def _unplace(self, place: Place) -> None:
        cluster = place.cluster
        self._free_slot(place.slot)
        self._live -= 1
        cluster.live -= 1
        if cluster.small:
            cluster.drop_slot(place.slot)
            self._arena.give_slot(place.slot)
        else:
            cluster.free.append(place.slot)
        if not cluster.live:
            self._close(cluster, place.home)
        self._give_rest(place.rest)
        self._bitmaps.forget(self._coordinates.release(place.coordinates, place.texts))

    def _close(self, cluster: Cluster, home: Home | None) -> None:
        if not cluster.small:
            self._arena.give_words(cluster.members)
            cluster.small, cluster.free = True, []
            cluster.replace_members([])
        if home is not None:
            table = self._homes[home[0]]
            del table[home[1]]
            if not table:
                del self._homes[home[0]]

    def _take_rest(self, conditions: list[Node]) -> int:
        if not conditions:
            return NOTHING
        tree = conditions[0] if len(conditions) == 1 else And(tuple(conditions))
        rest = self._rest_by_tree.get(tree)
        if rest is None:
            number = self._free_rests.pop() if self._free_rests else len(self._rests)
            rest = self._rest_by_tree[tree] = Rest(tree, number)
            self._rests[number : number + 1] = [rest]
        rest.uses += 1
        return rest.number

    def _give_rest(self, number: int) -> None:
        if number == NOTHING:
            return
        rest = self._rests[number]
        assert rest is not None
        rest.uses -= 1
        if not rest.uses:
            del self._rest_by_tree[rest.tree]
            self._rests[number] = None
            self._free_rests.append(number)

    # --- matching ---------------------------------------------------------------------------------------------------

    def match(self, events: Sequence[Any]) -> list[list[Hashable]]:
        """For each event the keys whose filters are true for it, in an order that only earlier calls decide."""
        found: list[list[Hashable]] = []
        for start in range(0, len(events), BATCH_EVENTS):
            part = events[start : start + BATCH_EVENTS]
            found += self._keys_of(self._pairs(part), len(part))
        return found

    def _keys_of(self, pairs: Pairs, count: int) -> list[list[Hashable]]:
        edges = np.searchsorted(pairs.events, np.arange(count + 1)).tolist()
        keys = self._keys[pairs.entries].tolist()
        if not self._shared:
            return [keys[edges[at] : edges[at + 1]] for at in range(count)]
        several = [self._entry(entry).keys for entry in pairs.entries.tolist()]
        return [[key for some in several[edges[at] : edges[at + 1]] for key in some] for at in range(count)]

    def _pairs(self, events: Sequence[Any]) -> Pairs:
        batch = Batch(events)
        values = Values(batch, self._coordinates)
        found = []
        for some, slots in self._candidates(batch, values):
            some, slots = self._with_rests(batch, *self._exact(values, some, slots))
            found.append((some, self._slots.entry[slots]))
        if not found:
            return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
        matched, entries = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if self._several:
            both = np.unique((matched << 32) | entries)
            return Pairs(both >> 32, both & 0xFFFF_FFFF)
        # Numbers of 16 bits are sorted digit by digit, which is many times quicker than by comparing.
        order = np.argsort(matched.astype(np.uint16), kind="stable")
        return Pairs(matched[order], entries[order])

    def _candidates(self, batch: Batch, values: Values) -> Iterator[tuple[Numbers, Numbers]]:
        """Pairs of an event and a slot, in pieces: by the clusters of each event, and by the bitmaps."""
        small, large = Members(), Members()
        if self._everything.live:
            chosen = small if self._everything.small else large
            for event in range(len(batch.events)):
                chosen.add(event, self._everything)
        for coordinate, table in self._homes.items():
            for event, cluster in enumerate(batch.look_up(coordinate, table)):
                if cluster is not None:
                    (small if cluster.small else large).add(event, cluster)
        yield from small.pairs(PIECE_WORDS)
        rows = [
            (matrix, matrix.buckets(values.row(coordinate)))
            for coordinate, matrix in self._bitmaps.matrices.items()
            if large
        ]
        for some, words in large.pairs(PIECE_WORDS):
            yield self._bitmaps.candidates(some, words, rows)

    def _exact(self, values: Values, events: Numbers, slots: Numbers) -> tuple[Numbers, Numbers]:
        for position in self._slots.positions:
            which = position.coordinate[slots]
            if not which.any():
                break  # conditions fill positions from the first
            coordinates = values.of(which, events)
            holds = (coordinates >= position.low[slots]) & (coordinates <= position.high[slots])
            kept = np.flatnonzero(holds)
            if len(kept) < len(slots):
                events, slots = events[kept], slots[kept]
        return events, slots

    def _with_rests(self, batch: Batch, events: Numbers, slots: Numbers) -> tuple[Numbers, Numbers]:
        rests = self._slots.rest[slots]
        has = rests >= 0
        if not has.any():
            return events, slots
        asked, place = np.unique((rests[has] << 32) | events[has], return_inverse=True)
        answers = np.array([self._holds(pair >> 32, batch.events[pair & 0xFFFF_FFFF]) for pair in asked.tolist()])
        holds = ~has
        holds[has] = answers[place]
        return events[holds], slots[holds]

    def _holds(self, number: int, event: Any) -> bool:
        rest = self._rests[number]
        assert rest is not None
        if rest.predicate is None:
            rest.predicate = compile_predicate(rest.tree, now=self._now)
        return rest.predicate(event)

    # --- for the tests ----------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Invariants; slow."""
        seen: set[int] = set()
        for number, entry in enumerate(self._entries):
            for place in entry.places if entry else ():
                assert place.slot not in seen, "a slot has two owners"
                seen.add(place.slot)
                assert self._slots.entry[place.slot] == number
                assert place.slot in place.cluster.members or place.slot // WORD in place.cluster.members
                assert place.slot not in place.cluster.free
        assert np.array_equal(np.flatnonzero(self._slots.entry >= 0), sorted(seen))
        assert len(seen) == self._live
        assert self._several == sum(len(entry.places) > 1 for entry in self._entries if entry)
        clusters = [self._everything, *(cluster for table in self._homes.values() for cluster in table.values())]
        words = [word for cluster in clusters if not cluster.small for word in cluster.members]
        assert len(words) == len(set(words)), "a word has two clusters"
        assert sum(cluster.live for cluster in clusters) == self._live
        assert all(cluster.live or cluster is self._everything for cluster in clusters)
        self._bitmaps.validate(self._slots, seen)
        places = [place for entry in self._entries if entry for place in entry.places]
        self._coordinates.validate((place.coordinates, place.texts) for place in places)
