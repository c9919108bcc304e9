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
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..columns import envelope_fields
from ..decoding import body_fields, decode
from ..landing import COMPACTOR, Landing, day_of, query_of, without
from ..retention import Retention
from .answers import GOLD_HEADER, answer_fields, answer_patterns, shaped
from .configuration import Configuration, Gold, Silver, seconds, time_of
from .intake import events_of, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

WRITER = "tiers"
LANDING_THREADS = 2
ROWS_A_TASK = 500_000
COMPACT_EVERY_S = 60.0


def bronze_fields() -> StructType:
    from pyspark.sql.types import BinaryType, StringType

    return envelope_fields().add("kind", StringType()).add("body", BinaryType()).add("day", StringType())


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
        from pyspark.sql import functions as F

        configuration = self._configuration
        clean, dead = configuration.prefix("silver"), configuration.prefix("dead")
        patterns = [*(one.topics for one in configuration.silver), f"{clean}#", f"{dead}#"]
        limits = {"rows": str(10 * configuration.rows), "gaps": configuration.gaps}
        patterns += answer_patterns(configuration)
        events = events_of(self._spark, configuration.url, patterns, **limits)
        topic, gold = F.col("topic"), F.col("headers")[GOLD_HEADER]
        tier = F.when(topic.startswith(clean), F.lit("silver")).when(topic.startswith(dead), F.lit("dead"))
        raw = table_of(configuration, topic)
        tier = tier.when(raw.isNotNull(), F.lit("bronze")).when(gold.isNotNull(), F.lit("gold"))
        behind = F.substring(topic, len(clean) + 1, 1 << 20)
        table = F.when(tier == "silver", table_of(configuration, behind)).when(tier == "gold", gold)
        tagged = events.withColumns({"tier": tier, "table": table}).where(F.col("tier").isNotNull())
        return tagged.writeStream.foreachBatch(self.handle).trigger(processingTime=configuration.tiers.every)

    def handle(self, events: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        kept = events.withColumn("day", day_of("time")).persist()
        try:
            found = kept.groupBy("tier", "table", "topic").agg(
                F.count("*").alias("rows"), F.min("offset").alias("least"), F.max("offset").alias("most")
            )
            parts: dict[tuple[str, str], list[Any]] = {}
            for one in found.collect():
                key = (one["tier"], one["table"] if one["tier"] in ("silver", "gold") else "")
                parts.setdefault(key, []).append(one)
            query = query_of(self._spark)
            with ThreadPoolExecutor(LANDING_THREADS) as threads:
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

    def _land(self, kept: DataFrame, tier: str, table: str, counted: list[Any], number: int, query: str) -> None:
        """What a micro-batch has for one table; ``counted`` by topic."""
        from pyspark.sql import functions as F

        where = self.all().get(tier if not table else f"{tier}/{table}")
        if where is None:
            return  # of a gold that the configuration had before
        rows = sum(one["rows"] for one in counted)
        known = where.known(WRITER, query, {one["topic"]: one["least"] for one in counted})
        some = kept.where(F.col("tier") == tier).coalesce(max(1, -(-rows // ROWS_A_TASK)))
        some = without(some.where(F.col("table") == table) if table else some, known)
        if tier == "bronze":
            some = some.drop("tier", "table")
        elif tier == "dead":
            some = self._dead(some)
        elif tier == "silver":
            some = self._clean(some, self._configuration.silver_of(table))
        else:
            some = self._answers(some, next(one for one in self._configuration.gold if one.name == table))
        place = {one["topic"]: one["most"] + 1 for one in counted}
        where.land(WRITER, number, some, place=place, count=None if known else rows, query=query)

    def _clean(self, events: DataFrame, silver: Silver) -> DataFrame:
        decoded = decode(events.drop("tier", "table", "parent"), fields=silver.fields, type=silver.type)
        found = shaped(decoded.drop("day"), silver, self._configuration.prefix("silver"))
        return dated(found, "time")

    def _dead(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        headers = F.col("headers")
        told = {name: headers[name] for name in ("table", "rule", "reason", "kind")}
        topic = F.substring("topic", len(self._configuration.prefix("dead")) + 1, 1 << 20)
        columns = {**told, "topic": topic, "dead_offset": F.col("offset"), "offset": headers["offset"].cast("long")}
        return events.drop("tier", "table", "parent").withColumns(columns)

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


class _Plain:
    """In executors: bodies of answers as columns; whatever they are called."""

    def __init__(self, fields: StructType) -> None:
        self._fields = fields

    def __call__(self, batches: Any) -> Any:
        import pyarrow as pa

        from ..columns import arrow_schema
        from ..tables import Shape

        told = arrow_schema(self._fields)
        shape = Shape(self._fields, self._fields.names, "fail")
        for batch in batches:
            if batch.num_rows:
                body = batch.column(batch.schema.names.index("body"))
                columns, _ = shape.decoded(body.to_pylist(), False)
                yield pa.RecordBatch.from_arrays([columns[name] for name in told.names], schema=told)


def dated(table: DataFrame, column: str) -> DataFrame:
    return table.withColumn("day", day_of(column))
