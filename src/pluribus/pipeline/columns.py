"""Events as columns: types of msgspec to types of Spark and back, packed batches to Arrow, Arrow to bodies.

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
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.errors import BadBody, BadInput
from ..pubsub.durable.batch import Batch
from ..wire.bodies import BYTES, DATA, TEXT, Kind

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ENVELOPE_NAMES = ("topic", "offset", "id", "sender", "time", "parent", "headers")
POISON = ("fail", "skip", "aside")
_decode = msgspec.msgpack.Decoder().decode


def envelope_fields() -> StructType:
    from pyspark.sql.types import LongType, MapType, StringType, StructType, TimestampType

    pair = StructType().add("session", LongType()).add("number", LongType())
    kinds = (StringType(), LongType(), pair, LongType(), TimestampType(), pair, MapType(StringType(), StringType()))
    found = StructType()
    for name, kind in zip(ENVELOPE_NAMES, kinds, strict=True):
        found = found.add(name, kind)
    return found


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
    """The columns of a type: one for each of its fields."""
    from pyspark.sql.types import StructField, StructType

    try:
        if not (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)):
            raise TypeError
        hints = typing.get_type_hints(kind)
    except TypeError:
        raise BadInput(f"{kind!r} has no fields: name a msgspec.Struct or a dataclass") from None
    names = [
        field.name
        for field in (msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else dataclasses.fields(kind))
    ]
    return StructType([StructField(name, spark_type(hints[name], f"{kind.__name__}.{name}")) for name in names])


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


class Shape:
    """How events become rows: which columns, and what is done with poison. Travels to executors."""

    def __init__(self, schema: StructType, fields: Sequence[str], poison: str, kind: str = "") -> None:
        self.fields = tuple(fields)
        self.poison = poison
        self.names = tuple(schema.names)
        self._schema = schema
        self._kind = kind

    @property
    def needs_bodies(self) -> bool:
        return bool(self.fields) or "body" in self.names

    def table(self, batch: Batch) -> Any:
        """One packed batch as an Arrow record batch of these columns; None if poison was all there was."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = envelope(batch, self.names)
        rows: list[Any] = []
        if self.needs_bodies:
            columns["body"] = bodies(batch)
        if self.fields:
            rows, reasons = self._decoded(batch)
            for name in self.fields:
                columns[name] = rows_column(rows, name, _arrow_type(self._schema, name))
            columns["reason"] = pa.array(reasons, pa.string())
            if self.poison == "aside":
                bad = pa.array([reason is not None for reason in reasons])
                columns["body"] = pc.if_else(bad, columns["body"], pa.scalar(None, pa.binary()))
        found = pa.RecordBatch.from_arrays([columns[name] for name in self.names], schema=_arrow_schema(self._schema))
        if self.fields and self.poison == "skip" and any(reason is not None for reason in reasons):
            found = found.filter(pa.array([reason is None for reason in reasons]))
        return found if found.num_rows else None

    def _decoded(self, batch: Batch) -> tuple[list[Any], list[str | None]]:
        """Bodies as plain dictionaries, and the reason of each that is none."""
        try:
            found = batch.plain() if batch.kind != BYTES else [_decode(body) for body in batch.decoded()]
            if all(type(body) is dict for body in found) and self._fit(found):
                return found, [None] * len(found)
        except (msgspec.MsgspecError, BadBody, ValueError):
            pass  # looked at one by one below
        return self._one_by_one(batch)

    def _fit(self, found: list[Any]) -> bool:
        try:
            for name in self.fields:
                rows_column(found, name, _arrow_type(self._schema, name))
        except (TypeError, ValueError, OverflowError):
            return False
        return True

    def _one_by_one(self, batch: Batch) -> tuple[list[Any], list[str | None]]:
        data, ends = batch.bodies, batch.ends.tolist()
        found: list[Any] = []
        reasons: list[str | None] = []
        for place, offset in enumerate(batch.offsets.tolist()):
            reason = None
            body: Any = {}
            try:
                body = _decode(data[ends[place] : ends[place + 1]])
                if type(body) is not dict:
                    reason = f"its body is of type {type(body).__name__} and has no fields"
                elif not self._fit([body]):
                    reason = f"its fields are not {self._said()}"
            except (msgspec.MsgspecError, ValueError) as error:
                reason = f"its body does not decode: {error}"
            if reason is not None and self.poison == "fail":
                raise BadInput(
                    f"event {offset} of {batch.topic!r} is poison, {reason}: set it aside with option poison='aside'"
                )
            found.append({} if reason is not None else body)
            reasons.append(reason)
        return found, reasons

    def _said(self) -> str:
        return ", ".join(f"{name} {self._schema[name].dataType.simpleString()}" for name in self.fields)


def rows_column(rows: Sequence[Any], name: str, kind: Any) -> Any:
    import pyarrow as pa

    return pa.array([row.get(name) for row in rows], kind)


def envelope(batch: Batch, names: Sequence[str]) -> dict[str, Any]:
    """The columns of the envelope that are wanted, of the packed columns themselves where that is possible."""
    import numpy as np
    import pyarrow as pa

    count, head = len(batch), batch.head
    found: dict[str, Any] = {}
    wanted = set(names)
    if "topic" in wanted:
        found["topic"] = pa.repeat(pa.scalar(batch.topic), count)
    if "kind" in wanted:
        found["kind"] = pa.repeat(pa.scalar(name_of_kind(batch.kind)), count)
    if "offset" in wanted:
        found["offset"] = pa.array(batch.offsets)
    if "id" in wanted:
        session = pa.array(np.full(count, head.session, "i8"))
        found["id"] = pa.StructArray.from_arrays([session, pa.array(batch.sequences)], ["session", "number"])
    if "sender" in wanted:
        found["sender"] = pa.array(np.full(count, head.sender, "i8"))
    if "time" in wanted:
        found["time"] = pa.array(batch.times).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    if wanted & {"parent", "headers"}:
        extra = batch.extra if head.extra_bytes else None
        pair = pa.struct([("session", pa.int64()), ("number", pa.int64())])
        parents = [p and {"session": p[0], "number": p[1]} for p in extra.parents] if extra and extra.parents else None
        found["parent"] = pa.array(parents, pair) if parents else pa.nulls(count, pair)
        mapped = pa.map_(pa.string(), pa.string())
        said = [h and [(k, str(v)) for k, v in h.items()] for h in extra.headers] if extra and extra.headers else None
        found["headers"] = pa.array(said, mapped) if said else pa.nulls(count, mapped)
    return found


def bodies(batch: Batch) -> Any:
    """All bodies without a copy: the packed ends are the offsets of an Arrow binary array."""
    import pyarrow as pa

    ends, data = pa.py_buffer(batch.ends), pa.py_buffer(batch.bodies)
    return pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, ends, data])


def _arrow_schema(schema: StructType) -> Any:
    return _arrow_schema_of(schema.json())


@cache
def _arrow_schema_of(text: str) -> Any:
    import json

    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(json.loads(text)), timezone="UTC")


def _arrow_type(schema: StructType, name: str) -> Any:
    return _arrow_schema(schema).field(name).type
