"""Consumers with a selector want some messages only. Which waiting consumers want a given message?

A selector sees the properties of a message, and besides them ``priority`` and ``key``, unless the message has
properties of these names. Messages that become ready are matched against the selectors of all waiting consumers in one
go, by the index of the filter language. When a consumer begins to wait, a search (``finder.py``) finds the messages for
it that are in the queue already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import BadFilter, BadInput, MalformedFrame
from ..filters import Filter
from ..filters.packed import unpacked
from .batch import properties_of
from .segments import Segment

if TYPE_CHECKING:  # it needs numpy, and is loaded with the first selector
    from ..filters.index import Index

SELECTORS_MAX = 65_536
"""Consumers with a selector at one queue, at most."""


def selector_of(data: bytes) -> Filter:
    """Decode a selector; ``BadFilter`` if it is not one for a queue."""
    try:
        filter = unpacked(data)
    except MalformedFrame as error:
        raise BadFilter(f"the selector cannot be read: {error}") from None
    if filter.needs_now:
        raise BadFilter(
            f"the selector '{filter}' asks for NOW(): a queue compares properties only; give messages a ttl, or a "
            "delay, instead"
        )
    return filter


def seen_of(segment: Segment, at: int) -> dict[str, Any]:
    """The fields of a message that selectors see."""
    encoded = segment.properties_of(at)
    seen: dict[str, Any] = {"priority": segment.priority_of(at)}
    key = segment.key_of(at)
    if key:
        seen["key"] = key
    if encoded:
        seen.update(properties_of(encoded))
    return seen


class Selectors:
    """Selectors by consumer. All are kept; those of waiting consumers are in the index."""

    def __init__(self) -> None:
        self._packed: dict[int, bytes] = {}
        self._filters: dict[bytes, tuple[Filter, Callable[[Any], bool]]] = {}
        """By their bytes: equal selectors are kept once."""
        self._uses: dict[bytes, int] = {}
        self._index: Index | None = None
        self._waiting: dict[int, None] = {}
        """Consumers that are in the index."""
        self.unsearched: dict[int, int] = {}
        """Consumers that wait, while the queue has messages that were not compared with their selectors; each with the
        number of its waiting. Not part of the state."""
        self._stints = 0

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, consumer: int) -> bool:
        return consumer in self._packed

    def packed(self, consumer: int) -> bytes:
        return self._packed.get(consumer, b"")

    def add(self, consumer: int, data: bytes) -> None:
        """Add a selector. ``BadFilter`` if it is none, ``BadInput`` if there are too many."""
        if len(self._packed) >= SELECTORS_MAX:
            raise BadInput(f"{SELECTORS_MAX:,} consumers with a selector are at this queue: use several queues")
        if data not in self._filters:
            filter = selector_of(data)
            self._filters[data] = (filter, filter.predicate())
        self._packed[consumer] = data
        self._uses[data] = self._uses.get(data, 0) + 1

    def remove(self, consumer: int) -> None:
        data = self._packed.pop(consumer, None)
        if data is None:
            return
        self.rests(consumer)
        self._uses[data] -= 1
        if not self._uses[data]:
            del self._uses[data]
            del self._filters[data]

    def waits(self, consumer: int) -> bool:
        """The consumer has room now; true if it had none before."""
        if consumer in self._waiting:
            return False
        if self._index is None:
            from ..filters.index import Index

            self._index = Index()
        self._index.add(consumer, self._filters[self._packed[consumer]][0])
        self._waiting[consumer] = None
        return True

    def search(self, consumer: int) -> None:
        """The messages in the queue must be compared with the consumer's selector."""
        self._stints += 1
        self.unsearched[consumer] = self._stints

    def rests(self, consumer: int) -> None:
        self.unsearched.pop(consumer, None)
        if self._index is not None and consumer in self._waiting:
            del self._waiting[consumer]
            self._index.remove(consumer)

    def waiting_consumers(self) -> list[int]:
        return sorted(self._waiting)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def match(self, seen: Sequence[dict[str, Any]]) -> list[list[int]]:
        """For each message, the waiting consumers that want it."""
        found = [[] for _ in seen] if self._index is None else self._index.match(seen)
        return [[key for key in keys if isinstance(key, int)] for keys in found]

    def filter_of(self, consumer: int) -> Filter:
        return self._filters[self._packed[consumer]][0]

    def predicate(self, consumer: int) -> Callable[[Any], bool]:
        return self._filters[self._packed[consumer]][1]

    def consumers(self) -> Iterable[int]:
        return self._packed

    def saved(self) -> list[tuple[int, bytes]]:
        return sorted(self._packed.items())

    def restore(self, saved: Sequence[tuple[int, bytes]]) -> None:
        for consumer, data in saved:
            self.add(consumer, data)
