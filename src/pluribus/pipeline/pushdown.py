"""Spark's conditions in the one filter language: what is pushed down to the keepers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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


def condition(filter: Filter, fields: Collection[str]) -> str | None:
    """The same condition as a filter, or None: of another column than these, or not to be said exactly."""
    attribute = ".".join(getattr(filter, "attribute", ()))
    if attribute not in fields or not attribute.isidentifier():
        return None
    match filter:
        case IsNull():
            return f"{attribute} IS NULL"
        case IsNotNull():
            return f"{attribute} IS NOT NULL"
        case In():
            values = [_literal(value) for value in filter.value]
            known = [value for value in values if value is not None]
            return f"{attribute} IN ({', '.join(known)})" if known and len(known) == len(values) else None
        case StringStartsWith() if not set(filter.value) & set("%_\\"):
            return f"{attribute} LIKE {_literal(filter.value + '%')}"
        case _ if type(filter) in _OPERATORS:
            value = _literal(getattr(filter, "value", None))
            return None if value is None else f"{attribute} {_OPERATORS[type(filter)]} {value}"
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
