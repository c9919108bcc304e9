"""Spark's conditions in the one filter language: as filters for the keepers, and as bounds of the offsets that are
read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
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


OFFSET_MAX = 1 << 62


class Bounds:
    """The events that conditions on the envelope allow: topics, offsets, and times from below. Every event that fulfils
    the conditions lies within.

    Times of a topic need not rise from event to event, because publishers have clocks of their own. So the first event
    that is not older than a time says where to begin, and Spark looks at the times again; no event says where to end.
    """

    def __init__(self) -> None:
        self.low = 0
        self.high = OFFSET_MAX
        self.since_s: float | None = None
        self._topics: list[tuple[str, ...]] = []
        self._prefixes: list[str] = []

    @property
    def free(self) -> bool:
        """Whether any topic is wanted."""
        return not self._topics and not self._prefixes

    @property
    def unbounded(self) -> bool:
        """Whether any offset and any time is wanted."""
        return self.low == 0 and self.high == OFFSET_MAX and self.since_s is None

    def topic(self, name: str) -> bool:
        return all(name in some for some in self._topics) and all(name.startswith(one) for one in self._prefixes)

    def take(self, filter: Filter) -> bool:
        """Take a condition over, or a part of it; true if Spark need not check it any more."""
        attribute = ".".join(getattr(filter, "attribute", ()))
        if attribute == "topic":
            return self._take_topic(filter)
        if attribute == "offset":
            return self._take_offset(filter)
        if attribute == "time" and isinstance(filter, EqualTo | GreaterThan | GreaterThanOrEqual):
            value = filter.value
            if isinstance(value, datetime) and value.tzinfo is not None:  # of others nobody knows where they are meant
                since_s = value.timestamp()
                self.since_s = since_s if self.since_s is None else max(self.since_s, since_s)
        return False

    def _take_topic(self, filter: Filter) -> bool:
        match filter:
            case EqualTo() if isinstance(filter.value, str):
                self._topics.append((filter.value,))
            case In() if all(isinstance(value, str) for value in filter.value):
                self._topics.append(tuple(filter.value))
            case StringStartsWith():
                self._prefixes.append(filter.value)
            case IsNotNull():
                pass  # every event has one
            case _:
                return False
        return True

    def _take_offset(self, filter: Filter) -> bool:
        value = getattr(filter, "value", None)
        if isinstance(filter, IsNotNull):
            return True
        if type(value) is not int:
            return False
        match filter:
            case EqualTo():
                low, high = value, value + 1
            case GreaterThan():
                low, high = value + 1, self.high
            case GreaterThanOrEqual():
                low, high = value, self.high
            case LessThan():
                low, high = self.low, value
            case LessThanOrEqual():
                low, high = self.low, value + 1
            case _:
                return False
        self.low, self.high = max(self.low, low), min(self.high, high)
        return True


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
