"""Arithmetic and functions: one definition that Python, SQLite, PostgreSQL and Spark can all keep, to the bit.

Numbers are compared exactly: a whole number of 64 bits is not rounded, and is compared with a fraction, or with what
was computed, as mathematics would. *Computing* is done in doubles (IEEE 754 binary64), under three rules that make
every operation succeed everywhere. PostgreSQL refuses a query in which a product overflows or underflows, and a filter
must never fail on an event:

1. A field or constant beyond 1e30 is unknown as an operand; one nearer to zero than 1e-30 is zero.
2. A number divided by zero is unknown.
3. At most six factors are multiplied or divided (``FACTORS_MAX``); more are refused when the filter is parsed.

Why this is enough: operands are whole multiples of 1e-47 (the last bit of 1e-30) and at most 1e30. Sums of terms of d
factors are multiples of 1e-47d, hence zero or at least that; quotients too, as none is divided by more than 1e30 for
each factor. Turned round, nothing is above 1e47d. With six factors that is 1e282, and 1,000 such terms are still far
below the largest double; so no result is ever infinite, and none is rounded to zero.

In Python an unknown number is NaN, which no comparison holds for, and an unknown text or truth is ``None``.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from .tree import Arithmetic, Call, Field, Kind, Node

FACTORS_MAX = 6
OPERAND_MAX = 1e30
OPERAND_MIN = 1e-30
NAN = math.nan
EARTH_RADIUS_M = 6_371_008.8
"""The mean radius: distances are those on a sphere, at most 0.6 % from those on the ellipsoid."""
SECONDS_MIN, SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999."""

BOOLEAN, NUMBER, TEXT = Kind.BOOLEAN, Kind.NUMBER, Kind.TEXT


class Function(NamedTuple):
    arguments: tuple[Kind, ...]
    result: Kind
    form: str


FUNCTIONS = {
    "ABS": Function((NUMBER,), NUMBER, "ABS(number)"),
    "FLOOR": Function((NUMBER,), NUMBER, "FLOOR(number)"),
    "LENGTH": Function((TEXT,), NUMBER, "LENGTH(text)"),
    "LOWER": Function((TEXT,), TEXT, "LOWER(text)"),
    "UPPER": Function((TEXT,), TEXT, "UPPER(text)"),
    "DISTANCE": Function((NUMBER,) * 4, NUMBER, "DISTANCE(latitude, longitude, latitude, longitude)"),
    "NOW": Function((), NUMBER, "NOW()"),
    **{
        part: Function((NUMBER,), NUMBER, f"{part}(time)")
        for part in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "WEEKDAY")
    },
}


def kind_of(node: Node) -> Kind:
    match node:
        case Field(_, kind):
            return kind
        case Arithmetic():
            return NUMBER
        case Call(name):
            return FUNCTIONS[name].result
        case _:
            return getattr(node, "kind", BOOLEAN)


def computes(node: Node) -> bool:
    """True if a number is the result of computing, and so a double."""
    return isinstance(node, Arithmetic) or (isinstance(node, Call) and FUNCTIONS[node.name].result is NUMBER)


def factors(node: Node) -> int:
    match node:
        case Arithmetic("+" | "-", left, right):
            return max(factors(left), factors(right))
        case Arithmetic(_, left, right):
            return factors(left) + factors(right)
        case Call("ABS" | "FLOOR", (operand,)):
            return factors(operand)
        case _:
            return 1


def operand(number: float) -> float:
    """The number of a field or constant, as a term of arithmetic (rule 1)."""
    size = abs(number)
    if OPERAND_MIN <= size <= OPERAND_MAX:
        return float(number)
    return 0.0 if size < OPERAND_MIN else NAN


def double(number: float) -> float:
    """A number, rounded; infinite beyond the largest double."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def beside_double(operator: str, number: float) -> tuple[str, float]:
    """The comparison of doubles, with a constant that is a double, which has the same result as the given one.

    ``x > 2**53 + 1`` is ``x > 2**53`` for doubles. No double is equal to that constant; ``= NaN`` is how that is said,
    as a comparison that holds for none and is unknown for none but null; ``<> NaN`` likewise holds for all.
    """
    rounded = double(number)
    if rounded == number:
        return operator, rounded
    if operator in ("<", "<="):
        return ("<=" if rounded < number else "<"), rounded
    if operator in (">", ">="):
        return (">=" if rounded > number else ">"), rounded
    return operator, NAN


def divide(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else NAN


def floor(number: float) -> float:
    return float(math.floor(number)) if number == number else NAN


def distance(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Metres along the great circle (haversine formula); unknown if a place is not on earth."""
    if not (
        -90 <= latitude <= 90
        and -90 <= other_latitude <= 90
        and -180 <= longitude <= 180
        and -180 <= other_longitude <= 180
    ):
        return NAN
    north = math.sin(math.radians(other_latitude - latitude) / 2)
    east = math.sin(math.radians(other_longitude - longitude) / 2)
    square = north * north + math.cos(math.radians(latitude)) * math.cos(math.radians(other_latitude)) * east * east
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(square)))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def calendar(part: str, seconds: float) -> float:
    """A part of the date or time of day, in UTC; weeks begin on Monday, which is 1."""
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        return NAN
    moment = _EPOCH + timedelta(seconds=math.floor(seconds))
    return float(moment.isoweekday() if part == "WEEKDAY" else getattr(moment, part.lower()))


LOWER_LETTERS = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}
UPPER_LETTERS = {small: capital for capital, small in LOWER_LETTERS.items()}


def lower(text: str | None) -> str | None:
    """Lower case for A to Z only: databases disagree about all other letters."""
    return text if text is None else text.translate(LOWER_LETTERS)


def upper(text: str | None) -> str | None:
    return text if text is None else text.translate(UPPER_LETTERS)


def length(text: str | None) -> float:
    return NAN if text is None else float(len(text))
