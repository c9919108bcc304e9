"""The rows that the fields of conditions and measures refer to.

A row is a tuple: its time, what decides between equal times, the event itself (where whole rows are asked for), the
columns that the pattern reads, and then columns of earlier rows that conditions compare the current row with
(``PREV``). Rows have numbers, counted from the first of their partition.

Conditions are asked while a match grows. What they say about rows before the current one is kept in *registers*: small
values that each way of matching has of its own, brought up to date when it takes a row. Two ways at the same position
with equal registers have the same future. A register is the numbers of the first or last few rows of a variable, or a
count, sum, least or greatest. Of all rows of the match (no variable named) the first and last need no register.

Measures are asked of a finished match, for which the variable of each row is known; they look it up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..filters.events import absent, number
from ..filters.tree import Field, Path

TIME, TIE, EVENT, COLUMNS = range(4)
"""Places in a row; the columns begin at the last."""

Row = tuple[Any, ...]
RegisterValue = int | float | None | tuple[int, ...]
Names = dict[str, frozenset[int]]
"""Variables and subsets, as sets of variables' numbers."""
Update = Callable[[Any, int, Row], RegisterValue]


class Meaning(NamedTuple):
    """A field taken apart: PREV by ``back`` of FIRST, LAST or an aggregate (with its number) of some variables."""

    function: str
    number: int
    back: int
    members: frozenset[int] | None
    """``None``: all rows of the match."""
    path: Path


def meaning(field: Field, names: Names) -> Meaning:
    path, members = field.path, None
    if path and path[0] in names and (len(path) > 1 or (field.via and field.via[0][0] == "COUNT")):
        members, path = names[path[0]], path[1:]
    steps = list(field.via)
    back = 0
    if steps and steps[0][0] == "PREV":
        back = max(steps.pop(0)[1], 1)
    function, number = steps[0] if steps else ("LAST", 0)
    return Meaning(function, number, back, members, path)


class Context:
    """A way to match that has just taken a row: what conditions that look back are called with."""

    __slots__ = ("base", "index", "registers", "rows", "start")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.base = 0
        """The number of the first row that is still there."""
        self.start = 0
        self.index = 0
        self.registers: tuple[RegisterValue, ...] = ()


class Found(NamedTuple):
    """A match, or its first rows: what measures are called with."""

    rows: list[Row]
    base: int
    start: int
    variables: bytes
    """The variable of each row."""
    number: int

    def upto(self, count: int) -> Found:
        return self._replace(variables=self.variables[:count])


class Register(NamedTuple):
    function: str
    number: int
    members: frozenset[int] | None
    column: int
    """The place in a row; 0 where rows are counted."""


class Registers:
    """Those of one pattern."""

    def __init__(self) -> None:
        self.specified: list[Register] = []

    def place(self, register: Register) -> int:
        if register not in self.specified:
            self.specified.append(register)
        return self.specified.index(register)

    def initial(self) -> tuple[RegisterValue, ...]:
        starts: dict[str, RegisterValue] = {"FIRST": (), "LAST": (), "COUNT": 0, "ROWS": 0, "NUMBERS": 0}
        return tuple(starts.get(register.function) for register in self.specified)

    def updates(self, variable: int) -> tuple[tuple[int, Update], ...]:
        return tuple(
            (place, _update(register))
            for place, register in enumerate(self.specified)
            if register.members is None or variable in register.members
        )


def _update(register: Register) -> Update:
    kept, column = register.number + 1, register.column
    match register.function:
        case "FIRST":
            return lambda old, index, row: old if len(old) >= kept else (*old, index)
        case "LAST":
            return lambda old, index, row: (*old, index)[-kept:]
        case "ROWS":
            return lambda old, index, row: old + 1
        case "COUNT":
            return lambda old, index, row: old + (not absent(row[column]))
    combine = COMBINE[register.function]

    def update(old: Any, index: int, row: Row) -> RegisterValue:
        value = number(row[column])
        return combine(old, value) if value == value else old  # type: ignore[no-any-return]

    return update


COMBINE: dict[str, Callable[[Any, float], Any]] = {
    "SUM": lambda old, value: (0.0 if old is None else old) + value,
    "MIN": lambda old, value: value if old is None or value < old else old,
    "MAX": lambda old, value: value if old is None or value > old else old,
    "NUMBERS": lambda old, value: (old or 0) + 1,
}


def in_condition(means: Meaning, column: int, registers: Registers) -> Callable[[Context], Any]:
    """A function from a way that has just taken a row to the field's value."""
    function, count, back, members, _ = means
    if function == "AVG":
        total = registers.place(Register("SUM", 0, members, column))
        numbers = registers.place(Register("NUMBERS", 0, members, column))

        def average(context: Context) -> Any:
            counted: Any = context.registers[numbers]
            sums: Any = context.registers[total]
            return sums / counted if counted else None

        return average
    if function not in ("FIRST", "LAST"):
        name = "ROWS" if function == "COUNT" and not column else function
        kept = registers.place(Register(name, 0, members, column))
        return lambda context: context.registers[kept]
    if members is None:
        return _of_all(function, count, back, column)
    held = registers.place(Register(function, count, members, 0))

    def value(context: Context) -> Any:
        there: Any = context.registers[held]
        if len(there) <= count:
            return None
        place = there[-1 - count if function == "LAST" else count] - back - context.base
        return context.rows[place][column] if place >= 0 else None

    return value


def _of_all(function: str, count: int, back: int, column: int) -> Callable[[Context], Any]:
    def first(context: Context) -> Any:
        index = context.start + count
        place = index - back - context.base
        return context.rows[place][column] if index <= context.index and place >= 0 else None

    def last(context: Context) -> Any:
        index = context.index - count
        place = index - back - context.base
        return context.rows[place][column] if index >= context.start and place >= 0 else None

    return first if function == "FIRST" else last


def in_measure(means: Meaning, column: int, names: tuple[str, ...]) -> Callable[[Found], Any]:
    """A function from a match to the field's value; ``names`` are the variables'."""
    function, count, back, members, _ = means
    if function == "MATCH_NUMBER":
        return lambda found: found.number
    if function == "CLASSIFIER":
        return lambda found: names[found.variables[-1]]
    if function in ("FIRST", "LAST"):

        def value(found: Found) -> Any:
            chosen = _indices(found, members)
            if len(chosen) <= count:
                return None
            place = chosen[-1 - count if function == "LAST" else count] - back - found.base
            return found.rows[place][column] if place >= 0 else None

        return value
    if function == "COUNT" and not column:
        return lambda found: len(_indices(found, members))
    if function == "COUNT":
        return lambda found: sum(
            not absent(found.rows[index - found.base][column]) for index in _indices(found, members)
        )

    def aggregate(found: Found) -> Any:
        values = [number(found.rows[index - found.base][column]) for index in _indices(found, members)]
        known = [value for value in values if value == value]
        combined = None
        for value in known:
            combined = COMBINE["SUM" if function == "AVG" else function](combined, value)
        return combined / len(known) if function == "AVG" and combined is not None else combined

    return aggregate


def _indices(found: Found, members: frozenset[int] | None) -> range | list[int]:
    if members is None:
        return range(found.start, found.start + len(found.variables))
    return [found.start + place for place, variable in enumerate(found.variables) if variable in members]
