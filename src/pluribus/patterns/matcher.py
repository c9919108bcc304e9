"""All partitions of a pattern in one process, with the time that orders them.

Events may come out of order by ``lateness_s`` seconds. The *watermark* is the newest time that was seen, less
``lateness_s``. A row is taken when the watermark has reached its time; rows of a partition are taken in the order of
ORDER BY, and equal ones in the order in which they came. An event that comes after its place was taken is *late*: it is
reported as a problem, and not matched.

Time goes on with the events of all partitions, and with ``advance``. Attempts that WITHIN ends are decided when the
watermark has passed their end, even if their own partition is silent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from ..core.errors import BadInput
from ..core.limits import PATTERN_PARTITIONS_MAX, PATTERN_PROBLEMS_KEPT_MAX, PATTERN_ROWS_MAX
from .events import Key, Misfit, Rows
from .pattern import Pattern, parse
from .references import TIME, Row
from .steps import Answer, Partition, Steps

DUE_SPARE = 1_000
"""Moments of forgotten partitions that may stay, besides one for each known partition."""


class Match(msgspec.Struct, frozen=True):
    """A match: the values that name its partition, and its measures, by name.

    With ALL ROWS PER MATCH there is one for each row: ``event``, and the ``variable`` that it was matched to.
    """

    partition: dict[str, Any]
    measures: dict[str, Any]
    first: float
    """The time of its first row."""
    last: float
    number: int
    """Counted in its partition, from 1, where the pattern has ALL ROWS PER MATCH or measures MATCH_NUMBER(); else 0.
    To count, a matcher must remember every partition that has had a match, also when nothing else is left of it."""
    variable: str = ""
    event: Any = None

    def __getitem__(self, name: str) -> Any:
        return self.measures[name] if name in self.measures else self.partition[name]


class Problem(msgspec.Struct, frozen=True):
    """An event without a place (``late``, ``misfit``), or an attempt that was given up (``overflow``)."""

    kind: str
    reason: str
    event: Any = None
    partition: Key = ()


class State(msgspec.Struct, array_like=True):
    """All that a matcher remembers."""

    pattern: str
    watermark: float | None
    partitions: list[tuple[Key, Partition]]


class _Place:
    """A partition, and the moment at which it must be looked at again."""

    __slots__ = ("due", "state")

    def __init__(self, state: Partition) -> None:
        self.state = state
        self.due = math.inf


class Matcher:
    """Give it events, get matches. ``on_problem`` is called with each event that found no place; ``problems`` keeps
    some.

    >>> matcher = Matcher("ORDER BY t PATTERN (A B) DEFINE A AS x = 1, B AS x = 2")
    >>> [match.last for match in matcher.feed([{"t": 1, "x": 1}, {"t": 2, "x": 2}])]
    [2]
    """

    def __init__(
        self,
        pattern: Pattern | str,
        *,
        lateness_s: float | None = 0.0,
        on_problem: Callable[[Problem], None] | None = None,
        partitions_max: int = PATTERN_PARTITIONS_MAX,
        rows: Rows | None = None,
        numbered: bool | None = None,
    ) -> None:
        """With ``lateness_s=None`` only ``advance`` makes time go on. ``rows`` reads events of another form.
        ``numbered`` says whether ``Match.number`` is counted, if that should not depend on the pattern."""
        self.pattern = parse(pattern) if isinstance(pattern, str) else pattern
        if lateness_s is not None and not 0 <= lateness_s < math.inf:
            raise BadInput(f"lateness_s={lateness_s}: give the seconds by which events may be late, 0 or more")
        self.lateness_s = lateness_s
        self.problems: deque[Problem] = deque(maxlen=PATTERN_PROBLEMS_KEPT_MAX)
        self.problem_counts: dict[str, int] = {"late": 0, "misfit": 0, "overflow": 0}
        self._on_problem = on_problem
        self._partitions_max = partitions_max
        self._steps = Steps(self.pattern, numbered=self.pattern.clauses.all_rows if numbered is None else numbered)
        self._rows = Rows(self.pattern) if rows is None else rows
        self._places: dict[Key, _Place] = {}
        self._due: list[tuple[float, int, Key]] = []
        self._due_count = 0
        self.watermark = -math.inf
        """Events older than this are late."""
        clauses = self.pattern.clauses
        self._key_names = tuple(".".join(path) for path in clauses.partition)
        self._measure_names = tuple(measure.name for measure in clauses.measures)

    def feed(self, events: Iterable[Any]) -> list[Match]:
        """The matches that these events decide; those of a partition in their order."""
        return self.feed_rows(self._placed(events))

    def _placed(self, events: Iterable[Any]) -> Iterator[tuple[Key, Row, Any]]:
        row_of = self._rows.row
        for event in events:
            try:
                key, row = row_of(event)
            except Misfit as error:
                self._tell(Problem("misfit", str(error), event))
            else:
                yield key, row, event

    def feed_rows(self, rows: Iterable[tuple[Key, Row, Any]]) -> list[Match]:
        """Like ``feed``, for events of which rows were made: the partition, the row, and the object to show as the
        event."""
        touched: dict[Key, _Place] = {}
        places, watermark = self._places, self.watermark
        lateness = math.inf if self.lateness_s is None else self.lateness_s
        for key, row, event in rows:
            try:
                place = places.get(key)
            except TypeError as error:
                self._tell(Problem("misfit", f"its partition {key!r} cannot be told: {error}", event))
                continue
            time = row[TIME]
            if time < watermark:
                self._tell(self._late(event, key, time, watermark))
                continue
            if place is None:
                place = self._new_place(key, event)
                if place is None:
                    continue
            elif (last := place.state.last) is not None and time <= last[0] and place.state.is_past(row):
                self._tell(self._late(event, key, time, watermark))
                continue
            if time - lateness > watermark:
                watermark = time - lateness
            place.state.waiting.append(row)
            touched[key] = place
        self.watermark = watermark
        return self._go_on(touched)

    def advance(self, time: float) -> list[Match]:
        """No event before this time comes any more (less ``lateness_s``): a clock's word where events are rare."""
        self.watermark = max(self.watermark, time - (self.lateness_s or 0.0))
        return self._go_on({})

    def finish(self) -> list[Match]:
        """No more events will come: waiting rows are taken, and every attempt is decided."""
        self.watermark = math.inf
        matches = self._go_on(dict(self._places))
        for key, place in list(self._places.items()):
            answers: list[Answer] = []
            self._overflows(key, self._steps.finish(place.state, answers))
            matches += self._matches(key, answers)
        self._places.clear()
        self._due.clear()
        return matches

    def state(self) -> bytes:
        """All that it remembers; the events of ALL ROWS must be what msgpack can carry."""
        partitions = [(key, place.state) for key, place in self._places.items()]
        watermark = self.watermark if math.isfinite(self.watermark) else None
        return msgspec.msgpack.encode(State(self.pattern.text, watermark, partitions))

    def restore(self, state: bytes) -> None:
        """Go on from the state of another matcher of the same pattern."""
        known = msgspec.msgpack.decode(state, type=State)
        if known.pattern != self.pattern.text:
            raise BadInput("this state is of another pattern: restore it into a matcher of its own pattern")
        self.watermark = -math.inf if known.watermark is None else known.watermark
        self._places = {key: _Place(partition) for key, partition in known.partitions}
        for key, place in self._places.items():
            self._look_again(key, place)

    def parts(self) -> Iterator[tuple[Key, bytes, float]]:
        """Each remembered partition, by itself, with the time at which the watermark alone changes it (``inf``: never).
        The watermark is not in it."""
        for key, place in self._places.items():
            yield key, msgspec.msgpack.encode(place.state), place.due

    def take(self, key: Key, part: bytes) -> None:
        """Go on with a partition that another matcher of the same pattern gave as one of its ``parts``.

        Set the watermark after all are taken: ``advance`` then finds a time-out that it has passed already."""
        place = self._places[key] = _Place(msgspec.msgpack.decode(part, type=Partition))
        self._look_again(key, place)

    def due(self) -> float | None:
        """The watermark at which time alone changes something. ``None`` if it never does."""
        moments = [place.due for place in self._places.values()]
        earliest = min(moments, default=math.inf)
        return None if earliest == math.inf else earliest

    def __len__(self) -> int:
        """The partitions of which something is remembered."""
        return len(self._places)

    def validate(self) -> None:
        assert len(self._due) <= 2 * len(self._places) + DUE_SPARE + 1, "moments are never forgotten"
        for place in self._places.values():
            place.state.validate()
            due = self._steps.due(place.state)
            assert due is None or place.due <= max(due, math.nextafter(self.watermark, math.inf)), "nobody will look"

    # --- the way of a row -------------------------------------------------------------------------------------------

    def _new_place(self, key: Key, event: Any) -> _Place | None:
        if len(self._places) >= self._partitions_max:
            reason = f"there are {self._partitions_max:,} partitions already: partition by fewer values"
            self._tell(Problem("overflow", reason, event, key))
            return None
        place = self._places[key] = _Place(Partition())
        return place

    def _go_on(self, touched: dict[Key, _Place]) -> list[Match]:
        """Take the rows that may be taken, in partitions that got rows and in partitions whose time has come."""
        matches: list[Match] = []
        watermark = self.watermark
        for key, place in touched.items():
            self._bring_forward(key, place, watermark, matches)
        while self._due and self._due[0][0] <= watermark:
            due, _, key = heappop(self._due)
            known = self._places.get(key)
            if known is not None and known.due == due:
                known.due = math.inf
                self._bring_forward(key, known, watermark, matches)
        return matches

    def _bring_forward(self, key: Key, place: _Place, watermark: float, matches: list[Match]) -> None:
        state, steps = place.state, self._steps
        answers: list[Answer] = []
        problems: list[str] = []
        if state.waiting:
            rows = self._released(key, place, watermark)
            if rows:
                problems = steps.take(state, rows, answers)
        if state.ways:
            problems += steps.expire(state, watermark, answers)
        if problems:
            self._overflows(key, problems)
        if answers:
            matches += self._matches(key, answers)
        if not state.ways and not state.waiting and steps.may_be_forgotten(state):
            del self._places[key]
        else:
            self._look_again(key, place)

    def _released(self, key: Key, place: _Place, watermark: float) -> list[Row]:
        """The waiting rows before which none can come any more, in order."""
        waiting = place.state.waiting
        if len(waiting) > 1:
            self._steps.sort(waiting)
        count = len(waiting)
        if waiting[-1][TIME] > watermark:
            count = next(number for number, row in enumerate(waiting) if row[TIME] > watermark)
            if len(waiting) - count > PATTERN_ROWS_MAX:
                count = len(waiting) - PATTERN_ROWS_MAX
                reason = f"more than {PATTERN_ROWS_MAX:,} rows wait for earlier ones, and the first are not waited with"
                self._overflows(key, [f"{reason}: allow less lateness, or partition by more"])
        place.state.waiting = waiting[count:]
        return waiting[:count]

    def _look_again(self, key: Key, place: _Place) -> None:
        due = self._steps.due(place.state)
        if due is None:
            return
        if due <= self.watermark:
            # WITHIN ends after this moment, not at it.
            due = math.nextafter(self.watermark, math.inf)
        if due < place.due:
            place.due = due
            self._due_count += 1
            heappush(self._due, (due, self._due_count, key))
            if len(self._due) > 2 * len(self._places) + DUE_SPARE:
                # Partitions that were forgotten have left their moments behind.
                self._due = [
                    (each.due, n, known) for n, (known, each) in enumerate(self._places.items()) if each.due < math.inf
                ]
                heapify(self._due)
                self._due_count = len(self._places)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _matches(self, key: Key, answers: list[Answer]) -> list[Match]:
        partition = dict(zip(self._key_names, key, strict=True))
        names = self._measure_names
        return [
            Match(partition, dict(zip(names, values, strict=True)), first, last, number, variable, event)
            for values, first, last, number, variable, event in answers
        ]

    def _late(self, event: Any, key: Key, time: float, watermark: float) -> Problem:
        reason = f"its time {time:.6f} is {watermark - time:.6f} s before what was already taken: allow more lateness_s"
        return Problem("late", reason, event, key)

    def _overflows(self, key: Key, reasons: list[str]) -> None:
        for reason in reasons:
            self._tell(Problem("overflow", reason, None, key))

    def _tell(self, problem: Problem) -> None:
        self.problem_counts[problem.kind] += 1
        self.problems.append(problem)
        if self._on_problem is not None:
            self._on_problem(problem)
