"""Spark's conditions in the one filter language: what is pushed down to the keepers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

_OPERATORS: dict[type, str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


class Pushed(NamedTuple):
    text: str
    exact: bool = True
    """Whether it is true for the same rows as Spark's condition. If not, it is true for more, and Spark looks again."""


def condition(filter: Filter, fields: Mapping[str, bool]) -> Pushed | None:
    """The same condition as a filter, or None: of another column than these, or not to be said. ``fields`` says of each
    whether it may be NaN, which to Spark is the greatest number, and to a filter is null."""
    attribute = ".".join(getattr(filter, "attribute", ()))
    if attribute not in fields or not attribute.isidentifier():
        return None
    or_nan = fields[attribute]
    match filter:
        case IsNull():
            return Pushed(f"{attribute} IS NULL", not or_nan)
        case IsNotNull():
            return None if or_nan else Pushed(f"{attribute} IS NOT NULL")
        case In():
            values = [_literal(value) for value in filter.value]
            known = [value for value in values if value is not None]
            return Pushed(f"{attribute} IN ({', '.join(known)})") if known and len(known) == len(values) else None
        case StringStartsWith() if not set(filter.value) & set("%_\\"):
            return Pushed(f"{attribute} LIKE {_literal(filter.value + '%')}")
        case _ if type(filter) in _OPERATORS:
            value = _literal(getattr(filter, "value", None))
            if value is None:
                return None
            text = f"{attribute} {_OPERATORS[type(filter)]} {value}"
            if or_nan and isinstance(filter, GreaterThan | GreaterThanOrEqual):
                return Pushed(f"({text} OR {attribute} IS NULL)", exact=False)
            return Pushed(text)
    return None


def _literal(value: Any) -> str | None:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return repr(value)
    return None
