"""A range travels in pieces of about a mebibyte: a large range is no huge frame, and holds up no other word.

Who needs a range asks for one piece after another (``Pull``), and repeats the question until the piece comes. So one
piece of a range is under way at a time, and nothing is sent twice because the network is slow. A range does not change
while it travels: it is served neither before nor after, until the epoch is open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..values import Item
from .ranges import RangeState
from .words import State, encode

PIECE_BYTES_MAX = 1 << 20
"""Of one piece, about; a tuple that is longer is a piece of its own."""
ENTRY_BYTES = 64
"""What an entry has besides its tuple, about."""

Entry = tuple[Any, int]
"""One entry of a table of the state, and its size in bytes, about."""


class RangePieces:
    """The pieces of one range. Each is made when it is asked for; where the next one begins is known then."""

    def __init__(self, state: RangeState) -> None:
        self.state = state
        self._tables: tuple[tuple[str, Sequence[Any], Callable[[Any, float], Entry]], ...] = (
            ("tuples", list(state.tuples), self._tuple),
            ("waiting", state.interests(), _whole),
            ("aside", list(state.aside.items()), lambda one, now: ((one[0], *one[1]), ENTRY_BYTES)),
            ("done", list(state.results()), lambda one, now: (one, _size(one[3]))),
            ("owed", list(state.owed.values()), lambda one, now: (one, _size(one.carried.item))),
            ("watches", state.watches.names(PIECE_BYTES_MAX), self._watch),
        )
        self._starts = [(0, 0)]
        """By piece: the table and the entry with which it begins."""

    def _tuple(self, name: Any, now: float) -> Entry:
        item = self.state.tuples[name][0]
        return (name, item, self.state.left_us(name, now)), _size(item)

    def _watch(self, part: Any, now: float) -> Entry:
        kept = self.state.watches.saved(part[0], part[1], now)
        return kept, len(encode(kept))

    def piece(self, epoch: int, number: int, at: int, now: float) -> State | None:
        """The piece with this number, of the range with this number; None if the ones before were not asked for."""
        if at >= len(self._starts):
            return None
        table, first = self._starts[at]
        found: dict[str, list[Any]] = {name: [] for name, _, _ in self._tables}
        size = 0
        while table < len(self._tables) and size < PIECE_BYTES_MAX:
            name, keys, entry_of = self._tables[table]
            if first == len(keys):
                table, first = table + 1, 0
                continue
            entry, entry_bytes = entry_of(keys[first], now)
            if size and size + entry_bytes > PIECE_BYTES_MAX:
                break
            found[name].append(entry)
            size += entry_bytes
            first += 1
        while table < len(self._tables) and first == len(self._tables[table][1]):
            table, first = table + 1, 0
        last = table == len(self._tables)
        if not last and at + 1 == len(self._starts):
            self._starts.append((table, first))
        floors = self.state.floors if at == 0 else {}
        return State(epoch, number, self.state.steps, floors=floors, born=self.state.born, piece=at, last=last, **found)


def _size(item: Item | None) -> int:
    return ENTRY_BYTES + (0 if item is None else item.size)


def _whole(entry: Any, now: float) -> Entry:
    return entry, len(encode(entry))
