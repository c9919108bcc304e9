"""Searches for consumers with a selector, in queues too long to be looked through within a command.

The leader has its machine search, a slice at a time, outside of ``apply``; what is found is named by a command
(``Offer``), and ``apply`` checks it: the message is still ready, and the selector is true for it. So a search may be
wrong, late, or done twice, and nothing depends on it but the time that it takes.

*A list for a property.* The first selector that asks for one value of a property (``region = 'eu'``) has a list made of
that property: for each value, the messages that have it. Then whoever asks for any value of the property looks at those
messages only. Other selectors look at all messages that are ready, in order.

A list is brought up to date when it is used; what is gone is left out then. Nothing here is part of the state.
Bounded: ``LISTS_MAX`` lists, ``ENTRIES_MAX`` entries in all of them; the list that was used least lately goes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..filters.tree import And, Compare, Constant, Field, Node
from . import words
from .batch import properties_of
from .segments import Segment, bits_of
from .selectors import seen_of
from .words import PRIORITIES

if TYPE_CHECKING:
    from .machine import Queue

SLICE = 4_000
"""Messages that one slice looks at: some milliseconds."""
LISTS_MAX = 8
ENTRIES_MAX = 20_000_000
OFFER_MAX = 256


class _List:
    """Messages by the value of one property."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[Any, array[int]] = {}
        self.entries = 0
        self.built = 0
        """Messages below this number are in it."""

    def build(self, queue: Queue, most: int) -> int:
        """Go on from where it ended; how many messages were looked at."""
        count, end = 0, queue.messages.totals.next
        for segment in queue.messages.segments.since(self.built):
            if segment.extra is None:
                self.built = max(self.built, segment.last + 1)
                continue
            for at, encoded in sorted(segment.extra.properties.items()):
                thing = segment.thing_at(at)
                if thing < self.built:
                    continue
                if count >= most:
                    self.built = thing
                    return count
                count += 1
                value = properties_of(encoded).get(self.name)
                if value is not None:
                    self.values.setdefault(value, array("q")).append(thing)
                    self.entries += 1
        self.built = end
        return count

    def of(self, queue: Queue, value: Any) -> array[int]:
        """Live messages with this value."""
        held = self.values.get(value)
        if held is None:
            return array("q")
        kept = array("q", [thing for thing in held if queue.messages.segments.find(thing) is not None])
        if len(kept) < len(held):
            self.entries -= len(held) - len(kept)
            if kept:
                self.values[value] = kept
            else:
                del self.values[value]
        return kept


class _Search:
    """For one consumer, from when it began to wait until it has room no more."""

    def __init__(self, stint: int) -> None:
        self.stint = stint
        self.priority = PRIORITIES - 1
        self.start = 0
        self.candidates: list[int] | None = None
        """Messages of a list that match, the first ones first; ``start`` of them were offered."""
        self.done = False


class Finder:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._searches: dict[int, _Search] = {}
        self._lists: dict[str, _List] = {}
        """The list that was used least lately first."""
        self.looked = 0
        """Messages that searches looked at."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for a search."""
        return self._queue.messages.totals.paused or not any(self._unsearched())

    def _unsearched(self) -> Iterator[tuple[int, int]]:
        for consumer, stint in self._queue.selectors.unsearched.items():
            search = self._searches.get(consumer)
            if search is None or search.stint != stint or not search.done:
                yield consumer, stint

    def chores(self) -> list[bytes]:
        """One slice of work: offers to be submitted. Nothing is searched while the queue is paused."""
        queue = self._queue
        if queue.messages.totals.paused:
            return []
        offers: list[bytes] = []
        left = SLICE
        for consumer, stint in list(self._unsearched()):
            if left <= 0:
                break
            search = self._searches.get(consumer)
            if search is None or search.stint != stint:
                search = self._searches[consumer] = _Search(stint)
            found, looked = self._search(consumer, search, left)
            left -= max(looked, 1)
            self.looked += looked
            if found:
                epoch = queue.demands.consumers[consumer].epoch
                offers.append(words.encode(words.Offer(consumer, epoch, found)))
        for consumer in [one for one in self._searches if one not in queue.selectors.unsearched]:
            del self._searches[consumer]
        return offers

    def _search(self, consumer: int, search: _Search, most: int) -> tuple[list[int], int]:
        """Messages for a consumer, and how many were looked at."""
        queue = self._queue
        room = min(queue.demands.consumers[consumer].room_for(1), OFFER_MAX)
        equality = _equality(queue.selectors.filter_of(consumer).tree)
        if equality is None:
            return self._scan(consumer, search, room, most)
        listed = self._list(equality[0])
        looked = listed.build(queue, most)
        if listed.built < queue.messages.totals.next:
            return [], looked
        if search.candidates is None:
            wanted = queue.selectors.predicate(consumer)
            ranked: list[tuple[int, int]] = []
            for thing in listed.of(queue, equality[1]):
                looked += 1
                there = queue.messages.segments.find(thing)
                if there is not None and queue.messages.segments.is_ready(*there) and wanted(seen_of(*there)):
                    ranked.append((-there[0].priority_of(there[1]), thing))
            search.candidates = [thing for _, thing in sorted(ranked)]
        found = search.candidates[search.start : search.start + OFFER_MAX]
        search.start += len(found)
        search.done = search.start >= len(search.candidates)
        return found, looked

    def _scan(self, consumer: int, search: _Search, room: int, most: int) -> tuple[list[int], int]:
        queue, segments = self._queue, self._queue.messages.segments
        wanted = queue.selectors.predicate(consumer)
        found: list[int] = []
        looked = 0
        while search.priority >= 0:
            if segments.ready[search.priority]:
                for segment, at in _ready(queue, search.priority, search.start):
                    thing = segment.thing_at(at)
                    if looked >= most or len(found) >= room:
                        search.start = thing
                        return found, looked
                    looked += 1
                    if wanted(seen_of(segment, at)):
                        found.append(thing)
            search.priority -= 1
            search.start = 0
        search.done = True
        return found, looked

    def _list(self, name: str) -> _List:
        found = self._lists.pop(name, None) or _List(name)
        self._lists[name] = found
        while len(self._lists) > 1 and (
            len(self._lists) > LISTS_MAX or sum(one.entries for one in self._lists.values()) > ENTRIES_MAX
        ):
            del self._lists[next(iter(self._lists))]
        return found


def _ready(queue: Queue, priority: int, start: int) -> Iterator[tuple[Segment, int]]:
    for segment in queue.messages.segments.since(start):
        bits = queue.messages.segments.ready_bits(segment, priority)
        if bits:
            for at in bits_of(bits):
                if segment.thing_at(at) >= start:
                    yield segment, at


def _equality(tree: Node) -> tuple[str, Any] | None:
    """A property and the value that it must have for the selector to be true."""
    for term in tree.terms if isinstance(tree, And) else (tree,):
        if isinstance(term, Compare) and term.operator == "=":
            for one, other in ((term.left, term.right), (term.right, term.left)):
                plain = isinstance(one, Field) and len(one.path) == 1 and one.path[0] not in ("priority", "key")
                if plain and isinstance(one, Field) and isinstance(other, Constant):
                    return one.path[0], other.value
    return None
