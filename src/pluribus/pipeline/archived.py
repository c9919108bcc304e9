"""Events that a topic has forgotten, read from an archive by their offsets, as if the topic still had them.

The source asks for them (option ``archive``) where a range begins before the topic's first offset. It runs in executors
and beside the driver, which plan without Spark, so files are read by Arrow: of local folders, and of stores that Arrow
knows (``s3://`` and ``s3a://``, ``gs://``, ``hdfs://``).

An offset names one event of a log, for ever. So a row that is in two files (of a compaction that is under way, or of a
driver that was killed) is taken once, whatever a manifest says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from ..core.errors import BadInput
from ..filters import parse
from ..pubsub.durable.batch import StoredBatch, pack
from ..pubsub.durable.requests import Known
from .columns import kind_of_name
from .files import local_path

ROWS_A_BATCH = 8_192
FOOTERS_CACHED_MAX = 65_536
COLUMNS = ("offset", "id", "sender", "time", "parent", "headers", "kind", "body")


class _File(NamedTuple):
    path: str
    least: int
    most: int


class Archived:
    """The archive in a folder or at a URI."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._system, self._root = _opened(where)
        self._topics: dict[str, list[str]] | None = None

    def first(self, topic: str) -> int | None:
        """The first offset of a topic in the archive; None if there is none."""
        return min((file.least for file in self._files(topic)), default=None)

    def end(self, topic: str) -> int:
        return max((file.most + 1 for file in self._files(topic)), default=0)

    def offset_at(self, topic: str, time_s: float, before: int) -> int | None:
        """The first offset below ``before`` whose event is of this time, in seconds since 1970, or later; None if there
        is none. Days before that time are passed over."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as parquet

        since_us = int(time_s * 1e6)
        day = f"day={datetime.fromtimestamp(max(time_s, 0.0), UTC):%Y-%m-%d}"
        found = before
        for file in sorted(self._files(topic), key=_least):
            folder = file.path.split("/")[-2]
            if file.least >= found:
                break
            if folder.startswith("day=") and folder < day:
                continue
            try:
                with self._system.open_input_file(file.path) as stream:
                    table = parquet.ParquetFile(stream).read(["offset", "time"])
            except FileNotFoundError:  # a compaction was quicker: its rows are in another file
                self._topics = None
                return self.offset_at(topic, time_s, before)
            times = table["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            least = pc.min(table["offset"].filter(pc.greater_equal(times, since_us))).as_py()
            found = found if least is None else min(found, least)
        return found if found < before else None

    def batches(
        self, topic: str, start: int, stop: int, where: str = "", bodies: bool = True, *, skip: bool = False
    ) -> Iterator[StoredBatch]:
        """Every event from ``start`` up to ``stop``; ``BadInput`` if one of them is not here, unless missing events are
        to be skipped."""
        import pyarrow.parquet as parquet

        wanted = parse(where).matches if where else None
        held = sorted((file for file in self._files(topic) if file.most >= start and file.least < stop), key=_least)
        at = start
        for file in held:
            if at >= stop:
                break
            try:
                with self._system.open_input_file(file.path) as stream:
                    table = parquet.ParquetFile(stream).read(list(COLUMNS)).sort_by("offset")
            except FileNotFoundError:  # a compaction was quicker: its rows are in another file
                self._topics = None
                yield from self.batches(topic, at, stop, where, bodies, skip=skip)
                return
            # Another file may begin within this one: compaction has put parts of both together. What comes twice is
            # passed over by its offset.
            for rows in table.to_batches(ROWS_A_BATCH):
                for batch in _packed(topic, rows, at, stop):
                    if batch.offset != at and not skip:
                        raise self._lacks(topic, at)
                    at = batch.end
                    chosen = _chosen(batch, wanted, bodies)
                    if chosen is not None:
                        yield chosen
        if at < stop and not skip:
            raise self._lacks(topic, at)

    def _lacks(self, topic: str, offset: int) -> BadInput:
        return BadInput(
            f"the archive {self._where} lacks offset {offset} of {topic!r}, which the topic has forgotten: read from "
            "a later one, or leave it out with option gaps='skip'"
        )

    def _files(self, topic: str) -> list[_File]:
        if self._topics is None:
            self._topics = self._listed()
        found = []
        for path in self._topics.get(topic, []):
            bounds = _bounds(self._where, path)
            if bounds is not None:
                found.append(_File(path, *bounds))
        return found

    def _listed(self) -> dict[str, list[str]]:
        from pyarrow import fs

        found: dict[str, list[str]] = {}
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        for info in self._system.get_file_info(selector):
            parts = info.path.removeprefix(self._root).strip("/").split("/")
            if info.path.endswith(".parquet") and parts[0].startswith("topic="):
                found.setdefault(unquote(parts[0].removeprefix("topic=")), []).append(info.path)
        return found


def _least(file: _File) -> int:
    return file.least


def _opened(where: str) -> tuple[Any, str]:
    from pyarrow import fs

    path = local_path(where)
    if path is not None:
        return fs.LocalFileSystem(), str(path.absolute())
    try:
        system, root = fs.FileSystem.from_uri(where.replace("s3a://", "s3://", 1))
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadInput(
            f"the archive {where} cannot be opened ({error}): use a path, or a store that Arrow knows"
        ) from None
    return system, root


@lru_cache(FOOTERS_CACHED_MAX)
def _bounds(where: str, path: str) -> tuple[int, int] | None:
    """The least and the greatest offset of a file, from its footer; files never change."""
    import pyarrow.parquet as parquet

    system, _ = _opened(where)
    try:
        with system.open_input_file(path) as stream:
            about = parquet.ParquetFile(stream).metadata
    except FileNotFoundError:  # a compaction has replaced it
        return None
    column = next(at for at in range(about.num_columns) if about.schema.column(at).path == "offset")
    groups = [about.row_group(at).column(column).statistics for at in range(about.num_row_groups)]
    return (min(one.min for one in groups), max(one.max for one in groups)) if groups else None


def _packed(topic: str, rows: Any, start: int, stop: int) -> Iterator[StoredBatch]:
    """Rows in runs of one kind, with offsets that follow each other, from ``start`` on."""
    import pyarrow as pa

    columns = {name: rows.column(rows.schema.names.index(name)) for name in COLUMNS}
    offsets = columns["offset"].to_pylist()
    kinds = columns["kind"].to_pylist()
    times = columns["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    bodies, senders = columns["body"].to_pylist(), columns["sender"].to_pylist()
    ids, parents = ([_pair(one) for one in columns[name].to_pylist()] for name in ("id", "parent"))
    headers = [dict(one) if one else None for one in columns["headers"].to_pylist()]
    low, count = 0, len(offsets)
    while low < count:
        if not start <= offsets[low] < stop:
            low += 1
            continue
        high = low + 1
        while (
            high < count
            and offsets[high] == offsets[high - 1] + 1
            and kinds[high] == kinds[low]
            and offsets[high] < stop
        ):
            high += 1
        cut = slice(low, high)
        first = ids[low] or (1, 1)
        packed = pack(
            topic,
            *first,
            senders[low] or 0,
            kind_of_name(kinds[low]),
            times[cut],
            bodies[cut],
            headers[cut],
            parents[cut],
            ids=[one or (1, 1) for one in ids[cut]],
            senders=[one or 0 for one in senders[cut]],
        )
        yield StoredBatch(packed, offsets[low])
        start, low = offsets[high - 1] + 1, high


def _pair(value: Any) -> tuple[int, int] | None:
    return None if value is None else (value["session"], value["number"])


def _chosen(batch: StoredBatch, wanted: Any, bodies: bool) -> StoredBatch | None:
    if wanted is None:
        return batch
    which = [at for at, body in enumerate(batch.plain()) if wanted(body)]
    return batch.chosen(which, bodies) if which else None


Looked = dict[str, tuple[int, int | None]]
"""By topic: its first offset when the archive was looked at, and the first one in the archive."""


def reaching_back(known: Sequence[Known], where: str, looked: Looked) -> list[Known]:
    """Topics whose first offset is that of an archive, where that has earlier events.

    ``looked`` is remembered between calls: an archive may have very many files, and a stream asks in every micro-batch.
    What is there stays there; what is not is looked for again when the topic has forgotten more.
    """
    archive: Archived | None = None
    found = []
    for one in known:
        seen = looked.get(one.topic)
        if seen is None or (seen[1] is None and seen[0] != one.first):
            archive = archive or Archived(where)
            seen = looked[one.topic] = (one.first, archive.first(one.topic))
        first = seen[1]
        found.append(one if first is None or first >= one.first else msgspec.structs.replace(one, first=first))
    return found
