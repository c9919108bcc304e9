"""``spark.read.format("pluribus")`` and ``spark.readStream``: durable topics as tables.

Options:

    url          where the keepers are, as ``client://HOST:PORT,HOST:PORT/BUS``; several, parted by spaces: several logs
    trace        instead of topics: the path of traces of runs (``trace_source.py``, ``trace_stream.py``)
    topic        a topic, or a pattern of topics as ``stocks/#``
    topics       several of these, parted by commas; or
    regex        a regular expression for names of topics
    type         ``module:Class`` of the bodies: one column a field; or
    fields       the fields by name, as ``price double, symbol string``; without both, the body is bytes
    columns      only these columns, as ``time,price``; without any of the body, keepers send none
    packed       ``true``: one row a packed batch, as its publisher packed it, with its topic and first offset
    where        a condition on bodies, which the keepers apply
    start, stop  ``earliest``, ``latest``, an offset, or a time as ``2026-11-15T13:00:00``; ``stop`` for batches; or
                 JSON with one of these for each topic, ``{"stocks/ibm": 100, "stocks/#": "earliest"}``
    rows, bytes  how much one micro-batch takes at most
    rows_min     a micro-batch waits for so many rows, but for ``wait`` at most
    parts        into how many tasks a read is split, at most; ``parts_min`` at least; ``part_rows`` rows a task at most
    archive      the folder or URI of an archive: what topics have forgotten is read from there
    gaps         ``fail`` or ``skip``, when retention removed what was to be read
    poison       ``fail``, ``skip`` or ``aside``, for events whose body does not fit

Names of Spark's source for Kafka are taken too (``options.py``).

The source runs in three kinds of processes: ``PluribusSource`` and its readers are made beside the driver, where they
plan; ``read`` runs in executors, once a partition. Each opens its own connection to the keepers, tasks spread over the
hosts of the URL, and another keeper is asked when one dies, so a query does not notice. Offsets are those of the log: a
partition is ranges of them, and reading it again gives the same rows.

Several logs in one query: each has its own keepers, and a place has an entry for each. Events of one topic in one log
come in their order; between logs there is no order, and a micro-batch takes of each what it had when it was asked.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..core.errors import BadInput, LogChanged
from ..pubsub.durable.batch import StoredBatch
from ..pubsub.durable.requests import Known
from ..runtime.clients.log_client import LogClient
from .archived import Archived, Looked, reaching_back
from .offsets import EVENTS, TOPICS, UNKNOWN, Offsets, Places, name_of, parted, place, resumed
from .options import EARLIEST, LATEST, Settings, needed
from .pushdown import Bounds, condition
from .queue_source import QueueReader, QueueStreamReader
from .sink import BatchWriter, StreamWriter
from .trace_source import TraceReader
from .trace_stream import TraceStreamReader

logger = logging.getLogger(__name__)

FETCH_BYTES = 1 << 20
ROWS_A_TASK_MIN = 20_000
"""A range is not split into smaller ones: a task costs more than it saves."""
TASK_BYTES = 32 << 20
"""Bytes that a task reads, about, if no option divides the read."""
TASK_BYTES_MAX = 256 << 20
"""Bytes that a task reads, about, at most, if the cluster is small for the read."""
PARTS_MAX = 10_000
ROWS_A_BATCH = 10_000
"""Packed batches are put together to about this before they go to Spark."""
PIECES_A_BATCH = 10_000
"""The same for packed batches of many topics, most of which hold few rows."""
EVERYTHING = 1 << 62
PLACE_TOPICS = 32
"""Places of fewer topics are short enough for Spark to keep."""
REPORTED_TOPICS = 32
"""Topics of which progress names each offset."""
PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class PluribusSource(DataSource):
    """Made beside the driver whenever a plan needs it; does nothing but understand its options."""

    cores = 0
    """How many tasks run at a time on this cluster; 0 if that is not known (see ``register``)."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._settings = Settings(options)

    @classmethod
    def name(cls) -> str:
        return "pluribus"

    def schema(self) -> StructType:
        return self._settings.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = self._settings.of(schema)
        if settings.trace:
            return TraceReader(settings.trace, schema.names)
        if settings.queue:
            url, dead = needed(" ".join(settings.urls), "url"), settings.given.get("dead", "false") == "true"
            return QueueReader(url, settings.queue, settings.where, schema, dead)
        return (PushingReader if _asked_for_conditions() else TopicReader)(settings, schema, self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        settings = self._settings.of(schema)
        if settings.trace:
            if "bytes" in settings.given:
                raise BadInput("option bytes is for topics: limit the micro-batches of a trace with rows")
            start = settings.given.get("start", "earliest")
            return TraceStreamReader(settings.trace, schema.names, start, settings.number("rows"))
        if settings.queue:
            url, reader = needed(" ".join(settings.urls), "url"), settings.given.get("reader", "")
            return QueueStreamReader(url, settings.queue, settings.where, schema, reader, settings.number("rows"))
        return TopicStreamReader(settings, schema, self.cores)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise BadInput("a durable topic only grows, so nothing is overwritten: write with mode('append')")
        return BatchWriter(self._settings.of(schema), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        if overwrite:
            raise BadInput("a durable topic only grows, so no answer replaces the last: use outputMode('update')")
        return StreamWriter(self._settings.of(schema), schema)


Look = dict[str, list[Known]]
"""What keepers tell, by log."""


class Range(NamedTuple):
    """Offsets of one topic."""

    topic: str
    start: int
    stop: int


class Ranges(InputPartition):
    """What a task reads: a part of a large topic, or all that is new of many small ones; and of which log."""

    def __init__(self, ranges: Sequence[Range], log: int = 0, number: int = 0, url: int = 0) -> None:
        self.ranges = tuple(ranges)
        self.log = log
        self.number = number
        """Of the task: which of the keepers it asks first."""
        self.url = url
        """Which of the URLs names the keepers of this log."""


def _there(table: Any) -> Iterator[Any]:
    if table is not None:
        yield table


class _Reading:
    """The common part of batches and streams."""

    def __init__(self, settings: Settings, schema: StructType, cores: int = 0) -> None:
        self._settings = settings
        self._shape = settings.shape(schema)
        self._where = settings.where
        self._cores = cores
        self._urls: dict[str, int] = {}
        """By log: which of the URLs names its keepers. Known after the first look."""
        self._told = False
        """True if every log has shown a topic, and so its number."""
        self._bounds = Bounds()
        self._looked: Looked = {}

    def _known(self) -> Look:
        """The topics of all logs, as they are now."""
        settings, found = self._settings, Look()
        for number in range(max(len(settings.urls), 1)):
            with settings.keepers(number) as keepers:
                here = {one.topic: one for pattern in settings.patterns for one in keepers.topics(pattern)}
            if not here:
                continue
            if settings.archive:
                here = {one.topic: one for one in reaching_back(list(here.values()), settings.archive, self._looked)}
            log = name_of(next(iter(here.values())))
            other = self._urls.setdefault(log, number)
            if other != number:
                raise BadInput(
                    f"{settings.urls[other]} and {settings.urls[number]} have the same log: name all its keepers in "
                    "one URL, HOST:PORT,HOST:PORT"
                )
            wanted = [one for one in here.values() if settings.wants(one.topic)]
            found[log] = wanted if self._bounds.free else [one for one in wanted if self._bounds.topic(one.topic)]
        self._told = len(self._urls) == max(len(settings.urls), 1)
        if not any(found.values()) and not settings.several and self._bounds.free:
            raise BadInput(
                f"there is no durable topic {settings.patterns[0]!r}: publish to it first, or look at its name"
            )
        return found

    def _places(self, option: str, known: Look, default: str) -> Offsets:
        """The offset of each topic that an option names."""
        found: Offsets = {}
        place = self._settings.placing(option, default)
        for log, topics in known.items():
            here = found[log] = dict[str, int]()
            if option not in self._settings.given:
                here |= {one.topic: one.first if default == EARLIEST else one.end for one in topics}
                continue
            timed: dict[float, list[str]] = {}
            for one in topics:
                wanted = place(one.topic)
                if isinstance(wanted, float):
                    timed.setdefault(wanted, []).append(one.topic)
                elif isinstance(wanted, int):
                    here[one.topic] = self._within(one, wanted)
                else:
                    here[one.topic] = one.first if wanted == EARLIEST else one.end
            for time_s, names in timed.items():
                here |= self._at(log, names, time_s)
        return found

    def _at(self, log: str, names: Sequence[str], time_s: float) -> dict[str, int]:
        """The first offset of each topic whose event is of this time or later, in the archive if there is one."""
        with self._settings.keepers(self._urls.get(log, 0)) as keepers:
            found = dict(zip(names, keepers.offsets_at(names, time_s), strict=True))
        if self._settings.archive:
            archive = Archived(self._settings.archive)
            for topic, offset in found.items():
                earlier = archive.offset_at(topic, time_s, offset)
                found[topic] = offset if earlier is None else earlier
        return found

    def _within(self, known: Known, offset: int) -> int:
        """Of several topics, one that is shorter is taken at its end: whatever follows there is new."""
        if offset > known.end and not self._settings.several:
            raise BadInput(f"offset {offset} of {known.topic!r} is beyond its end {known.end}: use 'latest'")
        return min(offset, known.end)

    def _tasks(self, starts: Offsets, stops: Offsets, weights: Mapping[str, float]) -> list[Ranges]:
        """Ranges of each log, so divided that tasks have about the same to do. ``weights``: bytes a row, by log."""
        tasks: list[Ranges] = []
        rows = {
            log: sum(max(end - starts.get(log, {}).get(topic, 0), 0) for topic, end in ends.items())
            for log, ends in stops.items()
        }
        size = self._rows_a_task(sum(rows.values()), sum(count * weights.get(log, 0.0) for log, count in rows.items()))
        for log, ends in stops.items():
            number, url, before = int(log, 16), self._urls.get(log, 0), starts.get(log, {})
            held: list[Range] = []
            room = size
            for topic, stop in sorted(ends.items()):
                at = before.get(topic, 0)
                while at < stop:
                    some = min(room, stop - at)
                    held.append(Range(topic, at, at + some))
                    at, room = at + some, room - some
                    if not room:
                        tasks.append(Ranges(held, number, len(tasks), url))
                        held, room = [], size
            if held:
                tasks.append(Ranges(held, number, len(tasks), url))
        return tasks

    def _rows_a_task(self, rows: int, size: float) -> int:
        """From what the options say, else from the cluster, if its size is known, and from bytes."""
        settings = self._settings
        by_size = int(-(-size // (TASK_BYTES_MAX if self._cores else TASK_BYTES)))
        parts = settings.number("parts") or max(2 * self._cores if self._cores else 2, by_size)
        found = max(-(-rows // min(parts, PARTS_MAX)), ROWS_A_TASK_MIN)
        least, most = settings.number("parts_min"), settings.number("part_rows")
        if least is not None:
            found = min(found, max(-(-rows // least), 1))
        return found if most is None else min(found, most)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor: the ranges as Arrow record batches."""
        if not isinstance(partition, Ranges):
            return  # there is nothing to read
        with self._settings.keepers(partition.url, partition.number) as keepers:
            try:
                if self._settings.archive:
                    partition = yield from self._read_archived(keepers, partition)
                if len(partition.ranges) == 1:
                    yield from self._read_one(keepers, partition)
                elif partition.ranges:
                    yield from self._read_many(keepers, partition)
            except LogChanged as error:
                if self._settings.gaps == "fail":
                    raise LogChanged(f"{error}; or leave out what is gone with option gaps='skip'") from None
                logger.warning("%s; left out", error)

    def _read_archived(self, keepers: LogClient, task: Ranges) -> Generator[Any, None, Ranges]:
        """Read events that topics have forgotten from the archive; returns the ranges left for the keepers."""
        archive, skip = Archived(self._settings.archive), self._settings.gaps == "skip"
        left: list[Range] = []
        for topic, start, stop in task.ranges:
            kept = min(keepers.offsets(topic)[0], stop)
            if start < kept:
                bodies = self._shape.needs_bodies
                for batch in archive.batches(topic, start, kept, self._where, bodies, skip=skip):
                    yield from _there(self._shape.table([batch]))
            if max(start, kept) < stop:
                left.append(Range(topic, max(start, kept), stop))
        return Ranges(left, task.log, task.number, task.url)

    def _read_one(self, keepers: LogClient, task: Ranges) -> Iterator[Any]:
        """A range of one topic: read ahead of what is done with it."""
        held: list[StoredBatch] = []
        rows = 0
        for batch in self._one_range(keepers, task.ranges[0], task.log):
            held.append(batch)
            rows += len(batch)
            if rows >= ROWS_A_BATCH:
                yield from _there(self._shape.table(held))
                held, rows = [], 0
        if held:
            yield from _there(self._shape.table(held))

    def _read_many(self, keepers: LogClient, task: Ranges) -> Iterator[Any]:
        """Many small ranges: asked for together."""
        where, bodies = self._where, self._shape.needs_bodies
        for ranges, pieces in keepers.read_many(task.ranges, where=where, bodies=bodies, log=task.log, over=self._over):
            for low in range(0, len(pieces), PIECES_A_BATCH):
                yield from _there(self._shape.table_of_many(ranges, pieces[low : low + PIECES_A_BATCH]))

    def _one_range(self, keepers: LogClient, wanted: Range, log: int) -> Iterator[StoredBatch]:
        at, bodies = wanted.start, self._shape.needs_bodies
        while at < wanted.stop:
            found = keepers.read(
                wanted.topic,
                at,
                wanted.stop,
                max_bytes=FETCH_BYTES,
                where=self._where,
                bodies=bodies,
                log=log,
                whole=True,
            )
            try:
                for batch in found:
                    at = batch.end
                    yield batch
                return
            except LogChanged:
                raise
            except BadInput as error:
                first, _ = keepers.offsets(wanted.topic)
                if first <= at:
                    raise error
                at = self._over(wanted.topic, at, first)

    def _over(self, topic: str, start: int, first: int) -> int:
        """The offset at which to go on, if retention removed the events to be read."""
        if self._settings.gaps == "fail":
            raise BadInput(
                f"offset {start} of {topic!r} was removed by retention: the first that is kept is {first}; start "
                "there, or with \"earliest\"; or go on behind the gap with option gaps='skip'"
            )
        return first


class TopicReader(_Reading, DataSourceReader):
    """Beside the driver: plans."""

    def partitions(self) -> Sequence[InputPartition]:
        known = self._known()
        starts = self._places("start", known, EARLIEST)
        stops = self._places("stop", known, LATEST)
        self._narrow(starts, stops)
        return self._tasks(starts, stops, _weights(known))

    def _narrow(self, starts: Offsets, stops: Offsets) -> None:
        """Narrow the ranges to those that Spark's conditions on offsets and times allow."""
        bounds = self._bounds
        if bounds.unbounded:
            return
        for log, topics in starts.items():
            if bounds.since_s is not None:
                at = self._at(log, list(topics), bounds.since_s)
                topics |= {topic: max(start, at[topic]) for topic, start in topics.items()}
            topics |= {topic: max(start, bounds.low) for topic, start in topics.items()}
            ends = stops[log]
            ends |= {topic: min(end, bounds.high) for topic, end in ends.items()}


class PushingReader(TopicReader):
    """Takes conditions over from Spark, before it plans. Spark refuses a reader that can, where its setting
    ``spark.sql.python.filterPushdown.enabled`` is off, as it is by default: so there is one that cannot.

    It is off in our sessions too. Spark 4.3 keeps one reader for each ``load()``, the one that it planned last: where
    conditions are pushed down, ``t.where(a).union(t.where(b))`` gives the rows of ``b`` twice.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Conditions on topic, offset and time say which ranges are read; those on fields of the body go to the
        keepers; Spark keeps the others, and looks again at those of which only a part could be taken."""
        fields = {name: self._shape.may_be_nan(name) for name in self._shape.fields}
        for filter in filters:
            if self._bounds.take(filter):
                continue
            pushed = condition(filter, fields) if self._settings.poison != "aside" else None
            if pushed is not None:
                self._where = f"({self._where}) AND {pushed.text}" if self._where else pushed.text
            if pushed is None or not pushed.exact:
                yield filter


class TopicStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Beside the driver: offsets are those of topics, below the name of their log (``offsets.py``)."""

    def __init__(self, settings: Settings, schema: StructType, cores: int = 0) -> None:
        super().__init__(settings, schema, cores)
        self._target: Offsets | None = None
        self._kept = Places()
        self._weights: dict[str, float] = {}
        self._latest: Offsets = {}
        self._waiting_since: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        known = self._known()
        return self._place(self._places("start", known, LATEST))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows, size = self._settings.number("rows"), self._settings.number("bytes")
        return ReadMaxRows(rows or EVERYTHING) if rows or size else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = self._known()
        settings = self._settings
        self._weights = _weights(known)
        ends = {log: {one.topic: one.end for one in topics} for log, topics in known.items()}
        starts = resumed(self._parted(start), ends, settings.wants, settings.gaps == "skip", self._told)
        self._latest = ends
        if self._target is not None:
            target = self._target
            ends = {
                log: {topic: min(end, target.get(log, {}).get(topic, 0)) for topic, end in topics.items()}
                for log, topics in ends.items()
            }
        elif self._too_few(starts, known):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = self._admitted(starts, ends, known, limit.max_rows)
        for log, topics in ends.items():
            before = starts.setdefault(log, {})
            before |= {topic: max(end, before.get(topic, 0)) for topic, end in topics.items()}
        return self._place(starts)

    def _too_few(self, starts: Offsets, known: Look) -> bool:
        """True if the micro-batch waits for more rows, as ``rows_min`` asks."""
        least = self._settings.number("rows_min")
        if least is None:
            return False
        now = monotonic()
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        waiting = sum(one.end - min(at, one.end) for _, one, at in _unread(starts, known))
        if waiting < least and now - self._waiting_since < self._settings.wait_s:
            return True
        self._waiting_since = None
        return False

    def _admitted(self, starts: Offsets, ends: Offsets, known: Look, rows: int) -> Offsets:
        """The rows that are admitted, a fair share of each topic."""
        unread = [(log, one, at, max(ends[log][one.topic] - at, 0)) for log, one, at in _unread(starts, known)]
        total = sum(count for *_, count in unread)
        size = self._settings.number("bytes")
        if size is not None and total:
            waiting_bytes = sum(one.kept_bytes / max(one.end - one.first, 1) * count for _, one, _, count in unread)
            rows = min(rows, max(int(total * size / max(waiting_bytes, 1)), 1))
        if total <= rows:
            return ends
        found: Offsets = {}
        for log, one, at, count in unread:
            # Rounded up, so that a topic with little waiting is never passed over for good.
            found.setdefault(log, {})[one.topic] = at + -(-count * rows // total)
        return found

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {log: {one.topic: one.end for one in topics} for log, topics in self._known().items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: how far it could be. With many topics only their number and the sum of their
        offsets; the difference to the sum at the end of a micro-batch is the lag."""
        found: dict[str, Any] = {}
        for log, topics in self._latest.items():
            many = len(topics) > REPORTED_TOPICS
            found[log] = {TOPICS: len(topics), EVENTS: sum(topics.values())} if many else dict(sorted(topics.items()))
        return found or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks find out whether the log is still the one of these offsets, and all of it there."""
        starts, stops = self._parted(start), self._parted(end)
        if UNKNOWN in starts and len(stops) == 1:
            starts = {next(iter(stops)): starts[UNKNOWN]}
        stops.pop(UNKNOWN, None)
        if not set(stops) <= set(self._urls):
            self._known()  # this process began with a place of an earlier one: which keepers have which log?
        return self._tasks(starts, stops, self._weights)

    def _place(self, offsets: Offsets) -> dict[str, Any]:
        """As Spark keeps it; long ones are with the keepers."""
        short = place(offsets)
        for log, topics in short.items():
            if log in self._urls and len(topics) > PLACE_TOPICS:
                with self._settings.keepers(self._urls[log]) as keepers:
                    short[log] = self._kept.keep(keepers, log, topics)
        return short

    def _parted(self, place: Mapping[str, Any]) -> Offsets:
        return parted(place, self._resolve)

    def _resolve(self, log: str, kept: str) -> dict[str, int]:
        if log not in self._urls:
            self._known()
        if log not in self._urls:
            raise LogChanged(
                f"the keepers have another log than the one that was read so far ({log}), which holds how far this "
                "query is: name the keepers of that one, or begin with a new checkpoint"
            )
        with self._settings.keepers(self._urls[log]) as keepers:
            return self._kept.resolve(keepers, log, kept)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the log keeps events by its own retention, whether they were read or not."""

    def stop(self) -> None:
        """Nothing is held between two calls."""


def register(spark: Any) -> None:
    """Make ``format("pluribus")`` known to a session, on any engine, and how many tasks run at a time there: reads are
    divided accordingly."""
    try:
        cores = _cores(spark.sparkContext)
    except Exception:  # noqa: BLE001 - a session through Connect has no context, and says so in its own ways
        cores = 0

    class Source(PluribusSource):
        """Made here, so that it travels whole, with its number, and not by its name."""

    Source.cores = cores
    spark.dataSource.register(Source if cores else PluribusSource)


def _cores(context: Any) -> int:
    """How many tasks run at a time. A cluster that has just been asked for has no executors yet, and Spark says 2 then:
    that is not known."""
    told = context.getConf()
    if context.master.startswith("local") or told.contains("spark.default.parallelism"):
        return int(context.defaultParallelism)
    if told.contains("spark.executor.instances"):
        return int(told.get("spark.executor.instances")) * int(told.get("spark.executor.cores", "1"))
    executors = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # one of them is the driver
    return int(context.defaultParallelism) if executors > 0 else 0


def _unread(starts: Offsets, known: Look) -> Iterator[tuple[str, Known, int]]:
    """Log, topic, and where it is read on."""
    for log, topics in known.items():
        before = starts.get(log, {})
        for one in topics:
            yield log, one, max(before.get(one.topic, 0), one.first)


def _weights(known: Look) -> dict[str, float]:
    """Bytes a row, by log."""
    return {
        log: sum(one.kept_bytes for one in topics) / max(sum(one.end - one.first for one in topics), 1)
        for log, topics in known.items()
    }


def _asked_for_conditions() -> bool:
    """Whether this process is one in which Spark pushes conditions down: it has a kind of worker for that."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHING in sys.modules or (main is not None and main.name == PUSHING)
