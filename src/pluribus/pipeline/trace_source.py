"""``spark.read.format("pluribus").option("trace", PATH)``: the actions and observations of members of runs, as a table.

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
    """A file, and which of its groups of rows, or which of the rows that a member wrote; without ``stop``, all."""

    def __init__(self, path: str, start: int = 0, stop: int | None = None) -> None:
        self.path = path
        self.start = start
        self.stop = stop


class Tracing:
    """The common part of batches and streams."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        self._path = Path(path).absolute()
        self._columns = list(columns)

    def _files(self) -> tuple[list[Path], list[Path]]:
        """Parquet files, and files that members wrote."""
        if not self._path.exists():
            return [], []
        files = sorted(self._path.glob(f"*{PARQUET_SUFFIX}")) if self._path.is_dir() else [self._path]
        members = written_by_members(self._path)
        tables = [path for path in files if path.suffix == PARQUET_SUFFIX and path.is_file()]
        return [path for path in tables if not members or path.stem != REAL], members

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor: the rows of a piece as Arrow record batches."""
        if not isinstance(partition, Piece):
            return  # there is nothing to read
        pa = arrow()
        for table in _tables(partition, self._columns):
            wanted = pa.schema([schema().field(name) for name in self._columns])
            yield from table.select(self._columns).cast(wanted).to_batches()


def _tables(piece: Piece, columns: list[str]) -> Iterator[Any]:
    path = Path(piece.path)
    if path.suffix != PARQUET_SUFFIX:
        yield rows_table(REAL, piece.start, history_in(path, piece.start, piece.stop))
        return
    file = arrow().parquet.ParquetFile(path)
    for group in range(piece.start, file.num_row_groups if piece.stop is None else piece.stop):
        try:
            yield file.read_row_group(group, columns=columns)
        except KeyError as error:
            raise BadInput(f"{path} is no trace, it has no column {error}: use --history DIR") from None


class TraceReader(Tracing, DataSourceReader):
    """``partitions`` runs beside the driver, ``read`` in executors; both must see the same files."""

    def partitions(self) -> Sequence[InputPartition]:
        pa = arrow()
        tables, members = self._files()
        if not tables and not members:
            raise BadInput(f"{self._path} holds no trace: 'pluribus sim SCENARIO --history DIR' writes one")
        try:
            groups = [
                Piece(str(path), group, group + 1)
                for path in tables
                for group in range(pa.parquet.ParquetFile(path).num_row_groups)
            ]
        except (OSError, pa.ArrowInvalid) as error:
            raise BadInput(f"{self._path} is no trace ({error}): write one with --history DIR") from None
        return [*groups, *(Piece(str(path)) for path in members)]


def trace_fields() -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(schema())
    return found
