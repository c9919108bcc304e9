"""Columns of Spark as a pattern reads them, and measures as columns of Spark.

A filter sees numbers, texts, and true or false; times are seconds since 1970. So timestamps, dates and decimals become
doubles on the way to the workers, and measures that are times become timestamps again on the way back. Whole numbers
that may be null travel as texts: pandas would make doubles of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import BadInput
from ..filters.numbers import kind_of
from ..filters.tree import Field, Kind, Node, Path
from ..patterns import Pattern
from ..patterns.references import meaning

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import DataType, StructType

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz", "date")


class Column(NamedTuple):
    path: Path
    kind: str
    """Spark's name of its type."""
    whole: bool
    """Whether it travels as a text and is a whole number."""
    carried: str
    """The type of a key on its way back."""

    def read(self) -> SparkColumn:
        from pyspark.sql import functions as f

        column = f.col(".".join(f"`{name}`" for name in self.path))
        if self.whole:
            return column.cast("string")
        if self.kind in _TIMES:
            return f.unix_micros(column.cast("timestamp")) / 1_000_000
        if self.kind == "string" or self.kind == "boolean":
            return column
        # To a filter, what is not a number is null.
        return f.nanvl(column.cast("double"), f.lit(None)) if self.carried == "double" else column.cast("string")


def column_of(schema: StructType, path: Path, key: bool = False) -> Column:
    """Raises ``BadInput`` where there is no such column, or none that a condition can read."""
    kind = _type(schema, path).simpleString()
    if kind in _WHOLE:
        return Column(path, kind, True, "bigint")
    if kind in (*_TIMES, "float", "double"):
        return Column(path, kind, False, "double")
    if kind in ("string", "boolean"):
        return Column(path, kind, False, kind)
    if kind.startswith("decimal"):
        return Column(path, kind, False, "string" if key else "double")
    if kind.startswith(("varchar", "char")):
        return Column(path, "string", False, "string")
    raise BadInput(f"the column {'.'.join(path)} is {kind}, which no condition can read: use one that is a plain value")


def _type(schema: StructType, path: Path) -> DataType:
    from pyspark.sql.types import StructType

    found: Any = schema
    for number, name in enumerate(path):
        if not isinstance(found, StructType) or name not in found.names:
            beside = ", ".join(found.names) if isinstance(found, StructType) else "none"
            missing = ".".join(path[: number + 1])
            raise BadInput(f"the table has no column {missing}: it has {beside}")
        found = found[name].dataType
    kind: DataType = found
    return kind


def measure_type(value: Node, schema: StructType, pattern: Pattern) -> str:
    """Spark's name of the type that a measure has."""
    if isinstance(value, Field):
        means = meaning(value, pattern.names)
        match means.function:
            case "COUNT" | "MATCH_NUMBER":
                return "bigint"
            case "SUM" | "AVG":
                return "double"
            case "CLASSIFIER":
                return "string"
        return column_of(schema, means.path).kind
    match kind_of(value):
        case Kind.NUMBER:
            return "double"
        case Kind.TEXT:
            return "string"
    return "boolean"


def outer(kind: str) -> str:
    """The type in which a value of a type leaves a worker."""
    if kind in _WHOLE:
        return "bigint"
    return kind if kind in ("string", "boolean") else "double"


def restored(column: SparkColumn, kind: str) -> SparkColumn:
    """A value that came from a worker, as of its own type again."""
    from pyspark.sql import functions as f

    if kind in _TIMES:
        moment = f.timestamp_micros(f.round(column * 1_000_000).cast("long"))
        return moment.cast(kind)
    return column.cast(kind)
