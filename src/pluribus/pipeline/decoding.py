"""``decode``: bodies that are bytes in a table become columns, in Spark.

A table that was read without ``type`` or ``fields``, or an archive, has ``kind`` and ``body``. ``decode`` puts the
fields of the bodies in their place. It runs in executors, on Arrow batches (``mapInArrow``), with the decoder of the
source itself, so a body that the source calls poison is poison here too. Tables and streams alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import BadInput
from .columns import POISON, RESERVED, arrow_schema, import_type, named_fields, spark_fields
from .tables import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PLAIN = "bytes"


def body_fields(fields: str = "", type: str = "") -> StructType:
    """The columns of bodies: of ``symbol string, price double``, or of ``module:Class``."""
    if bool(fields) == bool(type):
        raise BadInput("decode() needs the fields of the bodies: give fields='price double, …' or type='module:Class'")
    found = spark_fields(import_type(type)) if type else named_fields(fields)
    taken = [name for name in found.names if name in RESERVED]
    if taken:
        raise BadInput(f"the field {taken[0]!r} is a name of the envelope: read the body as bytes and rename it")
    return found


def decode(df: DataFrame, *, fields: str = "", type: str = "", poison: str = "fail") -> DataFrame:
    """The table with one column for each field in the place of ``kind`` and ``body``.

    An event whose body does not fit fails the query, is skipped, or is set ``aside``: a row of empty fields with the
    reason in ``reason`` and its bytes in ``body``, as with the source's option ``poison``.
    """
    from pyspark.sql.types import BinaryType, StringType, StructType

    if poison not in POISON:
        raise BadInput(f"poison={poison!r} is none of {', '.join(POISON)}: choose one of them")
    if "body" not in df.columns:
        raise BadInput("the table has no column 'body': read the topic or the archive without fields")
    wanted = body_fields(fields, type)
    kept = [field for field in df.schema.fields if field.name not in ("kind", "body")]
    clash = [field.name for field in kept if field.name in wanted.names]
    if clash:
        raise BadInput(f"the table has a column {clash[0]!r} beside the field of that name: drop it first")
    schema = StructType([*kept, *wanted.fields])
    if poison == "aside":
        schema = schema.add("reason", StringType()).add("body", BinaryType())
    return df.mapInArrow(Decoder(Shape(wanted, wanted.names, poison), schema, poison).decoded, schema)


class Decoder(NamedTuple):
    """In executors. Travels there by its name and these values."""

    shape: Shape
    schema: StructType
    poison: str

    def decoded(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        told = arrow_schema(self.schema)
        for batch in batches:
            if not batch.num_rows:
                continue
            given = dict(zip(batch.schema.names, batch.columns, strict=True))
            fields, reasons = self.shape.decoded(given["body"].to_pylist(), plainly(given.get("kind")))
            columns = {**given, **fields}
            why = pa.array(reasons, pa.string()) if reasons else pa.nulls(batch.num_rows, pa.string())
            columns["reason"] = why
            columns["body"] = pc.if_else(pc.is_null(why), pa.scalar(None, pa.binary()), given["body"])
            arrays = [columns[field.name].cast(field.type) for field in told]
            found = pa.RecordBatch.from_arrays(arrays, schema=told)
            yield found.filter(pc.is_null(why)) if self.poison == "skip" and reasons else found


def plainly(kinds: Any) -> bool:
    """Whether some bodies were published as bytes; also if nobody says."""
    import pyarrow.compute as pc

    return kinds is None or pc.any(pc.equal(kinds, PLAIN)).as_py() is not False
