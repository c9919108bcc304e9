"""Gold: standing answers on clean events, published once.

Golds that read the same silver tables share one standing query (``groups.py``): each is a branch of its plan, and the
branches are one stream of answers, so that a micro-batch is planned, run and committed once for all of them. A gold
that was removed stays a branch without answers, because the state of the others lies beside its own.

The same functions make a table of a table, for a backfill: ``enriched`` and ``answers`` take tables as well as streams.

A clean event is never late here, so Spark drops nothing. That needs micro-batches that end where those of the intake do
(``intake.py``): within a micro-batch of the intake times are in any order, and a query that read only a part of it
would take the rest for late. So a query takes all clean events that are there, however many; a commit of the intake is
seen whole.

A failed answer goes to ``NAME/problems/GOLD`` with a ``problem`` in its body: an attempt that a pattern gave up, an
answer whose values make no topic. One of them does not end the query for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...core.errors import BadTopic
from ...filters.spark import column
from ...pubsub.topics import checked_topic, is_channel
from ..columns import envelope_fields, named_fields
from ..decoding import body_fields
from ..functions import TIME, anomalies, join, last, top, windows
from ..patterns import PROBLEM, match_recognize
from ..source import register
from .groups import Group
from .parts import (
    AGGREGATE,
    PLACEHOLDER,
    WINDOWED,
    Configuration,
    Enrich,
    Gold,
    Silver,
    condition,
    pattern_of,
    time_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

BUCKETS = 8
"""How the state of patterns is divided; part of what a checkpoint means."""
GOLD_HEADER = "gold"
ANSWER = "topic string, time timestamp, headers map<string,string>, kind string, body binary"
Tables = Callable[[str], "DataFrame"]


def clean_events(
    spark: SparkSession, configuration: Configuration, silver: Silver, envelope: Sequence[str] = (), **options: str
) -> DataFrame:
    """The stream of a silver table: envelope (all of it, or these columns), levels and fields, under the topics of the
    raw events."""
    from pyspark.sql import functions as F

    register(spark)
    named = {"type": silver.type} if silver.type else {"fields": silver.fields}
    source = spark.readStream.format("pluribus").options(url=configuration.url, start="earliest", **named, **options)
    if envelope:
        source = source.option("columns", ",".join([*envelope, *body_fields(silver.fields, silver.type).names]))
    # A pattern with the prefix in front matches the clean topics of just this table.
    pattern = configuration.prefix("silver") + silver.topics
    watched = f"{pattern}/#" if is_channel(pattern) else pattern
    events = source.option("topic", watched).load()
    if watched != pattern:
        events = events.where(F.col("topic") == pattern)
    return shaped(events, silver, configuration.prefix("silver"))


def shaped(events: DataFrame, silver: Silver, prefix: str = "") -> DataFrame:
    """Columns of a silver table, in their order."""
    from pyspark.sql import functions as F

    topic = F.substring("topic", len(prefix) + 1, 1 << 20) if prefix else F.col("topic")
    parts = F.split(topic, "/")
    # Beyond the end of an array is null, not an error.
    levels = {name: F.get(parts, F.lit(level - 1)) for name, level in silver.levels.items()}
    fields = body_fields(silver.fields, silver.type).names
    kept = [name for name in ("topic", "offset", "id", "sender", "time", "headers") if name in events.columns]
    return events.withColumns({**levels, "topic": topic}).select(*kept, *levels, *fields)


def enriched(spark: SparkSession, configuration: Configuration, of: str | Sequence[str], tables: Tables) -> DataFrame:
    """A silver table, an enriched one, or several of them as one, with null where one has no such column."""
    names = [of] if isinstance(of, str) else list(of)
    found: DataFrame | None = None
    for name in names:
        step = next((one for one in configuration.enrich if one.name == name), None)
        one = tables(name) if step is None else _step(spark, configuration, step, tables)
        found = one if found is None else found.unionByName(one, allowMissingColumns=True)
    assert found is not None
    return found


def _step(spark: SparkSession, configuration: Configuration, step: Enrich, tables: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    events = enriched(spark, configuration, step.of, tables)
    if step.other:
        late = f"{max(configuration.silver_of(name).late_s for name in configuration.inputs(step.name))} seconds"
        right = tables(step.other)
        kept = [name for name in right.columns if name not in ("id", "sender", "headers", "offset")]
        return join(events, right.select(*kept), step.on, within=step.within, late=late)
    rows = read_table(spark, step)
    if not step.since:
        return events.join(F.broadcast(rows), step.on, "left").select(*events.columns, *_added(rows, step))
    keys = [F.col(f"events.{key}") == F.col(f"rows.{key}") for key in step.on]
    since = F.col(f"rows.{step.since}")
    valid = (F.col("events.time") >= since) & (
        F.col("rows.until").isNull() | (F.col("events.time") < F.col("rows.until"))
    )
    both = events.alias("events").join(F.broadcast(_versions(rows, step)).alias("rows"), [*keys, valid], "left")
    return both.select(
        *(F.col(f"events.{name}") for name in events.columns), *(F.col(f"rows.{name}") for name in _added(rows, step))
    )


def _added(rows: DataFrame, step: Enrich) -> list[str]:
    return [name for name in rows.columns if name not in step.on]


def _versions(rows: DataFrame, step: Enrich) -> DataFrame:
    """A row is valid from its time on, until the next one of its key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy(*step.on).orderBy(step.since)
    return rows.withColumn("until", F.lead(step.since).over(order))


def read_table(spark: SparkSession, step: Enrich) -> DataFrame:
    """A slowly changing table: CSV with a header, lines of JSON, or Parquet; the whole of it fits into memory.

    It is read here and now. A plan would read the file anew in every micro-batch, by the length that it had when the
    plan was made: of a file that is written meanwhile it would see a part.
    """
    from pyspark.sql import functions as F

    wanted = named_fields(step.columns)
    if step.table.endswith(".csv"):
        # By the names in the header. Given a schema, Spark goes by the order of its columns.
        text = spark.read.option("header", "true").csv(step.table)
        rows = text.select(*(F.col(f"`{field.name}`").cast(field.dataType) for field in wanted.fields))
    elif step.table.endswith((".json", ".jsonl")):
        rows = spark.read.schema(wanted).json(step.table)
    else:
        rows = spark.read.schema(wanted).parquet(step.table)
    return spark.createDataFrame(rows.toArrow(), wanted)


def answers(configuration: Configuration, gold: Gold, events: DataFrame, *, problems: bool = False) -> DataFrame:
    """The columns of an answer, one row each; with ``problems``, also the events that a pattern could not place, and
    why."""
    from pyspark.sql import functions as F

    inputs = [configuration.silver_of(name) for name in configuration.inputs(gold.of)]
    late_s = max(silver.late_s for silver in inputs)
    late = f"{int(late_s * 1_000)} milliseconds"
    every = gold.every or None
    match gold.kind:
        case "windows" | "top":
            values = {name: _aggregate(text) for name, text in gold.values.items()}
            found = windows(events, gold.width, every=every, by=gold.by, late=late, time=TIME, **values)
            if gold.kind == "top":
                found = top(found, gold.k, gold.score, by=["start"])
        case "anomalies":
            found = anomalies(events, gold.value, gold.width, by=gold.by, late=late)
        case "last":
            found = last(events, gold.by)
        case "pattern":
            found = match_recognize(events, gold.pattern, lateness_s=late_s, buckets=BUCKETS)
            if not problems:
                found = found.where(F.col(PROBLEM).isNull()).drop(PROBLEM)
        case "where":
            found = events  # without a watermark: it would be that of the chosen ones, and hold back the other golds
    if gold.where:
        kinds = {field.name: field.dataType.simpleString() for field in found.schema.fields}
        wanted = column(condition(gold.where, kinds).tree, found.schema)
        wanted = wanted | F.col(PROBLEM).isNotNull() if problems and gold.kind == "pattern" else wanted
        found = found.where(_behind_the_watermark(wanted) if gold.kind in WINDOWED else wanted)
    return found


def _behind_the_watermark(wanted: Column) -> Column:
    """The same condition, which stays behind the windows. Spark would move one on keys in front of them, and of the
    watermark, which would then be that of the chosen events: where these stop, this gold, and all that share its query,
    would wait for ever. What depends on the place where it is computed, and is no plain AND, is not moved."""
    from pyspark.sql import functions as F

    return wanted.eqNullSafe(F.spark_partition_id() >= 0)  # which is always true


def _aggregate(text: str) -> Column:
    from pyspark.sql import functions as F

    match = AGGREGATE.fullmatch(text)
    assert match is not None, "configurations are checked"
    name = {"stddev": "stddev_pop"}.get(match[1], match[1])
    found: Column = F.count(F.lit(1)) if match[2] == "*" else getattr(F, name)(match[2])
    return found


def left_out(gold: Gold) -> tuple[str, ...]:
    """The columns that are no part of its answers, where these are events with an envelope of their own."""
    return ("id", "sender", "headers", "offset") if gold.kind in ("where", "last") else ()


def _silent(found: DataFrame) -> DataFrame:
    """None of its rows, computed all the same: a condition that Spark cannot foresee."""
    from pyspark.sql import functions as F

    return found.where(F.spark_partition_id() < 0)


def published(configuration: Configuration, gold: Gold, found: DataFrame) -> DataFrame:
    """Answers as events: topic, time, and a body that has the columns as fields."""
    from pyspark.sql import functions as F

    literal = PLACEHOLDER.split(gold.topic)
    parts = [F.lit(part) if place % 2 == 0 else F.col(part).cast("string") for place, part in enumerate(literal)]
    told = gold.kind == "pattern"  # others may have a column of that name
    left = (*left_out(gold), *((PROBLEM,) if told else ()))
    body = [name for name in found.columns if name not in left]
    problem = (F.col(PROBLEM) if told else F.lit(None)).cast("string").alias("answer_problem")
    plain = found.select(
        F.concat(*parts).alias("answer_topic"), F.col(time_of(gold)).alias("answer_time"), problem, *body
    )
    encoder = Encoder(gold.name, tuple(body), configuration.prefix("problems") + gold.name)
    return plain.mapInArrow(encoder.encoded, ANSWER)


class Encoder(NamedTuple):
    """In executors: the columns of an answer become its body."""

    gold: str
    fields: tuple[str, ...]
    problems: str
    """The topic of failed answers."""

    def encoded(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        told = _arrow()
        encode = msgspec.msgpack.Encoder().encode
        header = [(GOLD_HEADER, self.gold)]
        for batch in batches:
            given = dict(zip(batch.schema.names, batch.columns, strict=True))
            values = [given[name].to_pylist(maps_as_pydicts="strict") for name in self.fields]
            rows = [dict(zip(self.fields, row, strict=True)) for row in zip(*values, strict=True)]
            topics = given["answer_topic"].to_pylist()
            headers: list[list[tuple[str, str]] | None] = [header] * batch.num_rows
            for place, reason in self._problems(topics, given["answer_problem"].to_pylist()).items():
                rows[place][PROBLEM] = reason
                topics[place], headers[place] = self.problems, None
            arrays = [
                pa.array(topics, pa.string()),
                given["answer_time"].cast(pa.timestamp("us", "UTC")),
                pa.array(headers, told.field("headers").type),
                pa.array(["data"] * batch.num_rows, pa.string()),
                pa.array(list(map(encode, rows)), pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=told)

    def _problems(self, topics: Sequence[str | None], told: Sequence[str | None]) -> dict[int, str]:
        """Which rows are failed answers, and why."""
        bad = {topic: reason for topic in set(topics) if (reason := _no_topic(topic))}
        found = {place: reason for place, reason in enumerate(told) if reason is not None}
        if bad:
            found = {place: bad[topic] for place, topic in enumerate(topics) if topic in bad} | found
        return found


def _no_topic(topic: str | None) -> str:
    """The reason why values make no topic; empty if they do."""
    if topic is None:
        return "a value of its topic is null"
    try:
        checked_topic(topic)
    except BadTopic as error:
        return str(error)
    return ""


def _arrow() -> Any:
    """``ANSWER``, as Arrow says it."""
    import pyarrow as pa

    return pa.schema(
        [
            ("topic", pa.string()),
            ("time", pa.timestamp("us", "UTC")),
            ("headers", pa.map_(pa.string(), pa.string())),
            ("kind", pa.string()),
            ("body", pa.binary()),
        ]
    )


def query(spark: SparkSession, configuration: Configuration, group: Group, begin: bool = False) -> Any:
    """The standing query of a group, not started; to ``begin`` anew, though keepers remember another state."""
    opened: dict[str, DataFrame] = {}
    # What no answer has need not be read. Of ``last``, whole events are the state, which stays as it is.
    envelope = () if group.mode == "update" else ("topic", "offset", "sender", "time")

    def tables(name: str) -> DataFrame:
        if name not in opened:
            opened[name] = clean_events(spark, configuration, configuration.silver_of(name), envelope)
        return opened[name]

    branches = []
    for gold in group.golds:
        events = enriched(spark, configuration, gold.of, tables)
        found = answers(configuration, gold, events, problems=True)
        branches.append(published(configuration, gold, _silent(found) if gold.name in group.silent else found))
    found = branches[0]
    for branch in branches[1:]:
        found = found.unionByName(branch)
    to = {"url": configuration.url, "writer": f"{configuration.name} {group.name}"}
    to["foreign"] = "begin" if begin else "fail"
    if group.mode == "append":
        return configuration.paced(found.writeStream.format("pluribus").options(**to))

    def publish(changed: DataFrame, number: int) -> None:
        """Data sources of Python take no updates from Spark; a numbered batch is once as well."""
        changed.write.format("pluribus").options(**to, batch=str(number)).mode("append").save()

    return configuration.paced(found.writeStream.outputMode(group.mode).foreachBatch(publish))


def answer_patterns(configuration: Configuration) -> list[str]:
    """The topics of all answers, each once."""
    return list(dict.fromkeys(pattern_of(gold.topic) for gold in configuration.gold))


def answer_fields(spark: SparkSession, configuration: Configuration, gold: Gold) -> StructType:
    """The columns of a gold, found by planning it on empty tables."""
    from pyspark.sql.types import StructType

    def tables(name: str) -> DataFrame:
        silver = configuration.silver_of(name)
        empty = StructType([field for field in envelope_fields().fields if field.name != "parent"])
        whole = StructType([*empty.fields, *body_fields(silver.fields, silver.type).fields])
        return shaped(spark.createDataFrame([], whole), silver)

    found = answers(configuration, gold, enriched(spark, configuration, gold.of, tables))
    return StructType([field for field in found.schema.fields if field.name not in left_out(gold)])
