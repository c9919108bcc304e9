"""Row patterns on Spark: the automaton that runs in a process, on DataFrames.

``match_recognize(df, pattern)`` gives the matches of a table, or of a stream, as a table or stream. The rows of a
partition must meet in one place, in order:

* a table is divided by PARTITION BY and sorted; each task goes through its rows once (``mapInArrow``);
* a stream is divided into *buckets*, by a hash of PARTITION BY. A bucket is one key of Spark's state store, and its
  value is the state of a matcher, with all its partitions. So a micro-batch costs a few calls, not one for each
  partition. The watermark is Spark's, over all tasks; a time-out is set to the moment at which time alone changes
  something. One bucket more holds the number of buckets, and has a row or more of each task sent to it: a query
  that goes on with another number is refused.

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
from .pattern_workers import LAYOUT, Crew, first_of_all

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

BUCKETS = 32
"""How a stream is divided. It is part of what a checkpoint means: keep it over restarts."""
BUCKETS_MAX = 65_536
PROBLEM = "problem"
_DELAY_KEY = "spark.watermarkDelayMs"
"""How Spark marks the column that carries a watermark."""


def match_recognize(
    df: DataFrame, pattern: Pattern | str, *, lateness_s: float = 0.0, buckets: int = BUCKETS
) -> DataFrame:
    """The matches of a pattern, one row each: the columns of PARTITION BY and the measures.

    With ALL ROWS PER MATCH: all columns of ``df`` and the measures, for each row of each match. A last column,
    ``problem``, is null for matches; other rows tell of an event that was late or had no time, or of an attempt that
    was given up. In a stream, events may be late by ``lateness_s``, as with ``Matcher``; ``df`` needs no watermark of
    its own. Raises ``BadPattern``, and ``BadInput`` for columns that are not there or that conditions cannot read.
    """
    pattern = parse(pattern) if isinstance(pattern, str) else pattern
    plan = _Plan(df, pattern)
    if df.isStreaming:
        return plan.stream(lateness_s, buckets)
    return plan.table()


class _Plan:
    """How the columns of a DataFrame become rows of the matcher, and its answers become columns."""

    def __init__(self, df: DataFrame, pattern: Pattern) -> None:
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
        taken = [PROBLEM, *(name for name, _ in self.measures)]
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
        delay_ms = round(lateness_s * 1_000)
        time = f.timestamp_micros((self.order[0].read().cast("double") * 1_000_000).cast("long"))
        keys = [each.read() for each in self.keys]
        bucket = f.pmod(f.hash(*keys), f.lit(buckets)) if keys else f.lit(0)
        timed = self.df.withColumn("pluribus_time", time).withWatermark("pluribus_time", f"{delay_ms} milliseconds")
        never = f.lit(None).cast("timestamp").alias("never", metadata={_DELAY_KEY: delay_ms})
        if self.all_rows:
            timed = timed.withColumn("pluribus_event", f.to_json(f.struct(*self.df.columns), _JSON))
        inputs = self.inputs()[:-1]
        events = [f.col("pluribus_event").alias("event")] if self.all_rows else []
        first = first_of_all()
        rows = timed.select(bucket.alias("bucket"), *inputs, *events, never)
        where = f.when(first("bucket"), f.array("bucket", f.lit(LAYOUT))).otherwise(f.array("bucket"))
        rows = rows.select(f.explode(where).alias("bucket"), *(name for name in rows.columns if name != "bucket"))
        crew = self.crew(lateness_s)._replace(buckets=buckets)
        found = rows.groupBy("bucket").applyInPandasWithState(
            crew.stream, crew.schema, "state binary", "append", "EventTimeTimeout"
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
            return rows.select(*kept, *measures, PROBLEM)
        names = [_name(path) for path in self.pattern.clauses.partition]
        keys = [
            restored(f.col(f"k{number}"), each.kind).alias(name)
            for number, (name, each) in enumerate(zip(names, self.keys, strict=True))
        ]
        return found.select(*keys, *measures, PROBLEM)


_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "true"}


def _name(path: Path) -> str:
    return ".".join(path)
