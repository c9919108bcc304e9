"""The fields that a type of event has, so that a filter is checked before the first event comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import inspect

from ..core.errors import BadInput
from .tree import Kind, Path

_KINDS: dict[type, Kind] = {
    inspect.BoolType: Kind.BOOLEAN,
    inspect.IntType: Kind.NUMBER,
    inspect.FloatType: Kind.NUMBER,
    inspect.DecimalType: Kind.NUMBER,
    inspect.DateTimeType: Kind.NUMBER,
    inspect.DateType: Kind.NUMBER,
    inspect.TimeDeltaType: Kind.NUMBER,
    inspect.StrType: Kind.TEXT,
    inspect.UUIDType: Kind.TEXT,
}
_HAS_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType, inspect.TypedDictType)
_OPEN = (inspect.AnyType, inspect.DictType)


class Schema:
    """Made of a ``msgspec.Struct``, a dataclass, a named tuple or a typed dictionary."""

    def __init__(self, kind: type) -> None:
        try:
            self._root: inspect.Type = inspect.type_info(kind)
        except TypeError as error:
            raise BadInput(f"{kind!r} tells no fields ({error}): use a struct, a dataclass or a typed dict") from None
        self.name = kind.__name__

    def kind(self, path: Path) -> Kind | None:
        """``ANY`` where the type leaves it open, or for a composite value; ``None`` if there is no such field."""
        types: list[inspect.Type] = [self._root]
        for name in path:
            if any(isinstance(known, _OPEN) for known in types):
                return Kind.ANY
            types = _step(types, name)
            if not types:
                return None
        kinds = {_kind(known) for known in types if not isinstance(known, inspect.NoneType)}
        return kinds.pop() if len(kinds) == 1 else Kind.ANY

    def beside(self, path: Path) -> list[str]:
        """The names beside the last one of the path."""
        types: list[inspect.Type] = [self._root]
        for name in path[:-1]:
            types = _step(types, name)
        return sorted({field.name for known in types if isinstance(known, _HAS_FIELDS) for field in known.fields})


def _step(types: list[inspect.Type], name: str) -> list[inspect.Type]:
    return [
        inner
        for known in types
        if isinstance(known, _HAS_FIELDS)
        for field in known.fields
        if field.name == name
        for inner in _alternatives(field.type)
    ]


def _alternatives(known: inspect.Type) -> Iterable[inspect.Type]:
    return known.types if isinstance(known, inspect.UnionType) else (known,)


def _kind(known: inspect.Type) -> Kind:
    values: tuple[Any, ...] = ()
    if isinstance(known, inspect.EnumType):
        values = tuple(member.value for member in known.cls)
    elif isinstance(known, inspect.LiteralType):
        values = tuple(known.values)
    if values:
        kinds = {_kind(inspect.type_info(type(value))) for value in values if value is not None}
        return kinds.pop() if len(kinds) == 1 else Kind.ANY
    return _KINDS.get(type(known), Kind.ANY)
