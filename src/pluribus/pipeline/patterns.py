"""Row patterns on Spark: the automaton that runs in a process, on DataFrames.

``match_recognize(df, pattern)`` gives the matches of a table, or of a stream, as a table or stream. The rows of a
partition must meet in one place, in order:

* a table is divided by PARTITION BY and sorted; each task goes through its rows once (``mapInArrow``);
* a stream is divided into *buckets*, by a hash of PARTITION BY (``transformWithState``). A bucket is one key of Spark's
  state store, which is RocksDB, and holds a map of partitions: the state of a partition is read and written only when
  one of its rows or time-outs comes. A micro-batch costs a few calls and the partitions that it touches, however many
  partitions there are. The watermark is Spark's, over all tasks; a time-out is set to the moment at which time alone
  changes something. One bucket more holds the layout, and has a row or more of each task sent to it: a query that goes
  on with another number of buckets, or another pattern, is refused.

**Chains.** A stream that has a watermark already (of ``withWatermark``, or because windows were made of it) is taken
with that: windows and then patterns. With ``event_time`` matches carry the time at which they became certain, and a
watermark with it: patterns and then windows, or other patterns. That time is the last row's, but never before the
watermark of the micro-batch that found the match, because what follows counts on nothing older.

Which process runs what: ``match_recognize`` only plans, on the driver. What travels to the workers is the text of the
pattern and some names (``pattern_workers.py``); it is compiled there once.

Spark leaves out late rows by itself, and only counts them. Here they reach the matcher, which reports them: the column
that Spark would compare with the watermark is always null.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..core.errors import BadInput
from ..filters.tree import Path
from ..patterns import Pattern, parse
from .pattern_columns import Column, column_of, measure_type, outer, restored
from .pattern_workers import CERTAIN, LAYOUT, Crew, PatternProcessor, first_of_all

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

BUCKETS = 32
"""The number of buckets of a stream. A checkpoint depends on it: keep it over restarts."""
BUCKETS_MAX = 65_536
PROBLEM = "problem"
STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch writes down what it changed, not whole files.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Settings that ``transformWithState`` needs. They are set in the session of the stream, for the queries that are
started there from then on; a query that goes on keeps the store of its checkpoint."""
_DELAY_KEY = "spark.watermarkDelayMs"
"""How Spark marks the column that carries a watermark."""


def match_recognize(
    df: DataFrame, pattern: Pattern | str, *, lateness_s: float = 0.0, buckets: int = BUCKETS, event_time: str = ""
) -> DataFrame:
    """The matches of a pattern, one row each: the columns of PARTITION BY and the measures.

    With ALL ROWS PER MATCH: all columns of ``df`` and the measures, for each row of each match. A last column,
    ``problem``, is null for matches; other rows tell of an event that was late or had no time, or of an attempt that
    was given up. In a stream, events may be late by ``lateness_s``, as with ``Matcher``; ``df`` needs no watermark of
    its own, and if it has one, that counts instead. ``event_time`` names one more column, a timestamp: when a match
    became certain; windows and patterns may follow on it. Raises ``BadPattern``, and ``BadInput`` for columns that are
    not there or that conditions cannot read.
    """
    pattern = parse(pattern) if isinstance(pattern, str) else pattern
    plan = _Plan(df, pattern, event_time)
    if df.isStreaming:
        return plan.stream(lateness_s, buckets)
    return plan.table()


class _Plan:
    """How the columns of a DataFrame become rows of the matcher, and its answers become columns."""

    def __init__(self, df: DataFrame, pattern: Pattern, event_time: str) -> None:
        from pyspark.sql import functions

        self.df = df
        self.pattern = pattern
        self.f = functions
        clauses = pattern.clauses
        self.order = [column_of(df.schema, path) for path in clauses.order]
        self.keys = [column_of(df.schema, path, key=True) for path in clauses.partition]
        self.columns = [column_of(df.schema, path) for path in pattern.columns]
        self.measures = [(each.name, measure_type(each.value, df.schema, pattern)) for each in clauses.measures]
        self.all_rows = clauses.all_rows
        self.event_time = event_time
        taken = [PROBLEM, *(name for name, _ in self.measures), *([event_time] if event_time else [])]
        kept = df.columns if self.all_rows else [_name(path) for path in clauses.partition]
        for name in taken:
            if [*taken, *kept].count(name) > 1:
                raise BadInput(f"two columns of the answer would be called {name!r}: rename the measure or the column")

    @property
    def sources(self) -> list[Column]:
        """In the order in which ``Rows.of_values`` takes them."""
        return [*self.order, *self.keys, *self.columns]

    def inputs(self) -> list[SparkColumn]:
        f = self.f
        event = f.to_json(f.struct("*"), _JSON) if self.all_rows else f.lit(None).cast("string")
        return [*(each.read().alias(f"v{number}") for number, each in enumerate(self.sources)), event.alias("event")]

    def crew(self, lateness_s: float = 0.0) -> Crew:
        fields = [
            *((f"k{number}", each.carried) for number, each in enumerate(self.keys)),
            *((f"m{number}", outer(kind)) for number, (_, kind) in enumerate(self.measures)),
            ("event", "string"),
            (PROBLEM, "string"),
            *([(CERTAIN, "timestamp")] if self.event_time else []),
        ]
        whole = tuple(each.whole for each in self.sources)
        return Crew(self.pattern.text, len(self.order), len(self.keys), whole, tuple(fields), lateness_s)

    def table(self) -> DataFrame:
        f = self.f
        rows = self.df.select(*self.inputs())
        keys = [f"v{len(self.order) + number}" for number in range(len(self.keys))]
        order = [f"v{number}" for number in range(len(self.order))]
        divided = rows.repartition(*keys) if keys else rows.coalesce(1)
        ordered = divided.sortWithinPartitions(*(f.asc_nulls_first(name) for name in (*keys, *order)))
        return self.answers(ordered.mapInArrow(self.crew().table, self.crew().schema))

    def stream(self, lateness_s: float, buckets: int) -> DataFrame:
        f = self.f
        if not 1 <= buckets <= BUCKETS_MAX:
            raise BadInput(f"buckets={buckets}: divide the stream into 1 to {BUCKETS_MAX}")
        if not 0 <= lateness_s < math.inf:
            raise BadInput(f"lateness_s={lateness_s}: give the seconds by which events may be late, 0 or more")
        for name, value in STATE.items():
            self.df.sparkSession.conf.set(name, value)
        own_ms = [field.metadata[_DELAY_KEY] for field in self.df.schema.fields if _DELAY_KEY in field.metadata]
        delay_ms = max(own_ms) if own_ms else round(lateness_s * 1_000)
        keys = [each.read() for each in self.keys]
        bucket = f.pmod(f.hash(*keys), f.lit(buckets)) if keys else f.lit(0)
        timed = self.df
        if not own_ms:
            time = f.timestamp_micros((self.order[0].read().cast("double") * 1_000_000).cast("long"))
            timed = timed.withColumn("pluribus_time", time).withWatermark("pluribus_time", f"{delay_ms} milliseconds")
        never = f.lit(None).cast("timestamp").alias("never", metadata={_DELAY_KEY: delay_ms})
        if self.all_rows:
            timed = timed.withColumn("pluribus_event", f.to_json(f.struct(*self.df.columns), _JSON))
        inputs = self.inputs()[:-1]
        events = [f.col("pluribus_event").alias("event")] if self.all_rows else []
        first = first_of_all()
        rows = timed.select(bucket.alias("bucket"), *inputs, *events, never)
        where = f.when(first("bucket"), f.array("bucket", f.lit(LAYOUT))).otherwise(f.array("bucket"))
        rows = rows.select(f.explode(where).alias("bucket"), *(name for name in rows.columns if name != "bucket"))
        crew = self.crew(delay_ms / 1_000)._replace(buckets=buckets)
        found = rows.groupBy("bucket").transformWithStateInPandas(
            PatternProcessor(crew), crew.schema, "append", "EventTime", None, CERTAIN if self.event_time else ""
        )
        return self.answers(found)

    def answers(self, found: DataFrame) -> DataFrame:
        f = self.f
        measures = [
            restored(f.col(f"m{number}"), kind).alias(name) for number, (name, kind) in enumerate(self.measures)
        ]
        if self.all_rows:
            rows = found.withColumn("row", f.from_json("event", self.df.schema, _JSON))
            kept = [f.col("row").getField(name).alias(name) for name in self.df.columns]
            return rows.select(*kept, *measures, PROBLEM, *self.certain())
        names = [_name(path) for path in self.pattern.clauses.partition]
        keys = [
            restored(f.col(f"k{number}"), each.kind).alias(name)
            for number, (name, each) in enumerate(zip(names, self.keys, strict=True))
        ]
        return found.select(*keys, *measures, PROBLEM, *self.certain())

    def certain(self) -> list[SparkColumn]:
        """The column of event time, if one is wanted."""
        return [self.f.col(CERTAIN).alias(self.event_time)] if self.event_time else []


_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "true"}


def _name(path: Path) -> str:
    return ".".join(path)
