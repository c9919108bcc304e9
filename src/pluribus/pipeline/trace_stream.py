"""``spark.readStream.format("pluribus").option("trace", PATH)``: traces as they are written.

Parquet files may appear at any time while the stream runs. One whose footer cannot be read yet is still being written:
it is left for the next time. So every row of every file is given once, when its file is whole. Lines of an observer
(``.history``) are given as soon as they are whole. A ``.trace`` of a member has no rows before it is run again as a
whole, so it is refused.

The offset of the stream says of each file, by its name, how many groups of its rows or how many of its lines were
given. Files may not be changed otherwise than by more of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ..core.errors import BadInput
from .trace_source import PARQUET_SUFFIX, Piece, Tracing
from .traces import HISTORY_SUFFIX, REAL, TRACE_SUFFIX, arrow

log = logging.getLogger(__name__)

FILES_MAX = 100_000
"""The offset names them all, in every micro-batch."""
UNFINISHED_S = 60.0
"""Seconds after which an unfinished file that is not written to any more is reported."""
CHUNK_BYTES = 1 << 20


class Found(NamedTuple):
    """A file as it was found. ``rows`` are those of each group; None: each line is one."""

    stamp: tuple[int, int]
    """Its size and its time: as long as they stay, it need not be looked into again."""
    parts: int
    """Groups of rows, or lines, that are whole."""
    rows: list[int] | None = None

    def upto(self, start: int, stop: int, room: int) -> tuple[int, int]:
        """How far to go from ``start`` with room for so many rows, and how many rows that is; a group is not split."""
        if self.rows is None:
            stop = min(stop, start + room)
            return stop, stop - start
        taken = 0
        for at in range(start, stop):
            if taken + self.rows[at] > room:
                return at, taken
            taken += self.rows[at]
        return stop, taken


class TraceStreamReader(Tracing, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Beside the driver, one for as long as the query runs; ``read`` runs in executors, which must see the files."""

    def __init__(self, path: str, columns: Sequence[str], start: str = "earliest", rows: int | None = None) -> None:
        super().__init__(path, columns)
        if start not in ("earliest", "latest"):
            raise BadInput(f"option start={start!r} is no place in a trace: use 'earliest' or 'latest'")
        self._from_now = start == "latest"
        self._rows = rows
        self._found: dict[str, Found] = {}
        self._target: dict[str, int] | None = None
        self._told: set[str] = set()

    def initialOffset(self) -> dict[str, int]:
        return self._ends() if self._from_now else {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._rows is None else ReadMaxRows(self._rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        ends = self._ends()
        if self._target is not None:
            ends = {name: min(end, self._target.get(name, 0)) for name, end in ends.items()}
        ends = {name: end for name, end in ends.items() if end > start.get(name, 0)}
        if any(name.endswith(HISTORY_SUFFIX) for name in start):
            ends.pop(f"{REAL}{PARQUET_SUFFIX}", None)  # made of lines that were given, even if they are removed now
        if isinstance(limit, ReadMaxRows):
            ends = self._admitted(start, ends, limit.max_rows)
        # Spark takes offsets for different if their names are in another order.
        return dict(sorted({**start, **ends}.items()))

    def _admitted(self, start: Mapping[str, int], ends: Mapping[str, int], room: int) -> dict[str, int]:
        """As much as there is room for, but one group at least. Of whom least was given goes first: a file that grows
        and grows keeps no other one waiting."""
        admitted: dict[str, int] = {}
        for name in sorted(ends, key=lambda name: (start.get(name, 0), name)):
            at = start.get(name, 0)
            end, rows = self._found[name].upto(at, ends[name], room)
            if end == at and not admitted:
                return {name: at + 1}
            if end > at:
                admitted[name] = end
            if end < ends[name]:
                break
            room -= rows
        return admitted

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        folder = self._path if self._path.is_dir() else self._path.parent
        pieces: list[InputPartition] = []
        for name, stop in end.items():
            at, path = start.get(name, 0), folder / name
            if path.suffix == PARQUET_SUFFIX:
                pieces += [Piece(str(path), group, group + 1) for group in range(at, stop)]
            elif at < stop:
                pieces.append(Piece(str(path), at, stop))
        return pieces

    # Looking

    def _ends(self) -> dict[str, int]:
        """Of every file that is there, how much of it is whole."""
        tables, members = self._files()
        self._check(tables, members)
        found: dict[str, Found] = {}
        for path in (*tables, *members):
            known = self._found.get(path.name)
            try:
                seen = path.stat()
                stamp = (seen.st_size, seen.st_mtime_ns)
                if known is None or known.stamp != stamp:
                    known = _groups(path, stamp) if path.suffix == PARQUET_SUFFIX else _lines(path, stamp, known)
                found[path.name] = known
            except (OSError, arrow().ArrowInvalid):
                self._unfinished(path)
        self._found = found
        return {name: known.parts for name, known in found.items()}

    def _check(self, tables: Sequence[Path], members: Sequence[Path]) -> None:
        if not tables and not members and not self._path.is_dir():
            raise BadInput(f"{self._path} is no trace: name a Parquet file, or a folder in which traces are written")
        if len(tables) + len(members) > FILES_MAX:
            raise BadInput(f"{self._path} holds more than {FILES_MAX:,} files: use several folders, a stream each")
        for path in members:
            if path.suffix == TRACE_SUFFIX:
                raise BadInput(
                    f"{path} must be run again as a whole, so it is no stream: read it with spark.read, or make a "
                    "Parquet file of it in another folder, with pluribus.pipeline.traces.gather"
                )

    def _unfinished(self, path: Path) -> None:
        """It is left for the next time, which may never come if its writer died."""
        with suppress(OSError):
            if path.name not in self._told and time() - path.stat().st_mtime > UNFINISHED_S:
                self._told.add(path.name)
                log.warning("%s has no end yet, and is not read before: if nobody writes it, remove it", path)


def _groups(path: Path, stamp: tuple[int, int]) -> Found:
    with arrow().parquet.ParquetFile(path) as file:
        metadata = file.metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return Found(stamp, len(rows), rows)


def _lines(path: Path, stamp: tuple[int, int], known: Found | None) -> Found:
    """Lines are only added, so those that were counted are not counted again."""
    at, count = (known.stamp[0], known.parts) if known is not None and known.stamp[0] <= stamp[0] else (0, 0)
    with path.open("rb") as file:
        file.seek(at)
        while at < stamp[0] and (chunk := file.read(min(CHUNK_BYTES, stamp[0] - at))):
            count += chunk.count(b"\n")
            at += len(chunk)
    return Found(stamp, count)
