"""A pattern as programs hold it: a text that was read, checked and compiled.

The conditions of DEFINE fall in two kinds. Conditions about the current row and rows at fixed distances before it
(``price < PREV(price)``) are answered once for each row: the row gets a *mask* with a bit for every variable that it
may be. Conditions about the match so far are answered for each way to match; their bit is always set, and they are
evaluated when a way comes to the variable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..core.errors import BadPattern
from ..core.limits import PATTERN_VARIABLES_MAX
from ..filters.predicate import Predicate, compile_predicate, compile_value
from ..filters.tree import Field, Node, Path, walk
from .automaton import Automaton, build
from .grammar import read_clauses
from .references import (
    COLUMNS,
    Context,
    Found,
    Meaning,
    Names,
    Register,
    Registers,
    RegisterValue,
    Row,
    Update,
    in_condition,
    in_measure,
    meaning,
)
from .tree import Clauses, variables

PATTERNS_REMEMBERED_MAX = 256
ANYTHING = 1 << PATTERN_VARIABLES_MAX
"""A bit that is in every mask."""


class Pattern:
    """Made by ``parse``; immutable. ``str(pattern)`` is its text."""

    def __init__(self, text: str, type: type | None = None) -> None:
        self.text = text
        self.clauses: Clauses = read_clauses(text, type)
        clauses = self.clauses
        self.automaton: Automaton = build(text, clauses.rows, clauses.within_s, clauses.within_rows)
        self.variables: tuple[str, ...] = tuple(dict.fromkeys(each.name for each in variables(clauses.rows)))
        numbers = {name: number for number, name in enumerate(self.variables)}
        self.names: Names = {name: frozenset([number]) for name, number in numbers.items()}
        self.names |= {name: frozenset(map(numbers.__getitem__, those)) for name, those in clauses.subsets.items()}
        self._columns: dict[Path, int] = {}
        self._earlier: dict[tuple[int, int], int] = {}
        self._registers = Registers()
        self.back_max = 0
        """How many rows before the first row of a match conditions may look back."""
        self._read_conditions()
        self.measures = tuple(self._measure(each.value) for each in clauses.measures)
        self.positions = tuple(numbers[name] for name in self.automaton.variables)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Callable[[str], Pattern], tuple[str]]:
        return parse, (self.text,)

    @property
    def columns(self) -> tuple[Path, ...]:
        """The fields that rows have, in their order from ``COLUMNS`` on."""
        return tuple(self._columns)

    @property
    def earlier(self) -> tuple[tuple[int, int], ...]:
        """What follows them in a row: a column's place, and of how many rows before."""
        return tuple(self._earlier)

    @property
    def registers(self) -> tuple[Register, ...]:
        return tuple(self._registers.specified)

    def initial_registers(self) -> tuple[RegisterValue, ...]:
        return self._registers.initial()

    def updates(self) -> tuple[tuple[tuple[int, Update], ...], ...]:
        """For each variable, the registers that its rows change."""
        return tuple(self._registers.updates(number) for number in range(len(self.variables)))

    def mask_of(self) -> Callable[[Row], int]:
        """A function from a row to the bits of the variables that it may be."""
        always = ANYTHING + sum(1 << number for number in range(len(self.variables)) if self.plain[number] is None)
        tests = [(1 << number, plain) for number, plain in enumerate(self.plain) if plain is not None]
        if not tests:
            return lambda row: always
        if len(tests) == 1:
            ((only, holds),) = tests
            return lambda row: always | only if holds(row) else always
        if len(tests) == 2:  # as the loop below does it, at two thirds of its time
            (one, first), (other, second) = tests
            return lambda row: always | (one if first(row) else 0) | (other if second(row) else 0)

        def mask(row: Row) -> int:
            bits = always
            for bit, holds in tests:
                if holds(row):
                    bits |= bit
            return bits

        return mask

    def _read_conditions(self) -> None:
        clauses = self.clauses
        places = {name: number for number, name in enumerate(self.variables)}
        asked = [(number, clauses.define.get(name)) for name, number in places.items()]
        for said in (*clauses.define.values(), *(each.value for each in clauses.measures)):
            for field in _fields(said):
                self._note(meaning(field, self.names))
        plain: list[Predicate | None] = []
        looking: list[Callable[[Context], bool] | None] = []
        for number, tree in asked:
            local = tree is not None and all(
                self._is_local(meaning(each, self.names), number) for each in _fields(tree)
            )
            plain.append(None if tree is None or not local else compile_predicate(tree, resolve=self._in_row(number)))
            looking.append(None if tree is None or local else compile_predicate(tree, resolve=self._in_way(number)))
        self.plain = tuple(plain)
        """For each variable, its condition on the row alone, if it has one."""
        self.looking = tuple(looking)
        """For each variable, its condition on the match so far, if it has one."""

    def _note(self, means: Meaning) -> None:
        if means.function in ("MATCH_NUMBER", "CLASSIFIER"):
            return
        self.back_max = max(self.back_max, means.back)
        if means.path:
            self._columns.setdefault(means.path, COLUMNS + len(self._columns))

    def _is_local(self, means: Meaning, own: int) -> bool:
        """True if it means the current row, or one at a fixed distance before it."""
        if means.function in ("MATCH_NUMBER", "CLASSIFIER"):
            at = self.text.upper().rfind(means.function) + 1
            raise BadPattern.at(self.text, at, f"{means.function} is no condition's matter", "use it in MEASURES")
        is_last = means.function == "LAST" and means.number == 0
        return is_last and (means.members is None or own in means.members)

    def _in_row(self, own: int) -> Callable[[Field], int]:
        def place(field: Field) -> int:
            means = meaning(field, self.names)
            assert self._is_local(means, own)
            column = self._columns[means.path]
            if not means.back:
                return column
            key = (column, means.back)
            return self._earlier.setdefault(key, COLUMNS + len(self._columns) + len(self._earlier))

        return place

    def _in_way(self, own: int) -> Callable[[Field], Callable[[Context], Any]]:
        def value(field: Field) -> Callable[[Context], Any]:
            means = meaning(field, self.names)
            if self._is_local(means, own):
                means = means._replace(members=None)
            return in_condition(means, self._columns.get(means.path, 0), self._registers)

        return value

    def _measure(self, tree: Node) -> Callable[[Found], Any]:
        def value(field: Field) -> Callable[[Found], Any]:
            means = meaning(field, self.names)
            return in_measure(means, self._columns.get(means.path, 0), self.variables)

        return compile_value(tree, resolve=value)


@lru_cache(PATTERNS_REMEMBERED_MAX)
def _remembered(text: str) -> Pattern:
    return Pattern(text)


def parse(text: str, *, type: type | None = None) -> Pattern:
    """Parse a text; ``BadPattern`` has position, reason and remedy.

    With ``type``, a struct or dataclass of events, fields that it does not have and values of other kinds are refused.
    """
    return _remembered(text) if type is None else Pattern(text, type)


def _fields(tree: Node) -> list[Field]:
    return [node for node in walk(tree) if isinstance(node, Field)]
