"""A batch of events, read by fields: each field once for all events, and only the fields that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..events import INT_MAX, INT_MIN, absent, boolean, number, read_path, text
from ..tree import Path
from .conjunctions import Coordinate, Form
from .slots import Floats

T = TypeVar("T")

_NUMBERS = {int, float, type(None)}
_PLAIN = {int, float, str, type(None)}


class Batch:
    def __init__(self, events: Sequence[Any]) -> None:
        self.events = events
        self._plain = set(map(type, events)) == {dict}
        self._values: dict[Path, list[Any]] = {}

    def values(self, path: Path) -> list[Any]:
        known = self._values.get(path)
        if known is None:
            if self._plain and len(path) == 1:
                name = path[0]
                known = [event.get(name) for event in self.events]
            else:
                known = [read_path(event, path) for event in self.events]
            self._values[path] = known
        return known

    def look_up(self, coordinate: Coordinate, table: Mapping[Any, T]) -> list[T | None]:
        """For every event what the table has for its value; keys are of the coordinate's form."""
        values = self.values(coordinate.path)
        kinds = set(map(type, values))
        if not kinds <= _PLAIN or (coordinate.form is Form.NUMBER and int in kinds and any(map(_is_long, values))):
            values = [number(value) if coordinate.form is Form.NUMBER else text(value) for value in values]
        return [table.get(value) for value in values]

    def coordinates(self, coordinate: Coordinate, codes: Mapping[str, int]) -> Floats:
        """NaN where an event has none. ``codes`` are the coordinates of texts; texts without a code are at -1."""
        values = self.values(coordinate.path)
        match coordinate.form:
            case Form.NUMBER:
                if set(map(type, values)) <= _NUMBERS:
                    try:
                        return np.array(values, np.float64)
                    except OverflowError:
                        pass
                return np.array([_double(number(value)) for value in values])
            case Form.TEXT:
                texts = [text(value) for value in values]
                return np.array([np.nan if known is None else codes.get(known, -1) for known in texts], np.float64)
            case Form.TRUTH:
                return np.array([boolean(value) for value in values], np.float64)
            case Form.PRESENCE:
                return np.array([0.0 if absent(value) else 1.0 for value in values])


def _is_long(value: Any) -> bool:
    return type(value) is int and not INT_MIN <= value <= INT_MAX


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
