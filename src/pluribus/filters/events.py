"""The view of an event that a filter has.

An event is a mapping, a ``msgspec.Struct``, a dataclass or a named tuple, and its fields may be such again. Nothing
else of an object is looked at: no attribute that is not a declared field, no method. So a filter from a stranger runs
no code of the program.

==============================================================  =========================================
a value                                                         is
==============================================================  =========================================
``None``, NaN, ``msgspec.UNSET``, a missing field               null
``bool``                                                        true or false
``int``, ``float``; ``Decimal`` and fractions, as doubles        a number; an ``int`` beyond 64 bits as a double
``datetime`` (UTC where it has no zone), ``date``                a number: seconds since 1970
``timedelta``                                                   a number: seconds
``str``, ``UUID``                                               a text
a member of an enumeration                                      what its value is
anything else: bytes, lists, mappings                           not null, and that is all
==============================================================  =========================================

A field that holds a value of another kind than the filter uses it as is unknown there: ``price > 100`` is neither true
nor false where ``price`` is a text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from numbers import Integral, Real
from typing import Any
from uuid import UUID

import msgspec

from .numbers import NAN
from .tree import Path

TYPES_REMEMBERED_MAX = 1_024
DOCUMENT_STEPS_MAX = 16
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_LARGEST = 1.7976931348623157e308

Read = Callable[[str], Any]


@lru_cache(TYPES_REMEMBERED_MAX)
def declared_fields(kind: Hashable) -> frozenset[str]:
    assert isinstance(kind, type)
    if issubclass(kind, msgspec.Struct):
        return frozenset(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind))
    return frozenset(getattr(kind, "_fields", ())) if issubclass(kind, tuple) else frozenset()


def reader(event: Any) -> Read:
    """A function from a field's name to its value, ``None`` where there is none."""
    if isinstance(event, Mapping):
        return event.get
    known = declared_fields(event.__class__)
    return lambda name: getattr(event, name, None) if name in known else None


def has_field(event: Any, name: str) -> bool:
    return name in (event if isinstance(event, Mapping) else declared_fields(event.__class__))


def inner(value: Any, name: str) -> Any:
    """A field of a field."""
    if value.__class__ is dict:
        return value.get(name)
    return None if value is None else reader(value)(name)


def read_path(event: Any, path: Path) -> Any:
    for name in path:
        event = inner(event, name)
    return event


def number(value: Any) -> float:
    """The number of a value, or NaN if it is none."""
    kind = value.__class__
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return value if INT_MIN <= value <= INT_MAX else _rounded(value)  # as with constants and in databases
    if value is None or kind is bool or kind is str:
        return NAN
    if isinstance(value, Enum):
        return number(value.value)
    if isinstance(value, Integral):
        return number(int(value))
    if isinstance(value, Real | Decimal):
        return _rounded(value)
    if isinstance(value, datetime):
        return value.timestamp() if value.tzinfo else value.replace(tzinfo=UTC).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return value.total_seconds() if isinstance(value, timedelta) else NAN


def _rounded(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # beyond the largest double
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a Decimal that signals that it is not a number
        return NAN


def text(value: Any) -> str | None:
    if value.__class__ is str:
        return value
    if isinstance(value, Enum):
        return text(value.value)
    if isinstance(value, str):
        return str.__str__(value)
    return str(value) if isinstance(value, UUID) else None


def boolean(value: Any) -> bool | None:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Enum):
        return boolean(value.value)
    return bool(value) if type(value).__name__ in ("bool", "bool_") else None  # numpy's own


def absent(value: Any) -> bool:
    """True if a value is null: None, missing, or NaN."""
    if value is None or value is msgspec.UNSET:
        return True
    if isinstance(value, float):
        return value != value
    if isinstance(value, Enum):
        return absent(value.value)
    return isinstance(value, Decimal) and value.is_nan()


def compare_any(operator: str, left: Any, right: Any) -> bool | None:
    """Compare two fields of unknown kind: they are comparable if they are of the same kind."""
    for read in (number, text, boolean):
        ours, others = read(left), read(right)
        if not absent(ours) and not absent(others):
            if read is boolean and operator not in ("=", "<>"):
                return None
            return _COMPARISONS[operator](ours, others)
    return None


def same(left: bool | None, right: bool | None) -> bool | None:
    """True if both conditions are true, or both false."""
    return None if left is None or right is None else left is right


def connected(decided: bool, truths: tuple[bool | None, ...]) -> bool | None:
    """AND, which one that is false decides, or OR, which one that is true decides."""
    if decided in truths:
        return decided
    return None if None in truths else not decided


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def document(event: Any) -> dict[str, Any]:
    """The view of an event that a filter has, as JSON for a column in a database: all four compilations agree on it.

    A value that is neither null, truth, number, text nor an object with fields is kept as ``[]``: it is only known to
    be there.
    """
    return _fields(event, DOCUMENT_STEPS_MAX)


def _fields(event: Any, steps: int) -> dict[str, Any]:
    if isinstance(event, Mapping):
        return {name: _document(value, steps) for name, value in event.items() if isinstance(name, str)}
    return {name: _document(getattr(event, name, None), steps) for name in sorted(declared_fields(event.__class__))}


def _document(value: Any, steps: int) -> Any:
    if absent(value) or (truth := boolean(value)) is not None:
        return None if absent(value) else truth
    if (words := text(value)) is not None:
        return words
    amount = number(value)
    if amount == amount:
        return _number(amount)
    if isinstance(value, Mapping) or declared_fields(value.__class__):
        return _fields(value, steps - 1) if steps else []
    return []


def _number(amount: float) -> float:
    """As JSON can carry it: whole numbers as such, infinity as the largest double, which compares alike."""
    if isinstance(amount, int):
        return amount
    if math.isinf(amount):
        return math.copysign(_LARGEST, amount)
    return int(amount) if amount.is_integer() and abs(amount) < 2**63 else amount
