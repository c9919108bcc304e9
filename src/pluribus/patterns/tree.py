"""A pattern as a tree: the order of its variables, and the conditions on them.

A *row pattern* is a regular expression over variables. Of two ways to match the same rows it says which is preferred:
the first choice of an alternation before the second, one more round of a greedy quantifier before going on, going on
before one more round of a reluctant one.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec

from ..filters.tree import Node, Path


class Variable(msgspec.Struct, frozen=True):
    name: str
    at: int = 0
    """Where it stands in the text, from 1; for complaints."""


class Sequence(msgspec.Struct, frozen=True):
    parts: tuple[RowPattern, ...]


class Alternation(msgspec.Struct, frozen=True):
    choices: tuple[RowPattern, ...]


class Repeat(msgspec.Struct, frozen=True):
    """A round beyond ``least`` that matches no row does not count: so ``(A?)*`` ends."""

    part: RowPattern
    least: int
    most: int | None
    greedy: bool = True
    at: int = 0


RowPattern = Variable | Sequence | Alternation | Repeat


class SkipTo(Enum):
    PAST_LAST_ROW = "PAST LAST ROW"
    NEXT_ROW = "TO NEXT ROW"
    FIRST = "TO FIRST"
    LAST = "TO LAST"


class Measure(msgspec.Struct, frozen=True):
    """``final``: the value over the whole match, even in a row in its middle."""

    name: str
    value: Node
    final: bool = False


class Clauses(msgspec.Struct, frozen=True):
    """The contents of a text, clause by clause."""

    partition: tuple[Path, ...]
    order: tuple[Path, ...]
    """The time, and the tie-breaker between equal times."""
    measures: tuple[Measure, ...]
    all_rows: bool
    skip: SkipTo
    skip_variable: str
    rows: RowPattern
    within_s: float | None
    within_rows: int | None
    subsets: dict[str, frozenset[str]]
    define: dict[str, Node]


def variables(rows: RowPattern) -> Iterator[Variable]:
    match rows:
        case Variable():
            yield rows
        case Sequence(parts) | Alternation(parts):
            for part in parts:
                yield from variables(part)
        case Repeat(part):
            yield from variables(part)


def shown(rows: RowPattern) -> str:
    """The row pattern as text."""
    match rows:
        case Variable(name):
            return name
        case Sequence(parts):
            return " ".join(f"({shown(part)})" if isinstance(part, Alternation) else shown(part) for part in parts)
        case Alternation(choices):
            return " | ".join(map(shown, choices))
        case Repeat(part, least, most, greedy):
            inner = part.name if isinstance(part, Variable) else f"({shown(part)})"
            sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            if sign is None:
                sign = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
            return inner + sign + ("" if greedy else "?")
