"""A sorted collection of keys, in pieces of a few hundred, so that a million of them are quick to change.

``list.insert`` in one long list moves half of it; here it moves half of a piece. Finding a piece is a bisection over
the first keys of the pieces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

PIECE = 512


class Sorted:
    """Keys of one comparable type, each once."""

    __slots__ = ("_count", "_firsts", "_pieces")

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        ordered = sorted(keys)
        self._pieces = [ordered[at : at + PIECE] for at in range(0, len(ordered), PIECE)]
        self._firsts = [piece[0] for piece in self._pieces]
        self._count = len(ordered)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            yield from piece

    @property
    def first(self) -> Any:
        return self._firsts[0]

    def add(self, key: Any) -> None:
        self._count += 1
        if not self._pieces:
            self._pieces, self._firsts = [[key]], [key]
            return
        last = self._pieces[-1]
        if key > last[-1]:  # the usual case: numbers grow
            at = len(self._pieces) - 1
            last.append(key)
        else:
            at = max(bisect_right(self._firsts, key) - 1, 0)
            piece = self._pieces[at]
            piece.insert(bisect_left(piece, key), key)
            self._firsts[at] = piece[0]
        piece = self._pieces[at]
        if len(piece) > 2 * PIECE:
            half = piece[PIECE:]
            del piece[PIECE:]
            self._pieces.insert(at + 1, half)
            self._firsts.insert(at + 1, half[0])

    def remove(self, key: Any) -> None:
        at = bisect_right(self._firsts, key) - 1
        piece = self._pieces[at]
        place = bisect_left(piece, key)
        assert piece[place] == key, f"{key!r} is not in it"
        del piece[place]
        self._count -= 1
        if not piece:
            del self._pieces[at], self._firsts[at]
        elif not place:
            self._firsts[at] = piece[0]

    def since(self, key: Any) -> Iterator[Any]:
        """The keys that are not below ``key``."""
        at = max(bisect_right(self._firsts, key) - 1, 0)
        for number in range(at, len(self._pieces)):
            piece = self._pieces[number]
            yield from piece[bisect_left(piece, key) :] if number == at else piece

    def validate(self) -> None:
        """For tests."""
        every = [key for piece in self._pieces for key in piece]
        assert every == sorted(set(every)) and len(every) == self._count
        assert self._firsts == [piece[0] for piece in self._pieces] and all(self._pieces)
