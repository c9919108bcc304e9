"""Events as columns: types of msgspec to types of Spark and back. ``tables.py`` fills the columns.

The envelope is the same for every event: ``topic``, ``offset``, ``id`` (session and number), ``sender``, ``time``,
``parent``, ``headers``. Beside it stands the body: as bytes in ``body``, with how they are encoded in ``kind``; or, if
its fields are known (from a type or from names), one column a field. An event whose body does not fit is *poison*: it
fails the query, is skipped, or is set aside, which is a row of empty fields with the reason in ``reason`` and the bytes
in ``body``.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
import uuid
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.errors import BadInput
from ..wire.bodies import BYTES, DATA, TEXT, Kind

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ENVELOPE_NAMES = ("topic", "offset", "id", "sender", "time", "parent", "headers")
RESERVED = (*ENVELOPE_NAMES, "kind", "body", "reason")
"""All other columns are fields of the body."""
POISON = ("fail", "skip", "aside")
PACKED = "packed"
"""The column of packed batches."""


def envelope_fields() -> StructType:
    from pyspark.sql.types import LongType, MapType, StringType, StructType, TimestampType

    pair = StructType().add("session", LongType()).add("number", LongType())
    kinds = (StringType(), LongType(), pair, LongType(), TimestampType(), pair, MapType(StringType(), StringType()))
    found = StructType()
    for name, kind in zip(ENVELOPE_NAMES, kinds, strict=True):
        found = found.add(name, kind)
    return found


def packed_fields() -> StructType:
    """Of tables of packed batches."""
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    return StructType().add("topic", StringType()).add("offset", LongType()).add(PACKED, BinaryType())


def told_fields() -> dict[str, DataType]:
    """All columns that are not fields of the body, by name."""
    from pyspark.sql.types import BinaryType, StringType

    envelope = {field.name: field.dataType for field in envelope_fields().fields}
    return {**envelope, "kind": StringType(), "body": BinaryType(), "reason": StringType()}


def checked_schema(schema: StructType) -> StructType:
    """What ``.schema()`` was given, if events can be read so; ``BadInput`` if not."""
    told = told_fields()
    for field in schema.fields:
        if field.name in told and field.dataType.simpleString() != told[field.name].simpleString():
            raise BadInput(
                f"the schema has {field.name!r} as {field.dataType.simpleString()}: of an event it is "
                f"{told[field.name].simpleString()}; leave it out, or read the field of that name from 'body'"
            )
        if field.name not in told:
            _check_readable(field.dataType, field.name)
    return schema


def _check_readable(kind: DataType, where: str) -> None:
    from pyspark.sql import types as T

    plain = (T.BooleanType, T.IntegralType, T.FloatType, T.DoubleType, T.DecimalType, T.StringType, T.BinaryType)
    if isinstance(kind, T.ArrayType):
        _check_readable(kind.elementType, where)
    elif isinstance(kind, T.MapType):
        _check_readable(kind.keyType, where)
        _check_readable(kind.valueType, where)
    elif isinstance(kind, T.StructType):
        for field in kind.fields:
            _check_readable(field.dataType, f"{where}.{field.name}")
    elif not isinstance(kind, (*plain, T.DateType, T.TimestampType, T.TimestampNTZType)):
        raise BadInput(f"the schema has {where!r} as {kind.simpleString()}, which no body holds: use a plain type")


_KINDS = {BYTES: "bytes", TEXT: "text", DATA: "data"}


def name_of_kind(kind: Kind) -> str:
    """How a body was encoded, as a column tells it: ``bytes``, ``text``, ``data``, or ``type NAME``."""
    return f"type {kind}" if isinstance(kind, str) else _KINDS.get(kind, f"kind {kind}")


def kind_of_name(name: str) -> Kind:
    if name.startswith("type "):
        return name.removeprefix("type ")
    found = next((kind for kind, known in _KINDS.items() if known == name), None)
    if found is None:
        raise BadInput(f"there is no kind of body {name!r}: use {', '.join(_KINDS.values())} or 'type NAME'")
    return found


_PLAIN: dict[str, Any] = {
    "boolean": bool,
    "bigint": int,
    "long": int,
    "double": float,
    "string": str,
    "binary": bytes,
    "timestamp": datetime.datetime,
    "date": datetime.date,
}


def named_fields(text: str) -> StructType:
    """The columns of ``price double, symbol string``; also ``array<...>`` of these."""
    from pyspark.sql.types import ArrayType, StructType

    found = StructType()
    for part in text.split(","):
        name, _, kind = part.strip().partition(" ")
        kind = kind.strip().lower()
        inner = kind.removeprefix("array<").removesuffix(">") if kind.startswith("array<") else kind
        if not name.isidentifier() or inner not in _PLAIN:
            raise BadInput(
                f"option fields has {part.strip()!r}: write a name and one of {', '.join(_PLAIN)}, or array<...> of it"
            )
        plain = spark_type(_PLAIN[inner], name)
        found = found.add(name, ArrayType(plain) if inner != kind else plain)
    return found


def import_type(name: str) -> type:
    """The class that ``module:Class`` names; executors import it as the driver does."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"there is no type {name!r} ({error}): write module:Class, as Python imports it") from None
    if not isinstance(found, type):
        raise BadInput(f"{name!r} is no class: name a msgspec.Struct or a dataclass")
    return found


def spark_fields(kind: type) -> StructType:
    """The columns of a type: one for each of its fields, named as it travels (``rename=``)."""
    from pyspark.sql.types import StructField, StructType

    try:
        if not (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)):
            raise TypeError
        hints = typing.get_type_hints(kind)
    except TypeError:
        raise BadInput(f"{kind!r} has no fields: name a msgspec.Struct or a dataclass") from None
    if issubclass(kind, msgspec.Struct):
        names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    else:
        names = {field.name: field.name for field in dataclasses.fields(kind)}
    columns = [
        StructField(travels, spark_type(hints[name], f"{kind.__name__}.{name}")) for name, travels in names.items()
    ]
    return StructType(columns)


def spark_type(hint: Any, where: str = "it") -> DataType:
    """Spark's type for a type of Python. ``BadInput`` for a type that no column holds."""
    from pyspark.sql import types as T

    hint = _without_none(hint)
    plain = {
        bool: T.BooleanType(),
        int: T.LongType(),
        float: T.DoubleType(),
        str: T.StringType(),
        bytes: T.BinaryType(),
        datetime.datetime: T.TimestampType(),
        datetime.date: T.DateType(),
        decimal.Decimal: T.StringType(),  # as it travels
        uuid.UUID: T.StringType(),
    }
    if hint in plain:
        return plain[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, set, frozenset) and arguments:
        return T.ArrayType(spark_type(arguments[0], where))
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return T.ArrayType(spark_type(arguments[0], where))
    if origin is dict and arguments and arguments[0] is str:
        return T.MapType(T.StringType(), spark_type(arguments[1], where))
    if origin is typing.Annotated:
        return spark_type(arguments[0], where)
    if origin is typing.Literal and len({type(value) for value in arguments}) == 1:
        return spark_type(type(arguments[0]), where)
    if isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint)):
        return spark_fields(hint)
    raise BadInput(f"{where} is of type {hint!r}, which no column of Spark holds: use plain types, lists and structs")


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        return rest[0] if len(rest) == 1 else hint
    return hint


def arrow_schema(schema: StructType) -> Any:
    return _arrow_schema_of(schema.json())


@cache
def _arrow_schema_of(text: str) -> Any:
    import json

    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(json.loads(text)), timezone="UTC")
