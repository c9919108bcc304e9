"""From events to rows: the time, the tie-breaker between equal times, the partition, and the columns of a pattern."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

from ..core.errors import BadInput
from ..filters.events import boolean, declared_fields, number, read_path, text
from ..filters.tree import Path
from .pattern import Pattern
from .references import Row

Key = tuple[Any, ...]


class Misfit(BadInput):
    """An event without a place: it has no time, or its partition cannot be determined."""


def order_value(value: Any) -> list[Any]:
    """A sortable value: nulls first, then truth, numbers, texts."""
    if (truth := boolean(value)) is not None:
        return [1, truth]
    amount = number(value)
    if amount == amount:
        return [2, amount]
    words = text(value)
    return [0] if words is None else [3, words]


class Rows:
    """Makes rows of the events of one pattern."""

    def __init__(self, pattern: Pattern) -> None:
        clauses = pattern.clauses
        self._paths: tuple[Path, ...] = (*clauses.order, *clauses.partition, *pattern.columns)
        self._keys_from = len(clauses.order)
        self._columns_from = self._keys_from + len(clauses.partition)
        self._whole = clauses.all_rows
        self._time = ".".join(clauses.order[0])
        self._from_type: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
        self._simple = all(len(path) == 1 for path in self._paths)

    def row(self, event: Any) -> tuple[Key, Row]:
        """Raises ``Misfit``."""
        kind = event.__class__
        read = self._from_type.get(kind) or self._reader(kind)
        try:
            values = read(event)
        except (KeyError, AttributeError):
            values = self._read_slowly(event)
        return self.of_values(values, event if self._whole else None)

    def of_values(self, values: tuple[Any, ...], event: Any) -> tuple[Key, Row]:
        """A row of the values that ``order``, ``partition`` and ``columns`` name, in this order."""
        time = values[0]
        if time.__class__ is not float:
            time = number(time)
        if not math.isfinite(time):
            raise Misfit(f"{self._time} is {values[0]!r}, no time: ORDER BY needs a number or a time")
        keys_from = self._keys_from
        key = values[keys_from : self._columns_from]
        tie = [order_value(value) for value in values[1:keys_from]] if keys_from > 1 else None
        return key, (time, tie, event, *values[self._columns_from :])

    def _reader(self, kind: type) -> Callable[[Any], tuple[Any, ...]]:
        read = self.quick_reader(kind) or self._read_slowly
        self._from_type[kind] = read
        return read

    def _read_slowly(self, event: Any) -> tuple[Any, ...]:
        return tuple(read_path(event, path) for path in self._paths)

    def quick_reader(self, kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
        """For types that declare all fields, and for dictionaries, which may miss one: then it raises ``KeyError``."""
        names = [path[0] for path in self._paths]
        if self._simple and issubclass(kind, dict):
            return _as_tuple(itemgetter(*names), len(names))
        if self._simple and declared_fields(kind) >= set(names):
            return _as_tuple(attrgetter(*names), len(names))
        return None


def _as_tuple(getter: Callable[[Any], Any], count: int) -> Callable[[Any], tuple[Any, ...]]:
    return getter if count > 1 else lambda event: (getter(event),)
