"""The tiers: bronze, silver, dead and gold tables, written from topics at a calmer pace than answers are given.

One standing query reads the raw topics, the clean ones, the dead ones and those of answers, every ten seconds or so,
and lands what is new in tables (``pipeline/landing.py``), each micro-batch once:

    bronze        topic=…/day=…   raw events, envelope and body as they travelled: the archive
    silver/NAME   day=…           clean events, one column a field
    dead          day=…           events that failed, with rule and reason
    gold/NAME     day=…           answers

Tables follow topics, so what is on the way to answers never waits for files, and there are few of these. ``compact``
puts small ones together, in a thread of its own.

With ``retain``, topics forget what is old, but never what bronze does not have yet (``pipeline/retention.py``).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ...pubsub.durable.batch import StoredBatch
from ..columns import PACKED, arrow_schema, envelope_fields, packed_fields
from ..decoding import body_fields
from ..landing import COMPACTOR, Landing, day_of, query_of, without
from ..retention import Retention
from ..tables import Shape, unpacked
from .answers import GOLD_HEADER, answer_fields, answer_patterns, shaped
from .intake import EVENTS_REMEMBERED, events_of, table_of
from .parts import Configuration, Gold, Silver, seconds, time_of
from .sorting import EVENTS_A_LOOK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

WRITER = "tiers"
LANDING_THREADS = 2
ROWS_A_TASK = 500_000
COMPACT_EVERY_S = 60.0


def bronze_fields() -> StructType:
    from pyspark.sql.types import StringType

    return raw_fields().add("day", StringType())


class Tiers:
    """The tables of a backbone, and what is done with each micro-batch."""

    def __init__(self, spark: SparkSession, configuration: Configuration) -> None:
        self._spark = spark
        self._configuration = configuration
        root = configuration.tables.rstrip("/")
        self.bronze = Landing(f"{root}/bronze", spark, keys=("topic", "day"))
        self.dead = Landing(f"{root}/dead", spark)
        self.silver = {one.name: Landing(f"{root}/silver/{one.name}", spark) for one in configuration.silver}
        self.gold = {one.name: Landing(f"{root}/gold/{one.name}", spark, at=time_of(one)) for one in configuration.gold}
        self._fields: dict[str, StructType] = {}
        retain, topics = configuration.tiers.retain, [one.topics for one in configuration.silver]
        self._retention = Retention(configuration.url, topics, seconds(retain)) if retain else None
        self._events: deque[tuple[int, int]] = deque(maxlen=EVENTS_REMEMBERED)
        """By micro-batch."""
        self._stopping = threading.Event()

    def all(self) -> dict[str, Landing]:
        silver = {f"silver/{name}": table for name, table in self.silver.items()}
        gold = {f"gold/{name}": table for name, table in self.gold.items()}
        return {"bronze": self.bronze, **silver, "dead": self.dead, **gold}

    def clean(self) -> None:
        """Before the first batch: what a killed driver left goes."""
        for table in self.all().values():
            table.clean(WRITER, COMPACTOR)

    # The standing query.

    def query(self) -> Any:
        """Not started. A row is a packed batch."""
        from pyspark.sql import functions as F

        configuration = self._configuration
        clean, dead = configuration.prefix("silver"), configuration.prefix("dead")
        patterns = [*(one.topics for one in configuration.silver), f"{clean}#", f"{dead}#"]
        limits = {"rows": str(10 * configuration.rows), "gaps": configuration.gaps, "packed": "true"}
        patterns += answer_patterns(configuration)
        events = events_of(self._spark, configuration.url, patterns, **limits)
        topic = F.col("topic")
        tier = F.when(topic.startswith(clean), F.lit("silver")).when(topic.startswith(dead), F.lit("dead"))
        raw = table_of(configuration, topic)
        tier = tier.when(raw.isNotNull(), F.lit("bronze")).otherwise(F.lit("gold"))
        behind = F.substring(topic, len(clean) + 1, 1 << 20)
        table = F.when(tier == "silver", table_of(configuration, behind))
        tagged = events.withColumns({"tier": tier, "table": table})
        return tagged.writeStream.foreachBatch(self.handle).trigger(processingTime=configuration.tiers.every)

    def events(self, number: int) -> int:
        """How many events a recent micro-batch had; 0 if that is not known."""
        return dict(self._events).get(number, 0)

    def handle(self, events: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        kept = events.mapInArrow(by_gold, tagged_fields()).persist()
        try:
            found = kept.groupBy("tier", "table", "topic").agg(
                F.sum("rows").alias("rows"), F.min("least").alias("least"), F.max("most").alias("most")
            )
            parts: dict[tuple[str, str], list[Any]] = {}
            for one in found.collect():
                key = (one["tier"], one["table"] if one["tier"] in ("silver", "gold") else "")
                parts.setdefault(key, []).append(one)
            self._events.append((number, sum(one["rows"] for some in parts.values() for one in some)))
            query = query_of(self._spark)
            with ThreadPoolExecutor(self._landing_threads()) as threads:
                jobs = [
                    threads.submit(self._land, kept, tier, table, counted, number, query)
                    for (tier, table), counted in parts.items()
                ]
                for job in jobs:
                    job.result()
        finally:
            kept.unpersist()
        if self._retention is not None:
            self._retention.let_go(self.bronze.place(WRITER))

    def _landing_threads(self) -> int:
        """So many tables at a time that half of the cores are left for answers."""
        return max(1, min(LANDING_THREADS, int(self._spark.sparkContext.defaultParallelism) // 2))

    def _land(self, kept: DataFrame, tier: str, table: str, counted: list[Any], number: int, query: str) -> None:
        """What a micro-batch has for one table; ``counted`` by topic."""
        from pyspark.sql import functions as F

        where = self.all().get(tier if not table else f"{tier}/{table}")
        if where is None:
            return  # of a gold that the configuration had before
        rows = sum(one["rows"] for one in counted)
        known = where.known(WRITER, query, {one["topic"]: one["least"] for one in counted})
        packed = kept.where(F.col("tier") == tier).coalesce(max(1, -(-rows // ROWS_A_TASK)))
        packed = (packed.where(F.col("table") == table) if table else packed).select("topic", "offset", PACKED)
        if tier == "silver":
            some = self._clean(packed, self._configuration.silver_of(table), known)
        else:
            raw = without(opened(packed, raw_fields()), known)
            if tier == "bronze":
                some = dated(raw, "time")
            elif tier == "dead":
                some = self._dead(raw)
            else:
                some = self._answers(raw, next(one for one in self._configuration.gold if one.name == table))
        place = {one["topic"]: one["most"] + 1 for one in counted}
        where.land(WRITER, number, some, place=place, count=None if known else rows, query=query)

    def _clean(self, packed: DataFrame, silver: Silver, known: dict[str, int]) -> DataFrame:
        from pyspark.sql.types import StructType

        fields = body_fields(silver.fields, silver.type)
        envelope = [field for field in envelope_fields().fields if field.name != "parent"]
        events = without(opened(packed, StructType([*envelope, *fields.fields]), fields.names), known)
        return dated(shaped(events, silver, self._configuration.prefix("silver")), "time")

    def _dead(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        headers = F.col("headers")
        told = {name: headers[name] for name in ("table", "rule", "reason", "kind")}
        topic = F.substring("topic", len(self._configuration.prefix("dead")) + 1, 1 << 20)
        columns = {**told, "topic": topic, "dead_offset": F.col("offset"), "offset": headers["offset"].cast("long")}
        return dated(events.drop("parent").withColumns(columns), "time")

    def _answers(self, events: DataFrame, gold: Gold) -> DataFrame:
        fields = self.gold_fields(gold)
        renamed = events.select(events["topic"].alias("answer_topic"), "kind", "body")
        decoded = renamed.mapInArrow(_Plain(fields), fields)
        return dated(decoded, time_of(gold))

    def gold_fields(self, gold: Gold) -> StructType:
        if gold.name not in self._fields:
            self._fields[gold.name] = answer_fields(self._spark, self._configuration, gold)
        return self._fields[gold.name]

    def silver_fields(self, silver: Silver) -> StructType:
        """The columns of a silver table, with its key."""
        from pyspark.sql.types import StringType, StructType

        envelope = [field for field in envelope_fields().fields if field.name != "parent"]
        found = StructType(envelope)
        for name in silver.levels:
            found = found.add(name, StringType())
        found = StructType([*found.fields, *body_fields(silver.fields, silver.type).fields])
        return found.add("day", StringType())

    # Compaction.

    def compact(self) -> int:
        """Put small files together; how many are fewer."""
        asked = self._configuration.tiers
        return sum(
            table.compact(self._spark, asked.compact_files, asked.compact_bytes, self._stopping.is_set)
            for table in self.all().values()
        )

    def compacting(self) -> threading.Thread:
        """The thread that does it now and then, until ``stop``."""

        def work() -> None:
            while not self._stopping.wait(COMPACT_EVERY_S):
                try:
                    self.compact()
                except Exception as error:  # noqa: BLE001 - Java's and ours alike: it is tried again in a minute
                    log.warning("files were not compacted this time: %s", error)

        thread = threading.Thread(target=work, name="compaction", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stopping.set()


def tagged_fields() -> StructType:
    """Packed batches with their tier and table, how many events each has, and from which offset to which."""
    from pyspark.sql.types import LongType, StringType, StructType

    found = StructType([*packed_fields().fields]).add("tier", StringType()).add("table", StringType())
    return found.add("rows", LongType()).add("least", LongType()).add("most", LongType())


def by_gold(batches: Iterator[Any]) -> Iterator[Any]:
    """In executors: a batch of answers has those of one gold; what is no answer, on a topic of answers, goes."""
    import pyarrow as pa

    told = arrow_schema(tagged_fields())
    for rows in batches:
        tiers, tables = (rows.column(rows.schema.names.index(name)).to_pylist() for name in ("tier", "table"))
        found: list[tuple[Any, ...]] = []
        for tier, table, batch in zip(tiers, tables, unpacked(rows), strict=True):
            for name, part in _of_golds(batch).items() if tier == "gold" else ((table, batch),):
                ends = (len(part), int(part.offsets[0]), int(part.offsets[-1]))
                found.append((part.topic, part.offset, part.data, tier, name, *ends))
        columns = zip(*found, strict=True) if found else [()] * len(told)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, told, strict=True)], schema=told
        )


def _of_golds(batch: StoredBatch) -> dict[str, StoredBatch]:
    """By the gold that its header names."""
    places: dict[str, list[int]] = {}
    for place, headers in enumerate(batch.extra.headers):
        if headers and GOLD_HEADER in headers:
            places.setdefault(str(headers[GOLD_HEADER]), []).append(place)
    return {name: batch if len(some) == len(batch) else batch.chosen(some) for name, some in places.items()}


def raw_fields() -> StructType:
    from pyspark.sql.types import BinaryType, StringType

    return envelope_fields().add("kind", StringType()).add("body", BinaryType())


def opened(packed: DataFrame, fields: StructType, bodies: Sequence[str] = ()) -> DataFrame:
    """The events of packed batches, one a row, with these columns, of which some are fields of bodies."""
    return packed.mapInArrow(_Opener(Shape(fields, bodies, "fail")).opened, fields)


class _Opener(NamedTuple):
    shape: Shape

    def opened(self, batches: Iterator[Any]) -> Iterator[Any]:
        """In executors."""
        held: list[StoredBatch] = []
        events = 0
        for rows in batches:
            for batch in unpacked(rows):
                held.append(batch)
                events += len(batch)
                if events >= EVENTS_A_LOOK:
                    yield self.shape.table(held)
                    held, events = [], 0
        if held:
            yield self.shape.table(held)


class _Plain:
    """In executors: bodies of answers as columns; whatever they are called."""

    def __init__(self, fields: StructType) -> None:
        self._fields = fields

    def __call__(self, batches: Any) -> Any:
        import pyarrow as pa

        told = arrow_schema(self._fields)
        shape = Shape(self._fields, self._fields.names, "fail")
        for batch in batches:
            if batch.num_rows:
                body = batch.column(batch.schema.names.index("body"))
                columns, _ = shape.decoded(body.to_pylist(), False)
                yield pa.RecordBatch.from_arrays([columns[name] for name in told.names], schema=told)


def dated(table: DataFrame, column: str) -> DataFrame:
    return table.withColumn("day", day_of(column))
