"""Numbers as intervals: which of a sender's messages came. Source: M2MC, 4.1.6.2 (the ordering list).

A list of disjoint intervals in ascending order, searched by bisection. A number that comes in order costs the same
however many came before; a number in the middle moves the intervals behind it. Two mistakes of the thesis are not
repeated: its look-up (algorithm 1) compares the upper end of an interval the wrong way round, and its insertion
(algorithm 2) writes the wrong end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Span = tuple[int, int]
"""Numbers from the first to the last, both included."""


class Intervals:
    """A set of numbers. ``add`` joins what touches, so neighbours are always at least two apart."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.update(spans)

    def add(self, first: int, last: int) -> None:
        """Add the numbers from ``first`` to ``last``; nothing happens if ``last`` is below ``first``."""
        firsts, lasts = self._firsts, self._lasts
        if first > last:
            return
        if not firsts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            return
        if first == lasts[-1] + 1:
            lasts[-1] = last
            return
        start = bisect_left(lasts, first - 1)  # the first interval that the new one touches
        stop = bisect_right(firsts, last + 1)  # behind the last one
        if start < stop:
            first, last = min(first, firsts[start]), max(last, lasts[stop - 1])
        firsts[start:stop] = [first]
        lasts[start:stop] = [last]

    def update(self, spans: Iterable[Span]) -> None:
        for first, last in spans:
            self.add(first, last)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __len__(self) -> int:
        """How many intervals; ``count`` says how many numbers."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Span]:
        return zip(self._firsts, self._lasts, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self.spans() == other.spans()

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    @property
    def start(self) -> int:
        """The lowest number, 0 if there is none."""
        return self._firsts[0] if self._firsts else 0

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self._lasts[-1] + 1 if self._lasts else 0

    def spans(self) -> list[Span]:
        return list(self)

    def copy(self) -> Intervals:
        found = Intervals()
        found._firsts, found._lasts = self._firsts.copy(), self._lasts.copy()
        return found

    def without(self, others: Iterable[Span]) -> Iterator[Span]:
        """What is left of these numbers without those of ``others``, which are in ascending order."""
        taken = iter(others)
        other = next(taken, None)
        for first, last in self:
            while other is not None and other[0] <= last:
                if other[1] < first:
                    other = next(taken, None)
                    continue
                if first < other[0]:
                    yield (first, other[0] - 1)
                first = other[1] + 1
                if first > last:
                    break
                other = next(taken, None)
            if first <= last:
                yield (first, last)

    def between(self, first: int, last: int) -> Intervals:
        """Those of these numbers that are from ``first`` to ``last``."""
        found = Intervals()
        start, stop = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        if first <= last and start < stop:
            found._firsts, found._lasts = self._firsts[start:stop], self._lasts[start:stop]
            found._firsts[0] = max(found._firsts[0], first)
            found._lasts[-1] = min(found._lasts[-1], last)
        return found

    def drop_last(self) -> Span:
        """Remove the highest interval."""
        return self._firsts.pop(), self._lasts.pop()

    def join_oldest(self, limit: int) -> bool:
        """Keep to so many intervals: the lowest two become one, with the numbers between them. True if that was
        done."""
        if len(self._firsts) <= limit:
            return False
        del self._firsts[1], self._lasts[0]
        return True

    def validate(self) -> None:
        assert all(first <= last for first, last in self)
        assert all(low + 1 < high for low, high in zip(self._lasts, self._firsts[1:], strict=False))
