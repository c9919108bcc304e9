"""Who waits until everybody has a message, and what they are told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush

from ..core.ids import ALL, MessageId

Stream = tuple[int, int]
"""Group and destination."""

Told = Callable[[bool], None]
"""Called once: whether every receiver has it. False: that cannot be known any more, or there is no receiver."""


class Confirmations:
    """Waiters of all groups of a member, by stream, those with the least to wait for first."""

    __slots__ = ("_tickets", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Stream, list[tuple[int, int, Told]]] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, stream: Stream, upto: int, told: Told) -> Callable[[], None]:
        """Have somebody told when the stream is everywhere up to here; the returned function takes that back."""
        self._tickets += 1
        waiter = (upto, self._tickets, told)
        heappush(self._waiting.setdefault(stream, []), waiter)
        return lambda: self._forget(stream, waiter)

    def confirmed(self, stream: Stream, upto: int) -> None:
        waiting = self._waiting.get(stream, [])
        found = []
        while waiting and waiting[0][0] <= upto:
            found.append(heappop(waiting)[2])
        if not waiting:
            self._waiting.pop(stream, None)
        for told in found:
            told(True)

    def uncertain(self, group: int) -> None:
        """A member was away when something was sent to all, and nobody knows what it has."""
        for _, _, told in self._waiting.pop((group, ALL), []):
            told(False)

    def dropped(self, group: int, ids: Collection[MessageId]) -> None:
        """What became of these messages to a group is not known here."""
        numbers = {number for _, number in ids}
        for waiter in self._waiting.get((group, ALL), [])[:]:
            if waiter[0] - 1 in numbers:
                self._forget((group, ALL), waiter)
                waiter[2](False)

    def members_changed(self, group: int, members: Collection[int]) -> None:
        """Who is not there any more confirms nothing."""
        for stream in [(of, to) for of, to in self._waiting if of == group and to != ALL and to not in members]:
            for _, _, told in self._waiting.pop(stream):
                told(False)

    def _forget(self, stream: Stream, waiter: tuple[int, int, Told]) -> None:
        waiting = self._waiting.get(stream, [])
        if waiter in waiting:  # those who were told are not
            waiting.remove(waiter)
            heapify(waiting)
        if not waiting:
            self._waiting.pop(stream, None)
