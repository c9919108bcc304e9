"""Archives: durable topics as Parquet files, by topic and day, for as long as disks are cheap; and played back.

Archiving is a standing query: every event once, also across restarts, because the file sink of Spark and the offsets of
the source are remembered in one checkpoint. An archived event has its whole envelope, and its body as it travelled with
the name of its kind, so playing it back gives the very same body.

A file counts when the *manifest* of the folder (``_spark_metadata``) names it. A driver that is killed leaves files of
a micro-batch that it does again afterwards, under other names: Spark passes over them, and so does playing back. A
folder without a manifest, as other programs write it, counts whole.

Playing back needs no Spark. Days are read one after another, each sorted by time, so a day of what is played must fit
into memory. Events keep the time that they had; ``now=True`` gives them the time at which they are played.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from ..core.errors import BadInput
from ..pubsub.durable.batch import pack
from ..pubsub.topics import matches
from ..runtime.clients.log_reader import LogReader
from .columns import kind_of_name
from .source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST, MANIFEST_VERSION, COMPACT = "_spark_metadata", "v1", ".compact"
ROWS_A_PUT = 4_096
BYTES_A_PUT = 1 << 20
STEP_S = 0.05
"""Events that are due within it are published together."""


def archive(spark: SparkSession, url: str, topic: str, folder: str | PathLike[str], **options: str) -> Any:
    """The standing query, not started: a writer for ``Job`` or for ``start()``. ``options`` are those of the source."""
    from pyspark.sql import functions as F

    register(spark)
    given = {"url": url, "topic": topic, "start": "earliest", **options}
    events = spark.readStream.format("pluribus").options(**given).load()
    dated = events.withColumn("day", F.date_format("time", "yyyy-MM-dd"))
    return dated.writeStream.format("parquet").partitionBy("topic", "day").option("path", str(Path(folder).absolute()))


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
) -> Played:
    """Publish an archive again: at ``speed`` times the pace at which it happened, or, with 0, as fast as it goes.

    Only topics that match and events from ``start`` up to ``stop``; each goes to its topic behind ``prefix``.
    """
    if speed < 0:
        raise BadInput(f"a speed of {speed:g} is none: use 1 for real time, more for faster, 0 for no pauses")
    began = time.monotonic()
    first_us: int | None = None
    sessions: dict[str, int] = {}
    count = 0
    with LogReader(url) as keepers:
        player = _Player(keepers, prefix, now)
        for event in _events(Path(folder), topic, start, stop):
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


class _Line(msgspec.Struct):
    """Of a manifest: a file, by its URI."""

    path: str
    action: str = "add"


_line = msgspec.json.Decoder(_Line)


class _Event(NamedTuple):
    topic: str
    time_us: int
    kind: str
    body: bytes
    headers: dict[str, str] | None


class _Player:
    """Gathers events of one topic and kind into packed batches; each topic is a session of its own."""

    def __init__(self, keepers: LogReader, prefix: str, now: bool) -> None:
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


def _events(folder: Path, pattern: str, start: datetime | None, stop: datetime | None) -> Iterator[_Event]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    if not folder.is_dir() or not any(folder.glob("topic=*")):
        raise BadInput(f"{folder} is no archive: 'pluribus pipeline archive URL TOPIC DIR' writes one")
    keys = pa.schema([("topic", pa.string()), ("day", pa.string())])
    paths = sorted(_files(folder))
    if not paths:
        return
    files = [str(path) for path in paths]
    found = ds.dataset(files, partitioning=ds.partitioning(keys, flavor="hive"), partition_base_dir=str(folder))
    days = sorted({path.parent.name.removeprefix("day=") for path in paths})
    for day in days:
        if (start and day < f"{start.astimezone(UTC):%Y-%m-%d}") or (stop and day > f"{stop.astimezone(UTC):%Y-%m-%d}"):
            continue
        table = found.to_table(["topic", "time", "offset", "kind", "body", "headers"], filter=ds.field("day") == day)
        names = [name for name in pc.unique(table["topic"]).to_pylist() if matches(pattern, name)]
        table = table.filter(pc.is_in(table["topic"], pa.array(names, pa.string())))
        table = table.set_column(1, "time", pc.cast(pc.cast(table["time"], pa.timestamp("us")), pa.int64()))
        for batch in table.sort_by([("time", "ascending"), ("offset", "ascending")]).to_batches(ROWS_A_PUT):
            yield from _rows(batch, start, stop)


def _files(folder: Path) -> list[Path]:
    """The Parquet files that count."""
    there = set(folder.glob("topic=*/day=*/*.parquet"))
    named = _manifest(folder / MANIFEST)
    if named is None:
        return list(there)
    counted = {folder / Path(*path.parts[-3:]) for path in named}  # the folder may have been moved since
    missing = counted - there
    if missing:
        raise BadInput(
            f"{folder} lacks {min(missing).relative_to(folder)}, which its manifest names: copy the folder again, whole"
        )
    return list(counted)


def _manifest(folder: Path) -> list[PurePosixPath] | None:
    """The files that Spark's file sink has committed, as it wrote them down; None if it did not write here.

    Every micro-batch has a file of lines, each a file that it added. Every tenth or so is ``N.compact`` and holds all
    lines up to it.
    """
    if not folder.is_dir():
        return None
    batches = {int(path.stem): path for path in folder.iterdir() if path.stem.isdigit() and path.suffix == COMPACT}
    first = max(batches, default=-1)
    later = {int(path.name): path for path in folder.iterdir() if path.name.isdigit() and int(path.name) > first}
    files = [*([batches[first]] if batches else []), *(later[number] for number in sorted(later))]
    missing = set(range(first + 1, max(later, default=first) + 1)) - later.keys()
    if missing:
        raise BadInput(f"the manifest {folder} lacks its part {min(missing)}: copy the archive again, whole")
    found: dict[PurePosixPath, None] = {}
    for file in files:
        version, *lines = file.read_text(encoding="utf-8").splitlines() or [""]
        if version != MANIFEST_VERSION:
            raise BadInput(f"{file} is a manifest of version {version[:20]!r}: this release reads {MANIFEST_VERSION}")
        for line in lines:
            try:
                entry = _line.decode(line)
            except msgspec.MsgspecError as error:
                raise BadInput(f"{file} is no manifest of Spark ({error}): copy the archive again, whole") from None
            path = PurePosixPath(unquote(urlsplit(entry.path).path))
            if entry.action == "delete":
                found.pop(path, None)
            else:
                found[path] = None
    return list(found)


def _rows(batch: Any, start: datetime | None, stop: datetime | None) -> Iterator[_Event]:
    low = int(start.timestamp() * 1e6) if start else -(1 << 62)
    high = int(stop.timestamp() * 1e6) if stop else 1 << 62
    columns = [batch.column(name).to_pylist() for name in ("topic", "time", "kind", "body", "headers")]
    for topic, time_us, kind, body, headers in zip(*columns, strict=True):
        if low <= time_us < high:
            yield _Event(topic, time_us, kind, body, dict(headers) if headers else None)
