"""How a tuple travels and is kept: each field as the name of its type and its bytes.

Two values are equal in a space if they are of the same type and have the same bytes. So a server, a keeper or a replica
can compare values of classes that it does not know, and ``1``, ``1.0`` and ``True`` are three values. Dictionaries and
sets are put in order first. Nothing is pickled.

An *entry* is an instance of a registered class (``pluribus.register``): its fields have names, and ``of`` is its class
followed by the registered classes that it comes from, so that a template of a base class matches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from ..core.errors import BadBody, BadInput, MalformedFrame, TooLarge
from ..wire.bodies import Opaque, array_header, decode_bodies, registered_name, type_of

TUPLE_BYTES_MAX = 1 << 20
"""Bytes of one encoded tuple. Tuples are matched by content, so all of it is in memory."""
FIELDS_MAX = 255
CLASS = "@"
"""The prefix of the name of a registered class, where types are named."""
BASE = "<"
"""Between the name of a class and that of its base."""


class FieldValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value: the type's name and the bytes."""

    kind: str
    raw: bytes


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A tuple, or an entry if ``of`` names its class; then its fields have ``names``."""

    fields: tuple[FieldValue, ...]
    of: str = ""
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Its size in bytes, about."""
        size = 64
        for field in self.fields:
            size += len(field.raw) + len(field.kind)
        return size


def _hook(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is unknown to the wire")


_encode = msgspec.msgpack.Encoder(enc_hook=_hook, order="deterministic").encode
_decode = msgspec.msgpack.Decoder().decode

PLAIN: dict[type, str] = {
    type(None): "none",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    datetime: "datetime",
    list: "list",
    dict: "dict",
    tuple: "tuple",
    set: "set",
    frozenset: "set",
}
"""Types that every program knows."""


def _set_of(values: Any) -> frozenset[Any]:
    """Tuples travel as lists, and a set can hold no lists."""
    try:
        return frozenset(map(_hashable, values))
    except TypeError as error:
        raise MalformedFrame(f"a set that cannot be one here: {error}") from None


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if value.__class__ is list else value


_MADE_OF: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": _set_of}


def kind_of(cls: type) -> str | None:
    """The name of a type in a space; None if its values cannot be in one."""
    plain = PLAIN.get(cls)
    return plain if plain is not None else _class_name(cls)


def _class_name(cls: type) -> str | None:
    if registered_name(cls) is None:
        return None
    names = [name for one in cls.__mro__ if (name := registered_name(one)) is not None]
    if any(BASE in name for name in names):
        raise BadInput(f"a class in a space cannot have {BASE!r} in its registered name: register {names} anew")
    return CLASS + BASE.join(names)


def field_of(value: Any) -> FieldValue:
    """Encode a value. ``BadBody`` names the part that cannot be encoded, and the remedy."""
    kind = PLAIN.get(value.__class__)
    if kind is None:
        kind = _class_name(value.__class__)
        if kind is None:
            raise _unsendable(value)
    if kind == "datetime" and value.tzinfo is None:
        raise BadBody(f"{value!r} has no time zone, and would be another moment elsewhere: give it one")
    try:
        return FieldValue(kind, _encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        what = type(value).__name__
        raise BadBody(f"a {what} cannot travel ({error}): write bytes, text, data or a registered type") from None


def _unsendable(value: Any) -> BadBody:
    name = type(value).__name__
    if isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return BadBody(f"{name} is not registered: call pluribus.register({name}) first")
    if isinstance(value, type) or value is Ellipsis:
        return BadBody(f"{value!r} stands for values and is none: it belongs in a template, not in a tuple")
    return BadBody(f"a {name} cannot travel: write bytes, text, data or a registered type")


def value_of(field: FieldValue) -> Any:
    """Decode a value; ``Opaque`` if its class is not registered here."""
    kind = field.kind
    if kind[0] != CLASS:
        made = _MADE_OF.get(kind)
        return _decode(field.raw) if made is None else made(_decode(field.raw))
    name = kind[1:].partition(BASE)[0]
    return decode_bodies(name, msgspec.Raw(array_header(1) + field.raw), 1)[0]


def plain_of(field: FieldValue) -> Any:
    """The value that a condition sees: an object of a class as a mapping of its fields."""
    return _decode(field.raw)


def item_of(written: Any) -> Item:
    """Encode a tuple or an entry. ``BadInput`` for any other object, ``BadBody`` for a value that cannot be encoded."""
    if written.__class__ is tuple or written.__class__ is list:
        if not written:
            raise BadInput("a tuple of no fields cannot be found again: give it at least one")
        item = Item(tuple(map(field_of, written)))
    else:
        of = _class_name(written.__class__) if not isinstance(written, type) else None
        if of is None:
            if isinstance(written, msgspec.Struct) or dataclasses.is_dataclass(written):
                raise _unsendable(written)
            raise BadInput(f"{written!r} is no tuple and no entry: write a tuple, or an object of a registered class")
        names = field_names(written.__class__)
        item = Item(tuple(field_of(getattr(written, name)) for name in names), of, names)
    if len(item.fields) > FIELDS_MAX:
        raise TooLarge(f"a tuple of {len(item.fields)} fields: at most {FIELDS_MAX}, put some together")
    if item.size > TUPLE_BYTES_MAX:
        raise TooLarge(
            f"a tuple of {item.size:,} bytes exceeds {TUPLE_BYTES_MAX:,}: keep the body elsewhere and write its name"
        )
    return item


@lru_cache(maxsize=4_096)
def field_names(cls: type) -> tuple[str, ...]:
    """The fields of a registered class, in their order."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]


def written_of(item: Item) -> Any:
    """Decode a tuple or an entry. An entry of a class that is not registered here is an ``Opaque``."""
    if not item.of:
        return tuple(map(value_of, item.fields))
    name = item.of[1:].partition(BASE)[0]
    cls = type_of(name)
    values = {name: value_of(field) for name, field in zip(item.names, item.fields, strict=True)}
    if cls is None:
        return Opaque(name, _encode({key: _opaque(value) for key, value in values.items()}))
    try:
        return cls(**{name: value for name, value in values.items() if name in field_names(cls)})
    except Exception as error:  # noqa: BLE001 - the __post_init__ of a registered class may raise anything
        raise MalformedFrame(f"an entry that is no {name!r} of this program: {error}") from None


def _opaque(value: Any) -> Any:
    return value.encoded if isinstance(value, Opaque) else value


def is_of(kind: str, wanted: str) -> bool:
    """True if a type is the wanted one, or a class that comes from it."""
    if kind == wanted:
        return True
    if not kind or kind[0] != CLASS or wanted[0] != CLASS:
        return False
    return wanted[1:].partition(BASE)[0] in kind[1:].split(BASE)


def condition_view(item: Item) -> dict[str, Any]:
    """The fields that a condition sees: those of an entry by name, those of a tuple as ``f0``, ``f1``, …"""
    names: Sequence[str] = item.names or [f"f{at}" for at in range(len(item.fields))]
    return {name: plain_of(field) for name, field in zip(names, item.fields, strict=True)}
