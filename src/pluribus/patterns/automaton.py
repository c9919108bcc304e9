"""A row pattern as an automaton, with its preferences, and the proof that what it remembers is bounded.

Every place of a variable in the pattern, repetitions written out, is a *position* (Glushkov's construction). For each
position there is the list of positions that may follow it, the preferred one first; ``END`` in such a list is a match
that ends there. Two ways to match at the same position differ only by the values that conditions ask about earlier
rows, so only these are kept.

Preferences make the order of the lists, which decides everything: positions behind ``END`` are never tried once the
match may end, since ending is preferred. So ``onward`` has only the positions before ``END``.

Bounded: an attempt to match begins at one row and goes on as long as some way is open. A row pattern without ``*``,
``+`` and ``{n,}`` has a longest match; otherwise WITHIN must say how long it goes on at most. Without either the
pattern is refused, as one event more could always be part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..core.errors import BadPattern
from ..core.limits import PATTERN_POSITIONS_MAX, PATTERN_ROWS_MAX, PATTERN_STEPS_MAX
from .tree import Alternation, Repeat, RowPattern, Sequence, Variable, shown

END = -1


class Automaton(NamedTuple):
    variables: tuple[str, ...]
    """The variable at each position."""
    opening: tuple[int, ...]
    """The positions where a match may begin."""
    onward: tuple[tuple[int, ...], ...]
    """For each position, those to try next before the match ends there, if it may."""
    accepts: tuple[bool, ...]
    """Whether a match may end at the position."""
    rows_max: int | None
    """No match has more rows; ``None`` if only time bounds it."""


def build(text: str, rows: RowPattern, within_s: float | None, within_rows: int | None) -> Automaton:
    """Raises ``BadPattern`` if the pattern is too large, matches no row, or has no bound."""
    longest = _longest(rows)
    if longest is None and within_s is None and within_rows is None:
        endless = _endless(rows)
        raise BadPattern.at(
            text,
            endless.at,
            f"{shown(endless)} goes on without bound, and no WITHIN bounds it: all events would have to be remembered",
            "add WITHIN INTERVAL '10' MINUTE or WITHIN 1000 ROWS after PATTERN (...), or write {1,100} for +",
        )
    if longest is not None and longest > PATTERN_ROWS_MAX:
        reason = f"the longest match has {longest:,} rows"
        raise BadPattern.at(text, 1, reason, f"{PATTERN_ROWS_MAX:,} rows can be remembered")
    building = _Building(text)
    first = building.add(rows)
    if END in first:
        raise BadPattern.at(
            text,
            text.upper().find("PATTERN") + 1,
            "the row pattern matches no rows at all",
            "make one variable necessary",
        )
    follow = building.follow
    bounds = [bound for bound in (longest, within_rows) if bound is not None]
    return Automaton(
        tuple(building.variables),
        tuple(first),
        tuple(tuple(after[: after.index(END)] if END in after else after) for after in follow),
        tuple(END in after for after in follow),
        min(bounds, default=None),
    )


def _longest(rows: RowPattern) -> int | None:
    match rows:
        case Variable():
            return 1
        case Sequence(parts) | Alternation(parts):
            lengths = [_longest(part) for part in parts]
            known = [length for length in lengths if length is not None]
            if len(known) < len(lengths):
                return None
            return sum(known) if isinstance(rows, Sequence) else max(known)
        case Repeat(part, _, most):
            length = _longest(part)
            return None if length is None or most is None else length * most


def _endless(rows: RowPattern) -> Repeat:
    """The first repetition without an upper bound; there is one."""
    waiting: list[RowPattern] = [rows]
    while True:
        match waiting.pop():
            case Repeat(_, _, None) as found:
                return found
            case Repeat(part):
                waiting.append(part)
            case Sequence(parts) | Alternation(parts):
                waiting.extend(reversed(parts))


def _once(positions: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(positions))


def _instead_of_end(positions: list[int], others: list[int]) -> list[int]:
    """The positions that come after, with the rank of END among the preferences kept."""
    if END not in positions:
        return positions
    place = positions.index(END)
    return _once([*positions[:place], *others, *positions[place + 1 :]])


class _Building:
    def __init__(self, text: str) -> None:
        self.text = text
        self.variables: list[str] = []
        self.follow: list[list[int]] = []

    def add(self, rows: RowPattern) -> list[int]:
        """The positions where the part may begin; END means that it may match no row. ``follow`` gets its positions."""
        match rows:
            case Variable(name, at):
                if len(self.variables) >= PATTERN_POSITIONS_MAX:
                    reason = f"with its repetitions written out it has more than {PATTERN_POSITIONS_MAX:,} variables"
                    raise BadPattern.at(self.text, at, reason, "repeat less, or use * and + with WITHIN n ROWS")
                self.variables.append(name)
                self.follow.append([END])
                return [len(self.variables) - 1]
            case Alternation(choices):
                return _once(position for choice in choices for position in self.add(choice))
            case Sequence(parts):
                return self.sequence(parts)
            case Repeat():
                return self.repeat(rows)

    def sequence(self, parts: Iterable[RowPattern]) -> list[int]:
        first = [END]
        begins = len(self.follow)
        for part in parts:
            ends = len(self.follow)
            entered = self.add(part)
            self.lead_on(begins, ends, entered)
            first = _instead_of_end(first, entered)
        return first

    def lead_on(self, begins: int, ends: int, positions: list[int]) -> None:
        """Where these positions ended a part, the next part begins."""
        for position in range(begins, ends):
            self.follow[position] = _instead_of_end(self.follow[position], positions)
        if sum(map(len, self.follow)) > PATTERN_STEPS_MAX:
            raise BadPattern.at(self.text, 1, "the row pattern branches too much", "use fewer alternatives and repeats")

    def repeat(self, rows: Repeat) -> list[int]:
        first = entered = [END]
        begins = ends = len(self.follow)
        for _ in range(rows.least):
            ends = len(self.follow)
            entered = self.add(rows.part)
            self.lead_on(begins, ends, entered)
            first = _instead_of_end(first, entered)
        if rows.most is None and END not in entered:
            # The last of the necessary rounds can be gone through again; no further copy is needed.
            self.lead_on(ends, len(self.follow), self.chosen(rows, entered))
            return first
        if rows.most == rows.least:
            return first
        ends = len(self.follow)
        entered = self.endless(rows) if rows.most is None else self.optional(rows, rows.most - rows.least)
        self.lead_on(begins, ends, entered)
        return _instead_of_end(first, entered)

    def endless(self, rows: Repeat) -> list[int]:
        begins = len(self.follow)
        entered = self.chosen(rows, self.add(rows.part))
        self.lead_on(begins, len(self.follow), entered)
        return entered

    def optional(self, rows: Repeat, rounds: int) -> list[int]:
        """Rounds that may be left out, each only after the one before it."""
        starts, firsts = [], []
        for _ in range(rounds):
            starts.append(len(self.follow))
            firsts.append(self.chosen(rows, self.add(rows.part)))
        for number in range(rounds - 1):
            self.lead_on(starts[number], starts[number + 1], firsts[number + 1])
        return firsts[0]

    @staticmethod
    def chosen(rows: Repeat, positions: list[int]) -> list[int]:
        """The preferred choice: one more round, or none. A round without a row is none."""
        real = [position for position in positions if position != END]
        return [*real, END] if rows.greedy else [END, *real]
