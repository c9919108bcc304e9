"""Callers that wait until every receiver has a message, and how they are told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush

from ..core.ids import ALL, MessageId

Stream = tuple[int, int]
"""Group and destination."""

Told = Callable[[bool], None]
"""Called once. True: every receiver has the message. False: that cannot be known any more, or there is no receiver."""


class Confirmations:
    """The waiting callers of one member, by stream; those that wait for the earliest message come first."""

    __slots__ = ("_tickets", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Stream, list[tuple[int, int, Told]]] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, stream: Stream, upto: int, told: Told) -> Callable[[], None]:
        """Call ``told`` when every receiver has the stream up to here; the returned function cancels that."""
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
        """A member was away when messages were sent to all, so it is unknown which it has."""
        for _, _, told in self._waiting.pop((group, ALL), []):
            told(False)

    def dropped(self, group: int, ids: Collection[MessageId]) -> None:
        """It is unknown what became of these messages."""
        numbers = {number for _, number in ids}
        for waiter in self._waiting.get((group, ALL), [])[:]:
            if waiter[0] - 1 in numbers:
                self._forget((group, ALL), waiter)
                waiter[2](False)

    def members_changed(self, group: int, members: Collection[int]) -> None:
        """The group has these members now; callers that waited for others are told."""
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
