"""The parts of a filter for an index: equalities, intervals, and a rest that is evaluated for candidates only.

A filter is true if one of its alternatives is, and an alternative is a conjunction. Each condition of it becomes, if it
can,

* an *equality*: the field has one of these values. One equality of an alternative chooses where it is kept, so that
  only events with that value ever look at it;
* an *interval* on a *coordinate* of the event. A number is its own coordinate; truth is 0 or 1; whether a field is
  there is 0 or 1; a text's coordinate is a number that the index gives to each text that filters ask for;
* else part of the *rest*. A circle around a place is also two intervals, which keep most events from the rest.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

from ..normal import alternatives
from ..numbers import EARTH_RADIUS_M
from ..printing import to_text
from ..tree import (
    MIRRORED,
    And,
    Call,
    Compare,
    Constant,
    Field,
    In,
    IsNull,
    IsTruth,
    Kind,
    Like,
    Node,
    Not,
    Path,
    Scalar,
)

ALTERNATIVES_MAX = 16
EQUALITY_VALUES_MAX = 64
EXACT = 2**53
"""Whole numbers below this are doubles too; intervals are of doubles."""


class Form(Enum):
    NUMBER = "number"
    TEXT = "text"
    TRUTH = "truth"
    PRESENCE = "presence"

    __hash__ = object.__hash__


class Coordinate(NamedTuple):
    path: Path
    form: Form


class Equality(NamedTuple):
    coordinate: Coordinate
    values: tuple[Scalar, ...]
    condition: Node
    """The condition itself, for an equality that is not chosen and is no interval either."""


class Conjunction(NamedTuple):
    equalities: list[Equality]
    intervals: dict[Coordinate, tuple[float, float]]
    rest: list[Node]


def conjunctions_of(tree: Node) -> list[Conjunction]:
    """The conjunctions of a filter. If it has too many alternatives, all of it is rest."""
    terms = tree.terms if isinstance(tree, And) else (tree,)
    found = [terms] if all(map(_is_simple, terms)) else alternatives(tree, ALTERNATIVES_MAX)
    if found is None:
        return [Conjunction([], {}, [tree])]
    made = (_conjunction(terms) for terms in found)
    return [one for one in made if one is not None]


def explain(tree: Node) -> list[str]:
    """How an index uses a filter, a line for each alternative."""
    lines = []
    for equalities, intervals, rest in conjunctions_of(tree):
        by_hash = " or ".join(to_text(equality.condition) for equality in equalities)
        ranges = ", ".join(
            f"{'.'.join(path)}{'' if form is Form.NUMBER else f' ({form.value})'} from {low:g} to {high:g}"
            for (path, form), (low, high) in intervals.items()
        )
        one_by_one = " AND ".join(map(to_text, rest))
        parts = (("by hash", by_hash), ("by range", ranges), ("one by one", one_by_one))
        lines.append("; ".join(f"{how}: {what}" for how, what in parts if what) or "always")
    return lines or ["never"]


def _is_simple(term: Node) -> bool:
    return isinstance(term, Compare | In | Like | IsNull | IsTruth | Field)


def _conjunction(terms: tuple[Node, ...]) -> Conjunction | None:
    """``None`` if it can never hold."""
    made = Conjunction([], {}, [])
    for term in terms:
        match term:
            case Compare(operator, Constant() as constant, Field() as field):
                _compare(made, MIRRORED[operator], field, constant, term)
            case Compare(operator, Field() as field, Constant() as constant):
                _compare(made, operator, field, constant, term)
            case In(Field(path, kind), values) if len(values) <= EQUALITY_VALUES_MAX:
                form = Form.TEXT if kind is Kind.TEXT else Form.NUMBER
                chosen = tuple(value.value for value in values if isinstance(value, Constant))
                made.equalities.append(Equality(Coordinate(path, form), chosen, term))
            case Field(path):
                narrow(made.intervals, Coordinate(path, Form.TRUTH), 1.0, 1.0)
            case Not(Field(path)):
                narrow(made.intervals, Coordinate(path, Form.TRUTH), 0.0, 0.0)
            case IsNull(Field(path)):
                narrow(made.intervals, Coordinate(path, Form.PRESENCE), 0.0, 0.0)
            case Not(IsNull(Field(path))):
                narrow(made.intervals, Coordinate(path, Form.PRESENCE), 1.0, 1.0)
            case _:
                _circle(made, term)
                made.rest.append(term)
    return None if any(low > high for low, high in made.intervals.values()) else made


def narrow(
    intervals: dict[Coordinate, tuple[float, float]],
    coordinate: Coordinate,
    low: float = -math.inf,
    high: float = math.inf,
) -> None:
    known = intervals.get(coordinate, (-math.inf, math.inf))
    intervals[coordinate] = (max(low, known[0]), min(high, known[1]))


def _compare(made: Conjunction, operator: str, field: Field, constant: Constant, term: Node) -> None:
    value = constant.value
    if operator == "=":
        form = Form.TEXT if constant.kind is Kind.TEXT else Form.NUMBER
        made.equalities.append(Equality(Coordinate(field.path, form), (value,), term))
        return
    if isinstance(value, str) or operator == "<>" or abs(value) >= EXACT:
        made.rest.append(term)
        return
    coordinate, bound = Coordinate(field.path, Form.NUMBER), float(value)
    match operator:
        case "<":
            narrow(made.intervals, coordinate, high=math.nextafter(bound, -math.inf))
        case "<=":
            narrow(made.intervals, coordinate, high=bound)
        case ">":
            narrow(made.intervals, coordinate, low=math.nextafter(bound, math.inf))
        case ">=":
            narrow(made.intervals, coordinate, low=bound)


def _circle(made: Conjunction, term: Node) -> None:
    """The box around a circle. Near a pole or the date line only latitudes bound it."""
    match term:
        case Compare(
            "<" | "<=",
            Call(
                "DISTANCE",
                (
                    Field(latitudes),
                    Field(longitudes),
                    Constant(float() | int() as north),
                    Constant(float() | int() as east),
                ),
            ),
            Constant(float() | int() as metres),
        ):
            degrees = math.degrees(metres / EARTH_RADIUS_M) * (1 + 1e-9) + 1e-9
            narrow(made.intervals, Coordinate(latitudes, Form.NUMBER), north - degrees, north + degrees)
            closest = min(90.0, max(abs(north - degrees), abs(north + degrees)))
            if degrees >= 90 or closest >= 89:
                return
            sideways = math.sin(math.radians(degrees)) / math.cos(math.radians(north))
            if sideways < 1:
                reach = math.degrees(math.asin(sideways)) * (1 + 1e-9) + 1e-9
                if east - reach > -180 and east + reach < 180:
                    narrow(made.intervals, Coordinate(longitudes, Form.NUMBER), east - reach, east + reach)
