"""Matching one partition, row by row.

Theory. SQL says: of all matches that begin at a row take the preferred one; if there is none, try the next row; after a
match go on where AFTER MATCH SKIP says. So there is one *attempt* at a time, and it begins at ``start``. An attempt is
a list of *ways* to match the rows so far, the preferred first. A row takes every way to the positions that may follow
it and whose conditions hold. A way that may end is the best match so far, and all ways behind it are given up: their
matches are less preferred. The attempt is decided when no way is left, and that is as early as can be: one more row,
whatever it is, would change nothing. WITHIN decides it too, by a row that is too late or by a watermark that says that
no other can come.

When an attempt is decided the next one is given the rows that are already there. Rows before ``start`` are kept only as
far as PREV looks back.

The state is a value: lists of rows and ways, which msgspec packs, so that it can be kept by Spark between two batches.
What is in it is bounded: at most ``PATTERN_ROWS_MAX`` rows (fewer, where the pattern says so), as many waiting ones,
and ``PATTERN_THREADS_MAX`` ways. An attempt that needs more is given up, and that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from ..core.limits import PATTERN_ROWS_MAX, PATTERN_THREADS_MAX
from .pattern import ANYTHING, Pattern
from .references import TIE, TIME, Context, Found, RegisterValue, Row
from .tree import SkipTo

Way = tuple[int, bytes, tuple[RegisterValue, ...]]
"""A position, the variables of the rows so far, and the registers."""
_TIME_AND_TIE = itemgetter(TIME, TIE)
_TIME = itemgetter(TIME)


class Partition(msgspec.Struct, array_like=True):
    """The state of one partition. Numbers of rows count from its first."""

    rows: list[Row] = []
    masks: list[int] = []
    base: int = 0
    """The number of ``rows[0]``."""
    start: int = 0
    """Where the attempt begins."""
    at: int = 0
    """The row that it has not seen yet; equal to ``start`` when it has not begun."""
    ways: list[Way] = []
    best: bytes | None = None
    matches: int = 0
    waiting: list[Row] = []
    """Rows before which others may still come."""
    last: tuple[float, Any] | None = None
    """The time and tie of the last row that was taken."""

    def is_past(self, row: Row) -> bool:
        """True if a later row was taken already, so that the row's place is gone."""
        if self.last is None or row[TIME] > self.last[0]:
            return False
        return bool(row[TIME] < self.last[0] or (row[TIE] is not None and row[TIE] < self.last[1]))

    def validate(self) -> None:
        assert self.base <= self.start <= self.at <= self.base + len(self.rows), "rows are missing"
        assert len(self.rows) == len(self.masks), "a row without its mask"
        assert bool(self.ways) == (self.at > self.start), "an attempt without a way"
        assert len(self.ways) <= PATTERN_THREADS_MAX
        assert all(len(variables) == self.at - self.start for _, variables, _ in self.ways), "a way that lags behind"


class Answer(NamedTuple):
    """A match, or one row of it."""

    values: tuple[Any, ...]
    """The measures."""
    first: float
    last: float
    number: int
    variable: str
    event: Any


class Steps:
    """The steps of a pattern over partitions. It keeps no state of them."""

    def __init__(self, pattern: Pattern, *, numbered: bool) -> None:
        self.pattern = pattern
        self._counts = numbered or "MATCH_NUMBER" in pattern.text.upper()
        """True if the number of matches of a partition matters; then no partition with a match is forgotten."""
        automaton = pattern.automaton
        self._begin = len(automaton.variables)
        """A position before all others."""
        self._onward = (*automaton.onward, automaton.opening)
        self._accepts = automaton.accepts
        self._positions = pattern.positions
        self._bits = tuple(1 << variable for variable in pattern.positions)
        self._bytes = tuple(bytes([variable]) for variable in pattern.positions)
        self._opening, self._second, self._third = self._first_masks()
        self._within = pattern.clauses.within_s
        self._rows_max = automaton.rows_max
        self._mask = pattern.mask_of()
        self._extend = _extension(pattern.earlier)
        ((column, back),) = pattern.earlier if len(pattern.earlier) == 1 else ((None, 0),)
        self._last_column = column if back == 1 else None
        """The one column of the row before that conditions use, if they use no other."""
        self._looking = pattern.looking
        self._updates = pattern.updates()
        self._initial = pattern.initial_registers()
        self._begun: list[Way] = [(self._begin, b"", self._initial)]
        self._looks_back = bool(self._initial) or any(pattern.looking)
        self._context = Context()
        self._sort_key: Callable[[Row], Any] = _TIME_AND_TIE if len(pattern.clauses.order) > 1 else _TIME
        self._finals = tuple(each.final for each in pattern.clauses.measures)
        self._skip_members = pattern.names.get(pattern.clauses.skip_variable, frozenset())

    # --- what callers do --------------------------------------------------------------------------------------------

    def sort(self, rows: list[Row]) -> None:
        rows.sort(key=self._sort_key)

    def take(self, partition: Partition, rows: Sequence[Row], answers: list[Answer]) -> list[str]:
        """Take rows that come after all those taken before. Returns problems."""
        kept, masks, mask, extend = partition.rows, partition.masks, self._mask, self._extend
        if extend is None:
            kept.extend(rows)
            masks.extend(map(mask, rows))
        elif self._last_column is not None and rows:
            column = self._last_column
            before = [row[column] for row in rows]
            before.insert(0, kept[-1][column] if kept else None)
            whole = [(*row, value) for row, value in zip(rows, before, strict=False)]
            kept.extend(whole)
            masks.extend(map(mask, whole))
        else:
            for row in rows:
                kept.append(extend(row, kept))
                masks.append(mask(kept[-1]))
        if rows:
            partition.last = (rows[-1][TIME], rows[-1][TIE])
        return self._run(partition, answers)

    def expire(self, partition: Partition, watermark: float, answers: list[Answer]) -> list[str]:
        """No row before this time will come: attempts that WITHIN ends are decided."""
        problems: list[str] = []
        if self._within is not None:
            while partition.ways and watermark - self.began(partition) > self._within:
                self._decide(partition, answers)
                problems += self._run(partition, answers)
        return problems

    def finish(self, partition: Partition, answers: list[Answer]) -> list[str]:
        """No row comes any more."""
        problems: list[str] = []
        while partition.ways:
            self._decide(partition, answers)
            problems += self._run(partition, answers)
        return problems

    def began(self, partition: Partition) -> float:
        """The time of the attempt's first row."""
        time: float = partition.rows[partition.start - partition.base][TIME]
        return time

    def due(self, partition: Partition) -> float | None:
        """The watermark at which time alone changes something."""
        moments = [partition.waiting[0][TIME]] if partition.waiting else []
        if partition.ways and self._within is not None:
            moments.append(self.began(partition) + self._within)
        return min(moments, default=None)

    def may_be_forgotten(self, partition: Partition) -> bool:
        """True if a new partition would go on just like this one."""
        return not (partition.ways or partition.waiting or partition.rows or (partition.matches and self._counts))

    def _first_masks(self) -> tuple[int, int, int]:
        """The variables that the first three rows of a match may be; all variables, where a match may end before. Most
        attempts would fail at one of these rows, and need not begin."""
        masks = []
        positions: set[int] = {self._begin}
        ended = False
        for _ in range(3):
            positions = {following for position in positions for following in self._onward[position]}
            mask = 0
            for position in positions:
                mask |= self._bits[position]
            masks.append(ANYTHING if ended else mask)
            ended = ended or any(self._accepts[position] for position in positions)
        return masks[0], masks[1], masks[2]

    # --- attempts ---------------------------------------------------------------------------------------------------

    def _run(self, partition: Partition, answers: list[Answer]) -> list[str]:
        problems: list[str] = []
        masks, count = partition.masks, len(partition.masks)
        opening, second, third = self._opening, self._second, self._third
        while True:
            if not partition.ways:
                place = partition.start - partition.base
                while place < count and not (
                    masks[place] & opening
                    and (place + 1 >= count or masks[place + 1] & second)
                    and (place + 2 >= count or masks[place + 2] & third)
                ):
                    place += 1
                partition.start = partition.at = partition.base + place
                if place == count:
                    break
                partition.ways = self._begun
            problem = self._attempt(partition)
            if problem is not None:
                problems.append(problem)
                partition.start, partition.ways, partition.best = partition.at, [], None
            elif partition.ways:
                break
            else:
                self._decide(partition, answers)
        self._forget(partition)
        return problems

    def _attempt(self, partition: Partition) -> str | None:
        """Give rows to the ways until there are no more rows, or no more ways. Returns the reason if the attempt was
        given up."""
        rows, masks, base, start = partition.rows, partition.masks, partition.base, partition.start
        ways, within = partition.ways, self._within
        place, count = partition.at - base, len(rows)
        beyond = start - base + (PATTERN_ROWS_MAX if self._rows_max is None else self._rows_max)
        latest = rows[start - base][TIME]
        step = self._step_back if self._looks_back else self._step
        while place < count and ways:
            if place >= beyond or (within is not None and rows[place][TIME] - latest > within):
                if self._rows_max is None and place >= beyond and rows[place][TIME] - latest <= (within or 0):
                    partition.at = base + place
                    return f"a match has more than {PATTERN_ROWS_MAX:,} rows: bound it with WITHIN n ROWS"
                ways = []
                break
            ways = step(partition, ways, masks[place], place)
            place += 1
            if len(ways) > PATTERN_THREADS_MAX:
                partition.at = base + place
                return f"more than {PATTERN_THREADS_MAX:,} ways to match are open: say more in DEFINE, or repeat less"
        partition.ways, partition.at = ways, base + place
        return None

    def _step(self, partition: Partition, ways: list[Way], mask: int, place: int) -> list[Way]:
        """For patterns whose conditions are about rows alone: two ways at a position are alike, and the preferred one
        stays."""
        onward, bits, accepts, names = self._onward, self._bits, self._accepts, self._bytes
        found: list[Way] = []
        seen: set[int] = set()
        for position, variables, registers in ways:
            for following in onward[position]:
                if mask & bits[following] and following not in seen:
                    seen.add(following)
                    grown = variables + names[following]
                    if accepts[following]:
                        partition.best = grown
                        if onward[following]:
                            found.append((following, grown, registers))
                        return found
                    found.append((following, grown, registers))
        return found

    def _step_back(self, partition: Partition, ways: list[Way], mask: int, place: int) -> list[Way]:
        """For patterns with conditions about the match so far: ways at a position are alike if their registers are
        equal."""
        onward, bits, accepts, names = self._onward, self._bits, self._accepts, self._bytes
        context, row, index = self._context, partition.rows[place], partition.base + place
        context.rows, context.base, context.start, context.index = (
            partition.rows,
            partition.base,
            partition.start,
            index,
        )
        found: list[Way] = []
        seen: set[tuple[int, tuple[RegisterValue, ...]]] = set()
        for position, variables, before in ways:
            for following in onward[position]:
                if not mask & bits[following]:
                    continue
                variable = self._positions[following]
                registers = before
                if changes := self._updates[variable]:
                    changed = list(before)
                    for register, update in changes:
                        changed[register] = update(changed[register], index, row)
                    registers = tuple(changed)
                if (following, registers) in seen:
                    continue
                holds = self._looking[variable]
                if holds is not None:
                    context.registers = registers
                    if not holds(context):
                        continue
                seen.add((following, registers))
                grown = variables + names[following]
                if accepts[following]:
                    partition.best = grown
                    if onward[following]:
                        found.append((following, grown, registers))
                    return found
                found.append((following, grown, registers))
        return found

    def _decide(self, partition: Partition, answers: list[Answer]) -> None:
        best, start = partition.best, partition.start
        partition.ways, partition.best = [], None
        step = 1
        if best is not None:
            partition.matches += self._counts
            self._answer(Found(partition.rows, partition.base, start, best, partition.matches), answers)
            step = self._skip(best)
        partition.start = partition.at = start + step

    def _skip(self, variables: bytes) -> int:
        """By how many rows later the next attempt begins. Never 0, or it would find the same match again."""
        match self.pattern.clauses.skip:
            case SkipTo.PAST_LAST_ROW:
                return len(variables)
            case SkipTo.NEXT_ROW:
                return 1
            case skip:
                places = [place for place, variable in enumerate(variables) if variable in self._skip_members]
                if not places:
                    return 1
                return max(1, places[0] if skip is SkipTo.FIRST else places[-1])

    def _answer(self, found: Found, answers: list[Answer]) -> None:
        pattern, rows, shift = self.pattern, found.rows, found.start - found.base
        first, last = rows[shift][TIME], rows[shift + len(found.variables) - 1][TIME]
        if not pattern.clauses.all_rows:
            values = tuple(measure(found) for measure in pattern.measures)
            name = pattern.variables[found.variables[-1]]
            answers.append(Answer(values, first, last, found.number, name, None))
            return
        for count, variable in enumerate(found.variables, 1):
            running = found.upto(count)
            values = tuple(
                measure(found if final else running)
                for measure, final in zip(pattern.measures, self._finals, strict=True)
            )
            event = rows[shift + count - 1][2]
            answers.append(Answer(values, first, last, found.number, pattern.variables[variable], event))

    def _forget(self, partition: Partition) -> None:
        gone = partition.start - self.pattern.back_max - partition.base
        if gone > 0:
            del partition.rows[:gone], partition.masks[:gone]
            partition.base += gone


def _extension(earlier: tuple[tuple[int, int], ...]) -> Callable[[Row, list[Row]], Row] | None:
    """A function that adds columns of earlier rows to a row."""
    if not earlier:
        return None
    return lambda row, rows: (
        *row,
        *(rows[-back][column] if back <= len(rows) else None for column, back in earlier),
    )
