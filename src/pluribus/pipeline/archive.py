"""Archives: durable topics as Parquet files, by topic and day, for as long as disks are cheap; and played back.

Archiving is a standing query: every event once, also across restarts, because a micro-batch lands once
(``landing.py``). An archived event has its whole envelope, and its body as it travelled with the name of its kind, so
playing it back gives the very same body. An archive may lie on a local disk, or wherever Spark's Hadoop client reaches.

Archives that earlier releases wrote, by the file sink of Spark, have its manifest (``_spark_metadata``). Only files
that it names count. The first time that such an archive is written to again, it becomes one of the new kind. A folder
without a manifest, as other programs write it, counts whole.

Playing back needs no Spark where the archive is a local folder. Days are read one after another, each sorted by time,
so a day of events must fit into memory. Events keep the time that they had; ``now=True`` gives them the time at which
they are played.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import BadInput
from ..pubsub.durable.batch import pack
from ..pubsub.topics import matches
from ..runtime.clients.log_client import LogClient
from .columns import kind_of_name
from .files import files_of, is_local, local_path
from .landing import COMPACTOR, Landing, day_of, query_of, without
from .retention import Retention
from .source import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = ("topic", "day")
WRITER = "archive"
COMPACT_EVERY = 64
"""Micro-batches between two searches for small files."""
COMPACT_FILES, COMPACT_BYTES = 16, 64 << 20
ROWS_A_PUT = 4_096
BYTES_A_PUT = 1 << 20
STEP_S = 0.05
"""Seconds: events that are due within them are published together."""


def archive(
    spark: SparkSession,
    url: str,
    topic: str,
    folder: str | PathLike[str],
    *,
    retain_s: float | None = None,
    **options: str,
) -> Any:
    """The standing query, not started: a writer for ``Job`` or for ``start()``. ``options`` are those of the source.

    With ``retain_s``, topics forget older events, once the archive has them; their own retention is switched off,
    because it would not wait. Small files are put together now and then.
    """
    register(spark)
    given = {"url": url, "topic": topic, "start": "earliest", **options}
    events = spark.readStream.format("pluribus").options(**given).load()
    where = fspath(folder)
    table = Landing(where if not is_local(where) else str(local_path(where)), spark, keys=KEYS)
    retention = None if retain_s is None else Retention(url, [topic], retain_s)
    return events.writeStream.foreachBatch(_Archiving(spark, table, retention))


class _Archiving:
    """The work on each micro-batch, beside the driver."""

    def __init__(self, spark: SparkSession, table: Landing, retention: Retention | None) -> None:
        self._spark = spark
        self._table = table
        self._retention = retention
        table.clean(WRITER, COMPACTOR)

    def __call__(self, events: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        last, query = self._table.latest(WRITER), query_of(self._spark)
        if last is None or not last.holds(query, number):
            rows = events.withColumn("day", day_of("time")).persist()
            try:
                counted = [F.min("offset").alias("least"), F.max("offset").alias("most"), F.count("*").alias("rows")]
                found = rows.groupBy("topic").agg(*counted).collect()
                place = {row["topic"]: row["most"] + 1 for row in found}
                known = self._table.known(WRITER, query, {row["topic"]: row["least"] for row in found})
                count = None if known else sum(row["rows"] for row in found)
                some = without(rows, known)
                self._table.land(WRITER, number, some, place=place, count=count, query=query)
            finally:
                rows.unpersist()
        if self._retention is not None:
            self._retention.let_go(self._table.place(WRITER))
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            self._table.compact(self._spark, COMPACT_FILES, COMPACT_BYTES)


def compact(
    spark: SparkSession, folder: str | PathLike[str], files: int = COMPACT_FILES, size: int = COMPACT_BYTES
) -> int:
    """Compact an archive: join the small files of partitions with so many or more. Returns how many files are fewer."""
    check_archive(folder, spark)
    return Landing(fspath(folder), spark, keys=KEYS).compact(spark, files, size)


def check_archive(folder: str | PathLike[str], spark: SparkSession | None = None) -> None:
    """``BadInput`` for a folder that is none."""
    if not any(found.path.startswith("topic=") for found in files_of(fspath(folder), spark).list()):
        raise BadInput(f"{folder} is no archive: 'pluribus pipeline archive URL TOPIC DIR' writes one")


class Played(NamedTuple):
    events: int
    topics: int
    seconds: float


def replay(
    folder: str | PathLike[str],
    url: str,
    *,
    speed: float = 1.0,
    topic: str = "#",
    start: datetime | None = None,
    stop: datetime | None = None,
    prefix: str = "",
    now: bool = False,
    wait: Callable[[float], None] = time.sleep,
    spark: SparkSession | None = None,
) -> Played:
    """Publish an archive again: at ``speed`` times the pace at which it happened, or, with 0, as fast as it goes.

    Only topics that match and events from ``start`` up to ``stop``; each goes to its topic behind ``prefix``. An
    archive that is no local folder is read by ``spark``.
    """
    if speed < 0:
        raise BadInput(f"a speed of {speed:g} is none: use 1 for real time, more for faster, 0 for no pauses")
    began = time.monotonic()
    first_us: int | None = None
    sessions: dict[str, int] = {}
    count = 0
    with LogClient(url) as keepers:
        player = _Player(keepers, prefix, now)
        for event in _events(fspath(folder), topic, start, stop, spark):
            first_us = event.time_us if first_us is None else first_us
            due_s = (event.time_us - first_us) / 1e6 / speed if speed else 0.0
            early_s = due_s - (time.monotonic() - began)
            if early_s > STEP_S:
                player.flush()
                wait(early_s)
            player.add(event)
            sessions.setdefault(event.topic, 0)
            count += 1
        player.flush()
    return Played(count, len(sessions), round(time.monotonic() - began, 3))


class _Event(NamedTuple):
    topic: str
    time_us: int
    kind: str
    body: bytes
    headers: dict[str, str] | None


class _Player:
    """Gathers events of one topic and kind into packed batches; each topic is a session of its own."""

    def __init__(self, keepers: LogClient, prefix: str, now: bool) -> None:
        self._keepers = keepers
        self._prefix = prefix
        self._now = now
        self._base = time.time_ns() & ((1 << 61) - 1)
        self._next: dict[str, tuple[int, int]] = {}
        self._held: dict[tuple[str, str], list[_Event]] = {}
        self._rows = self._bytes = 0

    def add(self, event: _Event) -> None:
        if any(held and topic == event.topic and kind != event.kind for (topic, kind), held in self._held.items()):
            self.flush()  # the order within a topic is kept
        self._held.setdefault((event.topic, event.kind), []).append(event)
        self._rows += 1
        self._bytes += len(event.body)
        if self._rows >= ROWS_A_PUT or self._bytes >= BYTES_A_PUT:
            self.flush()

    def flush(self) -> None:
        batches = []
        for (topic, kind), held in self._held.items():
            session, first = self._next.get(topic, (self._base + len(self._next), 1))
            self._next[topic] = (session, first + len(held))
            times = [int(time.time() * 1e6)] * len(held) if self._now else [event.time_us for event in held]
            bodies, headers = [event.body for event in held], [event.headers for event in held]
            batches.append(pack(self._prefix + topic, session, first, 0, kind_of_name(kind), times, bodies, headers))
        self._held.clear()
        self._rows = self._bytes = 0
        if batches:
            self._keepers.put(batches)


def _events(
    folder: str, pattern: str, start: datetime | None, stop: datetime | None, spark: SparkSession | None
) -> Iterator[_Event]:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = Landing(folder, spark, keys=KEYS)
    check_archive(folder, spark)
    held: dict[str, list[str]] = {}
    for path in table.snapshot():
        held.setdefault(path.split("/")[-2].removeprefix("day="), []).append(path)
    for day, paths in sorted(held.items()):
        if (start and day < f"{start.astimezone(UTC):%Y-%m-%d}") or (stop and day > f"{stop.astimezone(UTC):%Y-%m-%d}"):
            continue
        rows = _of_files(table, paths, spark)
        names = [name for name in pc.unique(rows["topic"]).to_pylist() if matches(pattern, name)]
        rows = rows.filter(pc.is_in(rows["topic"], pa.array(names, pa.string())))
        times = pc.cast(pc.cast(rows["time"], pa.timestamp("us", rows["time"].type.tz)), pa.int64())
        rows = rows.set_column(rows.schema.names.index("time"), "time", times)
        for batch in rows.sort_by([("time", "ascending"), ("offset", "ascending")]).to_batches(ROWS_A_PUT):
            yield from _rows(batch, start, stop)


PLAYED = ("topic", "time", "offset", "kind", "body", "headers")


def _of_files(table: Landing, paths: list[str], spark: SparkSession | None) -> Any:
    """Rows of a day, as an Arrow table."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    files = [table.files.under(path) for path in paths]
    if local_path(table.files.root) is None:
        assert spark is not None, "the folder was listed by it"
        rows = spark.read.option("basePath", table.files.root).parquet(*files)
        return rows.withColumn("topic", rows["topic"].cast("string")).select(*PLAYED).toArrow()
    keys = pa.schema([("topic", pa.string()), ("day", pa.string())])
    root = str(local_path(table.files.root))
    local = [str(local_path(file)) for file in files]
    # A file that is staged has its keys in its path too, further down.
    found = ds.dataset(local, partitioning=ds.partitioning(keys, flavor="hive"), partition_base_dir=root)
    return found.to_table(list(PLAYED))


def _rows(batch: Any, start: datetime | None, stop: datetime | None) -> Iterator[_Event]:
    low = int(start.timestamp() * 1e6) if start else -(1 << 62)
    high = int(stop.timestamp() * 1e6) if stop else 1 << 62
    columns = [batch.column(name).to_pylist() for name in ("topic", "time", "kind", "body", "headers")]
    for topic, time_us, kind, body, headers in zip(*columns, strict=True):
        if low <= time_us < high:
            yield _Event(topic, time_us, kind, body, dict(headers) if headers else None)
