"""``spark.read.format("pluribus")`` and ``spark.readStream``: durable topics as tables.

Options:

    url          where the keepers are, as ``client://HOST:PORT,HOST:PORT``
    trace        instead of topics: the path of traces of runs (``trace_source.py``, ``trace_stream.py``)
    topic        a topic, or a pattern of topics as ``stocks/#``
    type         ``module:Class`` of the bodies: one column a field; or
    fields       the fields by name, as ``price double, symbol string``; without both, the body is bytes
    columns      only these columns, as ``time,price``; without any of the body, keepers send none
    where        a condition on bodies, which the keepers apply
    start, stop  ``earliest``, ``latest``, an offset, or a time as ``2026-11-15T13:00:00``; ``stop`` for batches only
    rows, bytes  how much one micro-batch takes at most
    parts        into how many tasks a read is split, at most
    archive      the folder or URI of an archive: what topics have forgotten is read from there
    gaps         ``fail`` or ``skip``, when retention removed what was to be read
    poison       ``fail``, ``skip`` or ``aside``, for events whose body does not fit

The source runs in three kinds of processes: ``PluribusSource`` and its readers are made beside the driver, where they
plan; ``read`` runs in executors, once a partition. Each opens its own connection to the keepers, and asks another
keeper when one dies, so a query does not notice. Offsets are those of the log: a partition is a range of them, and
reading it again gives the same rows.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
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
from pyspark.sql.types import BinaryType, StringType, StructType

from ..core.errors import BadInput, LogChanged
from ..filters import parse
from ..pubsub.durable.batch import Batch
from ..pubsub.durable.requests import Known
from ..runtime.clients.log_reader import LogReader
from .archived import Archived, reaching_back
from .columns import (
    POISON,
    RESERVED,
    checked_schema,
    envelope_fields,
    import_type,
    named_fields,
    spark_fields,
)
from .offsets import UNKNOWN, log_of, parted, place, resumed
from .pushdown import condition
from .sink import BatchWriter, StreamWriter
from .tables import Shape
from .trace_source import TraceReader, trace_fields
from .trace_stream import TraceStreamReader

logger = logging.getLogger(__name__)

FETCH_BYTES = 1 << 20
ROWS_A_TASK_MIN = 20_000
"""A range is not split into smaller ones: a task costs more than it saves."""
ROWS_A_BATCH = 10_000
"""Packed batches of a topic are put together to about this before they go to Spark."""
EVERYTHING = 1 << 62
PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
OPTIONS = (
    *("url", "trace", "topic", "type", "fields", "columns", "where", "start", "stop", "rows", "bytes", "parts", "gaps"),
    *("poison", "writer", "batch", "foreign", "lease", "archive"),
)
OF_SPARK = ("path", "checkpointlocation", "queryname")
"""Options that Spark adds by itself."""


class PluribusSource(DataSource):
    """Made beside the driver whenever a plan needs it; does nothing but understand its options."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._settings = Settings(options)

    @classmethod
    def name(cls) -> str:
        return "pluribus"

    def schema(self) -> StructType:
        return self._settings.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._settings.trace:
            return TraceReader(self._settings.trace, schema.names)
        return (PushingReader if _asked_for_conditions() else TopicReader)(self._settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        settings = self._settings
        if settings.trace:
            if "bytes" in settings.given:
                raise BadInput("option bytes is for topics: limit the micro-batches of a trace with rows")
            start = settings.given.get("start", "earliest")
            return TraceStreamReader(settings.trace, schema.names, start, settings.number("rows"))
        return TopicStreamReader(settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise BadInput("a durable topic only grows, so nothing is overwritten: write with mode('append')")
        return BatchWriter(self._settings.given, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        if overwrite:
            raise BadInput("a durable topic only grows, so no answer replaces the last: use outputMode('update')")
        return StreamWriter(self._settings.given, schema)


class Settings:
    """Options, checked. Picklable."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = {name.lower(): str(value) for name, value in options.items() if name.lower() not in OF_SPARK}
        unknown = [name for name in self.given if name not in OPTIONS]
        if unknown:
            raise BadInput(f"there is no option {unknown[0]!r}: use one of {', '.join(OPTIONS)}")
        self.url = self.given.get("url") or os.environ.get("PLURIBUS_URL", "")
        self.topic = self.given.get("topic", "")
        self.trace = self.given.get("trace", "")
        self.where = self.given.get("where", "")
        self.archive = self.given.get("archive", "")
        self.gaps = self._choice("gaps", ("fail", "skip"))
        self.poison = self._choice("poison", POISON)
        if self.where:
            parse(self.where)

    def _choice(self, name: str, choices: Sequence[str]) -> str:
        value = self.given.get(name, choices[0])
        if value not in choices:
            raise BadInput(f"option {name}={value!r} is none of {', '.join(choices)}: choose one of them")
        return value

    def keepers(self) -> LogReader:
        """A connection of this process."""
        return LogReader(_needed(self.url, "url"))

    def number(self, name: str) -> int | None:
        value = self.given.get(name)
        if value is None:
            return None
        if not value.isdigit() or int(value) < 1:
            raise BadInput(f"option {name}={value!r} is no number: use 1 or more")
        return int(value)

    def body_fields(self) -> StructType:
        if "type" in self.given:
            return spark_fields(import_type(self.given["type"]))
        return named_fields(self.given["fields"]) if "fields" in self.given else StructType()

    def schema(self) -> StructType:
        return self._chosen(trace_fields() if self.trace else self._of_events())

    def _of_events(self) -> StructType:
        fields = self.body_fields()
        taken = [name for name in fields.names if name in RESERVED]
        if taken:
            raise BadInput(f"the field {taken[0]!r} is a name of the envelope: read the body as bytes and rename it")
        whole = StructType([*envelope_fields().fields, *fields.fields])
        if not fields.fields:
            whole = whole.add("kind", StringType()).add("body", BinaryType())
        elif self.poison == "aside":
            whole = whole.add("reason", StringType()).add("body", BinaryType())
        return whole

    def _chosen(self, whole: StructType) -> StructType:
        wanted = [name.strip() for name in self.given.get("columns", "").split(",") if name.strip()]
        unknown = [name for name in wanted if name not in whole.names]
        if unknown:
            raise BadInput(f"there is no column {unknown[0]!r}: use some of {', '.join(whole.names)}")
        return StructType([whole[name] for name in wanted]) if wanted else whole

    def shape(self, schema: StructType) -> Shape:
        """Of the schema that the options make, or of one that ``.schema()`` was given."""
        fields = [name for name in checked_schema(schema).names if name not in RESERVED]
        return Shape(schema, fields, self.poison)


class Range(NamedTuple):
    """Offsets of one topic."""

    topic: str
    start: int
    stop: int


class Ranges(InputPartition):
    """What a task reads: a part of a large topic, or all that is new of many small ones; and of which log."""

    def __init__(self, ranges: Sequence[Range], log: int = 0) -> None:
        self.ranges = tuple(ranges)
        self.log = log


class _Reading:
    """What batches and streams have in common."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        self._settings = settings
        self._shape = settings.shape(schema)
        self._where = settings.where

    def _known(self) -> list[Known]:
        with self._settings.keepers() as keepers:
            found = keepers.topics(_needed(self._settings.topic, "topic"))
        if self._settings.archive:
            found = reaching_back(found, self._settings.archive)
        if not found and not set("+#") & set(self._settings.topic):
            raise BadInput(
                f"there is no durable topic {self._settings.topic!r}: publish to it first, or look at its name"
            )
        return found

    def _places(self, option: str, known: Sequence[Known], default: str) -> dict[str, int]:
        """The offset of each topic that an option names."""
        value = self._settings.given.get(option, default)
        if value == "earliest":
            return {one.topic: one.first for one in known}
        if value == "latest":
            return {one.topic: one.end for one in known}
        if value.isdigit():
            return {one.topic: self._within(one, int(value)) for one in known}
        time_s = _time_s(option, value)
        with self._settings.keepers() as keepers:
            return {one.topic: keepers.offset_at(one.topic, time_s) for one in known}

    def _within(self, known: Known, offset: int) -> int:
        """Of several topics, one that is shorter is taken at its end: whatever follows there is new."""
        if offset > known.end and not set("+#") & set(self._settings.topic):
            raise BadInput(f"offset {offset} of {known.topic!r} is beyond its end {known.end}: use 'latest'")
        return min(offset, known.end)

    def _tasks(self, starts: Mapping[str, int], stops: Mapping[str, int], log: str) -> list[Ranges]:
        parts = self._settings.number("parts") or 2 * (os.cpu_count() or 1)
        total = sum(max(stops[topic] - starts.get(topic, 0), 0) for topic in stops)
        size = max(-(-total // parts), ROWS_A_TASK_MIN)
        number = int(log, 16)
        tasks: list[Ranges] = []
        held: list[Range] = []
        room = size
        for topic, stop in sorted(stops.items()):
            at = starts.get(topic, 0)
            while at < stop:
                some = min(room, stop - at)
                held.append(Range(topic, at, at + some))
                at, room = at + some, room - some
                if not room:
                    tasks.append(Ranges(held, number))
                    held, room = [], size
        return [*tasks, Ranges(held, number)] if held else tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor: the range as Arrow record batches."""
        if not isinstance(partition, Ranges):
            return  # there is nothing to read
        with self._settings.keepers() as keepers:
            for wanted in partition.ranges:
                held: list[Batch] = []
                rows = 0
                for batch in self._batches(keepers, wanted, partition.log):
                    held.append(batch)
                    rows += len(batch)
                    if rows >= ROWS_A_BATCH:
                        yield from self._table(held)
                        held, rows = [], 0
                yield from self._table(held)

    def _table(self, batches: list[Batch]) -> Iterator[Any]:
        table = self._shape.table(batches) if batches else None
        if table is not None:
            yield table

    def _batches(self, keepers: LogReader, wanted: Range, log: int) -> Iterator[Batch]:
        at, bodies = wanted.start, self._shape.needs_bodies
        if self._settings.archive:
            kept = min(keepers.offsets(wanted.topic)[0], wanted.stop)
            if at < kept:
                archive, skip = Archived(self._settings.archive), self._settings.gaps == "skip"
                yield from archive.batches(wanted.topic, at, kept, self._where, bodies, skip=skip)
                at = kept
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
            except LogChanged as error:
                if self._settings.gaps == "fail":
                    raise LogChanged(f"{error}; or leave out what is gone with option gaps='skip'") from None
                logger.warning("%s; left out", error)
                return
            except BadInput as error:
                at = self._over_the_gap(keepers, wanted, at, error)

    def _over_the_gap(self, keepers: LogReader, wanted: Range, at: int, error: BadInput) -> int:
        """Where to go on, if the error is that retention removed what was to be read."""
        first, _ = keepers.offsets(wanted.topic)
        if first <= at:
            raise error
        if self._settings.gaps == "fail":
            raise BadInput(f"{error}; or go on behind the gap with option gaps='skip'")
        return first


class TopicReader(_Reading, DataSourceReader):
    """Beside the driver: plans."""

    def partitions(self) -> Sequence[InputPartition]:
        known = self._known()
        starts = self._places("start", known, "earliest")
        stops = self._places("stop", known, "latest")
        return self._tasks(starts, stops, log_of(known))


class PushingReader(TopicReader):
    """Takes conditions over from Spark, before it plans. Spark refuses a reader that can, where its setting
    ``spark.sql.python.filterPushdown.enabled`` is off, as it is by default: so there is one that cannot.

    It is off in our sessions too. Spark 4.3 keeps one reader for each ``load()``, the one that it planned last: where
    conditions are pushed down, ``t.where(a).union(t.where(b))`` gives the rows of ``b`` twice.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Conditions on fields of the body go to the keepers; Spark keeps the others."""
        fields = {name: self._shape.may_be_nan(name) for name in self._shape.fields}
        for filter in filters:
            pushed = condition(filter, fields) if self._settings.poison != "aside" else None
            if pushed is not None:
                self._where = f"({self._where}) AND {pushed.text}" if self._where else pushed.text
            if pushed is None or not pushed.exact:
                yield filter


class TopicStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Beside the driver: offsets are those of topics, below the name of their log (``offsets.py``)."""

    _target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        known = self._known()
        return place(known, self._places("start", known, "latest"))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows, size = self._settings.number("rows"), self._settings.number("bytes")
        return ReadMaxRows(rows or EVERYTHING) if rows or size else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = self._known()
        starts = resumed(start, known, self._settings.topic, self._settings.gaps == "skip")
        ends = {one.topic: one.end for one in known}
        if self._target is not None:
            ends = {topic: min(end, self._target.get(topic, 0)) for topic, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = self._admitted(starts, ends, known, limit.max_rows)
        return place(known, {**starts, **{topic: max(end, starts.get(topic, 0)) for topic, end in ends.items()}})

    def _admitted(
        self, start: Mapping[str, int], ends: Mapping[str, int], known: Sequence[Known], rows: int
    ) -> dict[str, int]:
        """As much as is admitted, a fair share of each topic."""
        waiting = {one.topic: max(ends[one.topic] - max(start.get(one.topic, 0), one.first), 0) for one in known}
        total = sum(waiting.values())
        size = self._settings.number("bytes")
        if size is not None and total:
            weight = {one.topic: one.kept_bytes / max(one.end - one.first, 1) for one in known}
            waiting_bytes = sum(weight[topic] * count for topic, count in waiting.items())
            rows = min(rows, max(int(total * size / max(waiting_bytes, 1)), 1))
        if total <= rows:
            return dict(ends)
        # Rounded up, so that a topic with little waiting is never passed over for good.
        return {
            one.topic: max(start.get(one.topic, 0), one.first) + -(-waiting[one.topic] * rows // total) for one in known
        }

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {one.topic: one.end for one in self._known()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks find out whether the log is still the one of these offsets, and all of it there."""
        (before, starts), (log, stops) = parted(start), parted(end)
        return self._tasks(starts if UNKNOWN in (before, log) or before == log else {}, stops, log)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the log keeps events by its own retention, whoever read them."""

    def stop(self) -> None:
        """Nothing is held between two calls."""


def register(spark: Any) -> None:
    """Make ``format("pluribus")`` known to a session, on any engine."""
    spark.dataSource.register(PluribusSource)


def _asked_for_conditions() -> bool:
    """Whether this process is one in which Spark pushes conditions down: it has a kind of worker for that."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHING in sys.modules or (main is not None and main.name == PUSHING)


def _needed(value: str, option: str) -> str:
    if not value:
        raise BadInput(f"option {option!r} is missing: name it with .option({option!r}, ...)")
    return value


def _time_s(option: str, value: str) -> float:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise BadInput(f"option {option}={value!r} is no place: use earliest, latest, an offset or a time") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
