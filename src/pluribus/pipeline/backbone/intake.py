"""The intake: raw events of durable topics become clean ones and dead ones, each once, and are counted.

One standing query reads the topics of all silver tables, in the packed batches in which they lie. A micro-batch is
judged in executors (``verdicts.py``, ``sorting.py``), kept in memory with its verdicts, and:

1. duplicates are found: of good events with the same key, in this batch or in a batch before within ``late``, the first
   one is good;
2. counts are added up, and the batch's entry of the report is prepared (``report.py``);
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
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput
from ...pubsub.topics import is_channel
from ...runtime.clients.log_client import LogClient
from ..columns import PACKED
from ..files import Files
from ..landing import query_of
from ..source import register
from .parts import Configuration
from .report import Entry, Report, rows_of
from .sorting import Copier, Sorter, Tallier, copy_fields, counted, sorted_fields, tally_fields
from .verdicts import GOOD, NEVER_US

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger(__name__)

SEEN_FOLD = 16
EVENTS_REMEMBERED = 100
"""Micro-batches of which the number of events is remembered, for progress."""
SEEN = "table string, key binary, time timestamp"


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
        self._events: deque[tuple[int, int]] = deque(maxlen=EVENTS_REMEMBERED)
        """By micro-batch."""

    def query(self) -> Any:
        """The standing query, not started. A row is a packed batch."""
        from pyspark.sql import functions as F

        configuration = self._configuration
        patterns = [silver.topics for silver in configuration.silver]
        limits = {"rows": str(configuration.rows), "gaps": configuration.gaps, "packed": "true"}
        events = events_of(self._spark, configuration.url, patterns, **limits)
        named = events.withColumn("table", table_of(configuration, F.col("topic")))
        return configuration.paced(named.where(F.col("table").isNotNull()).writeStream.foreachBatch(self.handle))

    def events(self, number: int) -> int:
        """How many events a recent micro-batch had; 0 if that is not known."""
        return dict(self._events).get(number, 0)

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
        sorter = Sorter(tuple(self._configuration.silver), dict(before.watermarks_us), time.time())
        found = events.mapInArrow(sorter.sort, sorted_fields()).persist()
        try:
            entry, again = self._counted(found, Entry(number, query, self._run))
            self._events.append((number, sum(row.read for row in entry.rows)))
            self.report.prepare(entry)
            self._publish(found.where("tallies IS NULL"), again, number)
            self.report.commit(entry)
        finally:
            found.unpersist()
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

    def _counted(self, found: DataFrame, entry: Entry) -> tuple[Entry, dict[str, list[int]]]:
        """The entry filled in, and the offsets of duplicates by topic."""
        told = found.where("tallies IS NOT NULL").select("tallies")
        events = found.where("tallies IS NULL")
        tallies = counted([row["tallies"] for row in told.collect()])
        again: dict[str, list[int]] = {}
        if self._keyed:
            keyed = events.where("keys IS NOT NULL")
            again = self._again(keyed)
            if again:
                told = events.mapInArrow(Tallier(again).tally, tally_fields())
                tallies = counted([row["tallies"] for row in told.collect()])
        before = self.report.summary
        entry.rows, entry.next = rows_of(self._run, tallies, before.next)
        for one in tallies:
            if one["rule"]:
                name = f"{one['table']}/{one['rule']}"
                entry.rules[name] = entry.rules.get(name, 0) + one["rows"]
        late_us = {silver.name: int(silver.late_s * 1e6) for silver in self._configuration.silver}
        for table in late_us:
            newest = [one["newest"] for one in tallies if one["table"] == table and one["verdict"] == GOOD]
            if newest:
                known = before.watermarks_us.get(table, NEVER_US)
                entry.watermarks_us[table] = max(known, max(newest) - late_us[table])
        if self._keyed:
            self._remember_keys(keyed, again, entry)
        return entry, again

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

    def _again(self, keyed: DataFrame) -> dict[str, list[int]]:
        """Sorting all keys would cost most of a micro-batch. So keys are counted by their hash first, which takes one
        pass, and only keys with a hash that is there more than once are compared."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        before = self.report.summary
        old = self._seen(before.seen, before.watermarks_us)
        hashed = F.xxhash64("table", "key").alias("hash")
        keys = keyed.select("table", F.explode("keys").alias("key")).select(hashed)
        counted = keys.unionByName(old.select(hashed)).groupBy("hash").count()
        several = [(row["hash"],) for row in counted.where("count > 1").collect()]
        if not several:
            return {}
        doubtful = F.broadcast(self._spark.createDataFrame(several, "hash long"))
        old = old.select("table", "key", "time", F.lit("").alias("topic"), F.lit(-1).cast("long").alias("offset"))
        both = _one_by_one(keyed).unionByName(old).withColumn("hash", hashed).join(doubtful, "hash", "left_semi")
        # What was seen before stands first, so that it is the one that stays.
        order = Window.partitionBy("table", "key").orderBy(
            (F.col("offset") >= 0).cast("int"), "time", "topic", "offset"
        )
        again = both.withColumn("place", F.row_number().over(order)).where("place > 1 AND offset >= 0")
        found: dict[str, list[int]] = {}
        for row in again.select("topic", "offset").collect():
            found.setdefault(row["topic"], []).append(row["offset"])
        return found

    def _remember_keys(self, keyed: DataFrame, again: Mapping[str, Sequence[int]], entry: Entry) -> None:
        from pyspark.sql import functions as F

        rows = _one_by_one(keyed)
        if again:
            marks = [(topic, offset) for topic, offsets in again.items() for offset in offsets]
            marked = self._spark.createDataFrame(marks, "topic string, offset long")
            rows = rows.join(F.broadcast(marked), ["topic", "offset"], "left_anti")
        keys = rows.select("table", "key", "time")
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

    def _publish(self, events: DataFrame, again: Mapping[str, Sequence[int]], number: int) -> None:
        clean, dead = (self._configuration.prefix(what) for what in ("silver", "dead"))
        rows = events.select("table", "topic", "offset", PACKED, "verdicts", "broken")
        written = rows.mapInArrow(Copier(clean, dead, again).copy, copy_fields())
        sink = written.write.format("pluribus").options(url=self._configuration.url, writer=self.writer)
        sink.option("batch", str(number)).option("foreign", self._foreign).mode("append").save()


def _one_by_one(keyed: DataFrame) -> DataFrame:
    """Keys as rows, each with the time and place of its event."""
    from pyspark.sql import functions as F

    rows = keyed.select("table", "topic", F.explode(F.arrays_zip("keys", "offsets", "times")).alias("one"))
    key, offset = F.col("one.keys").alias("key"), F.col("one.offsets").alias("offset")
    return rows.select("table", key, F.timestamp_micros("one.times").alias("time"), "topic", offset)
