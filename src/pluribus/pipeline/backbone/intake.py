"""The intake: raw events of durable topics become clean ones and dead ones, each once, and are counted.

One standing query reads the topics of all silver tables. A micro-batch is judged in executors (``verdicts.py``), kept
in memory, and:

1. duplicates are found: of good events with the same key, in this batch or in a batch before within ``late``, the first
   one is good;
2. verdicts are counted, and the batch's entry of the report is prepared (``report.py``);
3. good events are published to ``NAME/silver/TOPIC``, dead ones to ``NAME/dead/TOPIC`` with rule and reason in their
   headers, in one commit of one writer, so all of it or nothing;
4. the entry is done.

Bodies are not touched: a clean event has the bytes, identity, time and headers of the raw one. Later queries read clean
topics, so an event is late here or nowhere: a query that reads them with a lateness of ``late`` or more, and each
commit whole, has seen no time that was not seen here before, so its watermark is never ahead of this one's.

Keys of good events are remembered in ``seen/N`` below the state, for as long as an event that is not late can be within
``late`` of them; every ``SEEN_FOLD`` batches they are put together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput
from ...pubsub.topics import is_channel
from ...runtime.clients.log_client import LogClient
from ..files import Files
from ..landing import day_of, query_of
from ..source import register
from .configuration import BODY, Configuration
from .report import Entry, Report, rows_of
from .verdicts import DEAD, DUPLICATE, GOOD, NEVER_US, Judge, judged_fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

SEEN_FOLD = 16
SEEN = "table string, key binary, time timestamp"
WRITTEN = ("topic", "id", "sender", "time", "parent", "headers", "kind", "body")


def events_of(spark: SparkSession, url: str, patterns: Sequence[str], **options: str) -> DataFrame:
    """One stream of all topics that match, as a single source: each is a process beside the driver. Topics need not be
    there yet."""
    # A single topic would have to be there: its levels below are watched too, and there are none.
    watched = [f"{one}/#" if len(patterns) == 1 and is_channel(one) else one for one in patterns]
    register(spark)
    source = spark.readStream.format("pluribus").options(url=url, topics=",".join(watched), start="earliest")
    return source.options(**options).load()


def table_of(configuration: Configuration, topic: Column) -> Column:
    """The name of the silver table that a topic belongs to, else null."""
    from pyspark.sql import functions as F

    found = F.lit(None).cast("string")
    for silver in configuration.silver:
        found = F.when(topic.rlike(_regex(silver.topics)), F.lit(silver.name)).otherwise(found)
    return found


def _regex(pattern: str) -> str:
    """A pattern of topics as a regular expression of Java."""
    levels = pattern.split("/")
    rest = levels[-1] == "#"
    named = ["[^/]+" if level == "+" else rf"\Q{level}\E" for level in (levels[:-1] if rest else levels)]
    whole = "/".join(named)
    if not rest:
        return f"^{whole}$"
    return f"^{whole}(/.*)?$" if whole else "^.*$"


class Intake:
    """The work on each micro-batch, beside the driver."""

    def __init__(
        self, spark: SparkSession, configuration: Configuration, files: Files, run: str, begin: bool = False
    ) -> None:
        """``begin`` anew, though keepers remember another state."""
        self._foreign = "begin" if begin else "fail"
        self._spark = spark
        self._configuration = configuration
        self._files = files
        self._run = run
        self.report = Report(files)
        self.writer = f"{configuration.name} intake"
        self._keyed = [silver for silver in configuration.silver if silver.unique]

    def query(self) -> Any:
        """The standing query, not started."""
        from pyspark.sql import functions as F

        configuration = self._configuration
        patterns = [silver.topics for silver in configuration.silver]
        limits = {"rows": str(configuration.rows), "gaps": configuration.gaps}
        events = events_of(self._spark, configuration.url, patterns, **limits)
        named = events.withColumn("table", table_of(configuration, F.col("topic")))
        return configuration.paced(named.where(F.col("table").isNotNull()).writeStream.foreachBatch(self.handle))

    def handle(self, events: DataFrame, number: int) -> None:
        query = query_of(self._spark)
        before = self.report.summary
        if before.number >= 0 and before.query != query:
            raise BadInput(
                f"the report in {self._files.root} is of another checkpoint than this one: they belong together, "
                "restore both, or begin with an empty state"
            )
        if number <= before.number or self._published_before(number, query):
            return
        schema = judged_fields(events.schema)
        judge = Judge(tuple(self._configuration.silver), dict(before.watermarks_us), schema, time.time())
        judged = events.mapInArrow(judge.judged, schema).persist()
        try:
            entry, clean = self._counted(judged, Entry(number, query, self._run))
            self.report.prepare(entry)
            self._publish(clean, number)
            self.report.commit(entry)
        finally:
            judged.unpersist()
        self._forget_keys(entry)

    def _published_before(self, number: int, query: str) -> bool:
        """If a driver was killed after its commit, the prepared entry is the one that was published."""
        entry = self.report.prepared(number)
        if entry is None:
            return False
        with LogClient(self._configuration.url) as keepers:
            if keepers.last_batch(self.writer, query=query) < number:
                return False
        self.report.commit(entry)
        return True

    def _counted(self, judged: DataFrame, entry: Entry) -> tuple[Entry, DataFrame]:
        from pyspark.sql import functions as F

        if self._keyed:
            judged = self._without_duplicates(judged)
        day = day_of("time").alias("day")
        grouped = judged.groupBy("table", "topic", day, "verdict", "rule").agg(
            F.count("*").alias("rows"),
            F.min("offset").alias("least"),
            F.max("offset").alias("most"),
            F.max(F.unix_micros("time")).alias("newest"),
        )
        counted = [row.asDict() for row in grouped.collect()]
        before = self.report.summary
        entry.rows, entry.next = rows_of(self._run, counted, before.next)
        for one in counted:
            if one["rule"]:
                name = f"{one['table']}/{one['rule']}"
                entry.rules[name] = entry.rules.get(name, 0) + one["rows"]
        late_us = {silver.name: int(silver.late_s * 1e6) for silver in self._configuration.silver}
        for table in late_us:
            newest = [one["newest"] for one in counted if one["table"] == table and one["verdict"] == GOOD]
            if newest:
                known = before.watermarks_us.get(table, NEVER_US)
                entry.watermarks_us[table] = max(known, max(newest) - late_us[table])
        if self._keyed:
            self._remember_keys(judged, entry)
        return entry, judged

    # Duplicates.

    def _seen(self, batches: list[int], watermarks_us: Mapping[str, int]) -> DataFrame:
        """Keys of good events before, as far back as a duplicate can be: it is not late, and within ``late``."""
        from pyspark.sql import functions as F

        if not batches:
            return self._spark.createDataFrame([], SEEN)
        found = self._spark.read.schema(SEEN).parquet(*(self._files.under(f"seen/{one}") for one in batches))
        for silver in self._keyed:
            if (watermark_us := watermarks_us.get(silver.name)) is not None:
                since = F.timestamp_micros(F.lit(watermark_us - int(silver.late_s * 1e6)))
                found = found.where((F.col("table") != silver.name) | (F.col("time") >= since))
        return found

    def _without_duplicates(self, judged: DataFrame) -> DataFrame:
        """Sorting all keys would cost most of a micro-batch. So keys are counted by their hash first, which takes one
        pass, and only keys with a hash that is there more than once are compared."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        before = self.report.summary
        ours = judged.where(F.col("key").isNotNull()).select("table", "key", "time", "topic", "offset")
        old = self._seen(before.seen, before.watermarks_us).select(
            "table", "key", "time", F.lit("").alias("topic"), F.lit(-1).cast("long").alias("offset")
        )
        hashed = F.xxhash64("table", "key").alias("hash")
        counted = ours.select(hashed).unionByName(old.select(hashed)).groupBy("hash").count()
        several = [(row["hash"],) for row in counted.where("count > 1").collect()]
        if not several:
            return judged
        doubtful = F.broadcast(self._spark.createDataFrame(several, "hash long"))
        both = ours.unionByName(old).withColumn("hash", hashed).join(doubtful, "hash", "left_semi")
        # What was seen before stands first, so that it is the one that stays.
        order = Window.partitionBy("table", "key").orderBy(
            (F.col("offset") >= 0).cast("int"), "time", "topic", "offset"
        )
        again = both.withColumn("place", F.row_number().over(order)).where("place > 1 AND offset >= 0")
        found = [(row["topic"], row["offset"]) for row in again.select("topic", "offset").collect()]
        if not found:
            return judged
        marked = self._spark.createDataFrame(found, "again_topic string, again_offset long")
        same = (F.col("topic") == F.col("again_topic")) & (F.col("offset") == F.col("again_offset"))
        beside = judged.join(F.broadcast(marked), same, "left")
        verdict = F.when(F.col("again_topic").isNotNull(), F.lit(DUPLICATE)).otherwise(F.col("verdict"))
        return beside.withColumn("verdict", verdict).drop("again_topic", "again_offset")

    def _remember_keys(self, judged: DataFrame, entry: Entry) -> None:
        from pyspark.sql import functions as F

        keys = judged.where((F.col("verdict") == GOOD) & F.col("key").isNotNull()).select("table", "key", "time")
        kept = list(self.report.summary.seen)
        if len(kept) + 1 >= SEEN_FOLD:
            watermarks_us = {**self.report.summary.watermarks_us, **entry.watermarks_us}
            keys = keys.unionByName(self._seen(kept, watermarks_us))
            kept = []
        keys.coalesce(1).write.mode("overwrite").parquet(self._files.under(f"seen/{entry.number}"))
        entry.seen = [*kept, entry.number]

    def _forget_keys(self, entry: Entry) -> None:
        if len(entry.seen) == 1:
            names = {found.path.split("/")[1] for found in self._files.list("seen")}
            for name in names - {str(one) for one in entry.seen}:
                self._files.remove(f"seen/{name}")

    # Publishing.

    def _publish(self, judged: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        dead = F.col("verdict") == DEAD
        prefix = F.when(dead, F.lit(self._configuration.prefix("dead"))).otherwise(
            F.lit(self._configuration.prefix("silver"))
        )
        told = {"table": "table", "rule": "rule", "reason": "reason", "offset": "offset", "kind": "kind"}
        pairs = [part for name, column in told.items() for part in (F.lit(name), F.col(column).cast("string"))]
        none = F.create_map().cast("map<string,string>")
        # An event that is sent round again may come back with headers of these names.
        others = F.map_filter(F.coalesce(F.col("headers"), none), lambda name, _: ~name.isin(*told))
        headers = F.when(dead, F.map_concat(others, F.create_map(*pairs)))
        written = judged.where(F.col("verdict").isin(GOOD, DEAD)).select(
            F.concat(prefix, F.col("topic")).alias("topic"),
            "id",
            "sender",
            "time",
            "parent",
            headers.otherwise(F.col("headers")).alias("headers"),
            # A body that does not decode cannot be written as anything but bytes.
            F.when(dead & (F.col("rule") == BODY), F.lit("bytes")).otherwise(F.col("kind")).alias("kind"),
            "body",
        )
        sink = written.write.format("pluribus").options(url=self._configuration.url, writer=self.writer)
        sink.option("batch", str(number)).option("foreign", self._foreign).mode("append").save()
