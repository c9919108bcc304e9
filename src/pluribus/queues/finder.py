"""Searches for consumers with a selector, in queues too long to be looked through within a command.

The leader's machine searches, a slice at a time, outside of ``apply``. A command (``Offer``) names the messages found,
and ``apply`` checks them: the message must still be ready, and the selector true for it. So a search may be wrong,
late, or done twice: that costs time and nothing else.

*A list for a property.* The first selector that asks for one value of a property (``region = 'eu'``) has a list made of
that property: for each value, the messages that have it. Then a selector for any value of the property looks at those
messages only. Other selectors look at all messages that are ready, in order.

A list is brought up to date when it is used; messages that are gone are left out then, sooner or later. A list is also
searched in slices, so a value that every message has delays nobody. Nothing here is part of the state. Bounded:
``LISTS_MAX`` lists, ``ENTRIES_MAX`` entries in all of them; the least recently used list is dropped. A property whose
list would be longer than that has none: its messages are searched like all others.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
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
"""Messages that one slice looks at: a few milliseconds."""
LISTS_MAX = 8
ENTRIES_MAX = 20_000_000
OFFER_MAX = 256
GONE_MIN = 1_024
"""Messages at the front of a list that are gone, before they are left out."""
STALE_MIN = 65_536
"""Entries of a list beyond twice the messages that are there, before it is made anew."""

Candidate = tuple[int, tuple[Segment, int] | None]
"""The number of a message, and its segment and place if it is ready."""


class _List:
    """Messages by the value of one property, and by priority, in the order of delivery."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values: dict[Any, int | dict[int, array[int]]] = {}
        """By value and priority. A single message is stored as a number, because many properties have a different value
        in each message."""
        self.entries = 0
        self.built = 0
        """Messages below this number are in the list."""

    def build(self, queue: Queue, most: int) -> int:
        """Go on from where it ended; returns how many messages were looked at."""
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
                    self._add(queue, value, thing, segment.priority_of(at))
        self.built = end
        return count

    def _add(self, queue: Queue, value: Any, thing: int, priority: int) -> None:
        self.entries += 1
        held = self._values.get(value)
        if isinstance(held, int):
            before = queue.messages.segments.find(held)
            held = {} if before is None else {before[0].priority_of(before[1]): array("q", [held])}
            self.entries -= before is None
            self._values[value] = held
        if held is None:
            self._values[value] = thing
        else:
            held.setdefault(priority, array("q")).append(thing)

    def of(self, value: Any, priority: int, start: int) -> Iterator[int]:
        """Messages with this value that are in the list, from a number on; some may be gone. A single one is returned
        for every priority."""
        held = self._values.get(value)
        if isinstance(held, int):
            if held >= start:
                yield held
            return
        things = held.get(priority) if held is not None else None
        if things is None:
            return
        at = bisect_left(things, start)
        while at < len(things):
            yield things[at]
            at += 1

    def forget(self, value: Any, priority: int, count: int) -> None:
        """The first ``count`` of its messages are gone; they are removed when that is worth the copying."""
        held = self._values.get(value)
        if isinstance(held, dict):
            things = held[priority]
            if count >= GONE_MIN or count == len(things):
                del things[:count]
                self.entries -= count
                if not things:
                    del held[priority]
        elif held is not None:
            self.entries -= 1
        if not held or isinstance(held, int):
            self._values.pop(value, None)


class _Search:
    """The search for one consumer, from when it begins to wait until it has no more room."""

    def __init__(self, stint: int) -> None:
        self.stint = stint
        self.priority = PRIORITIES - 1
        self.start = 0
        self.done = False


class Finder:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._searches: dict[int, _Search] = {}
        self._lists: dict[str, _List] = {}
        """The least recently used list first."""
        self._too_long: set[str] = set()
        """Properties whose list would exceed the limit of all lists."""
        self.looked = 0
        """Messages that searches have looked at."""

    @property
    def idle(self) -> bool:
        """True if no consumer waits for a search."""
        return self._queue.messages.totals.paused or not any(self._unsearched())

    def _unsearched(self) -> Iterator[tuple[int, int]]:
        for consumer, stint in self._queue.selectors.unsearched.items():
            search = self._searches.get(consumer)
            if search is None or search.stint != stint or not search.done:
                yield consumer, stint

    def chores(self) -> list[bytes]:
        """One slice of work; returns offers to be submitted. Nothing is searched while the queue is paused."""
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

    def begin_anew(self) -> None:
        """Offers were lost: all waiting consumers are searched for from the beginning."""
        self._searches.clear()

    def _search(self, consumer: int, search: _Search, most: int) -> tuple[list[int], int]:
        """The messages found for a consumer, and how many were looked at."""
        queue = self._queue
        equality = _equality(queue.selectors.filter_of(consumer).tree)
        if equality is None or equality[0] in self._too_long:
            return self._scan(consumer, search, most, lambda priority, start: _ready(queue, priority, start))
        listed = self._list(equality[0])
        looked = listed.build(queue, most)
        if listed.entries > ENTRIES_MAX:
            del self._lists[listed.name]
            self._too_long.add(listed.name)
            return [], looked
        if listed.built < queue.messages.totals.next:
            return [], looked
        return self._look_up(consumer, search, most, listed, equality[1])

    def _look_up(self, consumer: int, search: _Search, most: int, listed: _List, value: Any) -> tuple[list[int], int]:
        """Search the list of a property."""
        segments = self._queue.messages.segments
        gone: dict[int, int] = {}

        def there(priority: int, start: int) -> Iterator[Candidate]:
            first = not start
            for thing in listed.of(value, priority, start):
                found = segments.find(thing)
                first = first and found is None
                if first:
                    gone[priority] = gone.get(priority, 0) + 1
                fits = found is not None and found[0].priority_of(found[1]) == priority
                yield thing, found if found is not None and fits and segments.is_ready(*found) else None

        answer = self._scan(consumer, search, most, there)
        for priority, count in gone.items():
            listed.forget(value, priority, count)
        return answer

    def _scan(
        self,
        consumer: int,
        search: _Search,
        most: int,
        candidates: Callable[[int, int], Iterator[Candidate]],
    ) -> tuple[list[int], int]:
        """Go on through the candidates, by priority and number."""
        queue, segments = self._queue, self._queue.messages.segments
        room = min(queue.demands.consumers[consumer].room_for(1), OFFER_MAX)
        wanted = queue.selectors.predicate(consumer)
        found: list[int] = []
        looked = 0
        while search.priority >= 0:
            if segments.ready[search.priority]:
                for thing, there in candidates(search.priority, search.start):
                    if looked >= most or len(found) >= room:
                        return found, looked
                    looked += 1
                    search.start = thing + 1
                    if there is not None and wanted(seen_of(*there)):
                        found.append(thing)
            search.priority -= 1
            search.start = 0
        search.done = True
        return found, looked

    def _list(self, name: str) -> _List:
        found = self._lists.pop(name, None)
        if found is None or found.entries > 2 * self._queue.messages.count + STALE_MIN:  # most of the list is gone
            found = _List(name)
        self._lists[name] = found
        while len(self._lists) > 1 and (
            len(self._lists) > LISTS_MAX or sum(one.entries for one in self._lists.values()) > ENTRIES_MAX
        ):
            del self._lists[next(iter(self._lists))]
        return found


def _ready(queue: Queue, priority: int, start: int) -> Iterator[Candidate]:
    for segment in queue.messages.segments.since(start):
        bits = queue.messages.segments.ready_bits(segment, priority)
        if bits:
            for at in bits_of(bits):
                if (thing := segment.thing_at(at)) >= start:
                    yield thing, (segment, at)


def _equality(tree: Node) -> tuple[str, Any] | None:
    """A property and the value that it must have if the selector is to be true."""
    for term in tree.terms if isinstance(tree, And) else (tree,):
        if isinstance(term, Compare) and term.operator == "=":
            for one, other in ((term.left, term.right), (term.right, term.left)):
                plain = isinstance(one, Field) and len(one.path) == 1 and one.path[0] not in ("priority", "key")
                if plain and isinstance(one, Field) and isinstance(other, Constant):
                    return one.path[0], other.value
    return None
