"""``spark.read.format("pluribus").option("trace", PATH)``: what members of runs did and saw, as a table.

PATH is a Parquet file of a trace, or a file that one member wrote (an observer's ``.history``, a ``.trace`` of
``connect(trace=)``), or a folder of such files. A task takes one group of rows of a Parquet file, or one file of a
member; a ``.trace`` is run again there, in the executor. The columns are those of ``traces.py``. In what one member
wrote, ``run`` is ``real`` and ``place`` counts its own rows. ``pluribus pipeline conformance`` puts several of them
into one order, in ``real.parquet`` beside them, which is not read again here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..core.errors import BadInput
from .traces import REAL, arrow, history_in, rows_table, schema, written_by_members

PARQUET_SUFFIX = ".parquet"


class Piece(InputPartition):
    """A file, and which group of its rows; -1: what a member wrote, all of it."""

    def __init__(self, path: str, group: int) -> None:
        self.path = path
        self.group = group


class TraceReader(DataSourceReader):
    """``partitions`` runs beside the driver, ``read`` in executors; both must see the same files."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        self._path = Path(path).absolute()
        self._columns = list(columns)

    def partitions(self) -> Sequence[InputPartition]:
        pa = arrow()
        files = sorted(self._path.glob(f"*{PARQUET_SUFFIX}")) if self._path.is_dir() else [self._path]
        members = written_by_members(self._path) if self._path.exists() else []
        tables = [path for path in files if path.suffix == PARQUET_SUFFIX and path.is_file()]
        tables = [path for path in tables if not members or path.stem != REAL]
        if not tables and not members:
            raise BadInput(f"{self._path} holds no trace: 'pluribus sim SCENARIO --history DIR' writes one")
        try:
            groups = [
                Piece(str(path), group)
                for path in tables
                for group in range(pa.parquet.ParquetFile(path).metadata.num_row_groups)
            ]
        except (OSError, pa.ArrowInvalid) as error:
            raise BadInput(f"{self._path} is no trace ({error}): write one with --history DIR") from None
        return [*groups, *(Piece(str(path), -1) for path in members)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Piece)
        pa = arrow()
        if partition.group < 0:
            table = rows_table(REAL, 0, history_in(partition.path))
        else:
            try:
                table = pa.parquet.ParquetFile(partition.path).read_row_group(partition.group, columns=self._columns)
            except KeyError as error:
                raise BadInput(f"{partition.path} is no trace, it has no column {error}: use --history DIR") from None
        yield from (
            table.select(self._columns).cast(pa.schema([schema().field(name) for name in self._columns])).to_batches()
        )


def trace_fields() -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(schema())
    return found
