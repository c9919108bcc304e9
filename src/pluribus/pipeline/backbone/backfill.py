"""Backfill: a range of time computed again from bronze, with the rules and golds of today.

Events from ``start`` up to ``stop`` are judged again, this time with all that came late, and silver, dead and gold rows
of that range take the place of the old ones: whole partitions (days) are replaced, with the rows outside of the range
as they were. Topics are not written to.

**No gap.** The intake must be past ``stop`` and the lateness behind it, and bronze must hold every event of the range
that the intake has read; else the backfill is refused with the time up to which it can go. **No overlap.** The range
becomes a *fence* of each table (``pipeline/landing.py``): rows of it that are still on their way through topics were
computed here, and do not land again. What the live queries compute behind ``stop`` is theirs.

Windows and patterns look beyond the range: they are given what lies a *margin* before and behind it, and only answers
of the range itself are kept.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput
from ...patterns import parse as parse_pattern
from ...runtime.clients.log_client import LogClient
from ..decoding import decode
from ..files import files_of
from ..landing import Landing, days_between, on_days
from ..sharing import check_shared
from .answers import answers, enriched, shaped
from .intake import table_of
from .parts import Configuration, Gold, Silver, seconds, time_of
from .report import Report
from .tiers import WRITER, Tiers, bronze_fields, dated
from .verdicts import DEAD, DROPPED, GOOD, Judge, judged_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BACKFILL = "backfill"
TRIES = 5
PATTERN_MARGIN_S = 3_600.0
"""The margin of a pattern without WITHIN INTERVAL."""


def backfill(spark: SparkSession, configuration: Configuration, start: datetime, stop: datetime) -> dict[str, Any]:
    """Compute a range again. May run beside a live backbone on the same disk. Returns the counts of its events."""
    from pyspark.sql import functions as F

    start, stop = checked_range(start, stop)
    check_shared(spark, configuration.state, configuration.tables)
    tiers = Tiers(spark, configuration)
    low, high = _us(start), _us(stop)
    margin_us = int(max((_margin_s(configuration, gold) for gold in configuration.gold), default=0.0) * 1e6)
    _check_complete(spark, configuration, tiers, high + margin_us, margin_us)
    raw = _raw(spark, configuration, tiers, low - margin_us, high + margin_us).persist()
    judged = _judged(configuration, raw).persist()
    try:
        inside = judged.where(_within("time", low, high))
        counted = {row["verdict"]: row["count"] for row in inside.groupBy("verdict").count().collect()}
        _replace(spark, tiers.dead, _dead(inside.where(F.col("verdict") == DEAD)), low, high)
        clean: dict[str, DataFrame] = {}
        for silver in configuration.silver:
            clean[silver.name] = _clean(judged, silver)
            rows = dated(clean[silver.name].where(_within("time", low, high)), "time")
            _replace(spark, tiers.silver[silver.name], rows, low, high)
        found: dict[str, int] = {}
        for gold in configuration.gold:
            table = answers(configuration, gold, enriched(spark, configuration, gold.of, clean.__getitem__))
            kept = [field.name for field in tiers.gold_fields(gold).fields]
            rows = dated(table.select(*kept).where(_within(time_of(gold), low, high)), time_of(gold)).persist()
            found[gold.name] = rows.count()
            _replace(spark, tiers.gold[gold.name], rows, low, high)
            rows.unpersist()
    finally:
        judged.unpersist()
        raw.unpersist()
    verdicts = {name: counted.get(name, 0) for name in (GOOD, DEAD, DROPPED, "duplicate")}
    read = sum(counted.values())
    return {"read": read, **verdicts, "adds_up": read == sum(verdicts.values()), "gold": found}


def checked_range(start: datetime, stop: datetime) -> tuple[datetime, datetime]:
    """Two moments, of UTC if they do not say; ``BadInput`` if nothing is between them."""
    start, stop = (one if one.tzinfo is not None else one.replace(tzinfo=UTC) for one in (start, stop))
    if not start < stop:
        raise BadInput(
            f"from {start:%Y-%m-%d %H:%M:%S} to {stop:%Y-%m-%d %H:%M:%S} is no time: let it begin before it ends"
        )
    return start, stop


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def _within(column: str, low: int, high: int) -> Any:
    from pyspark.sql import functions as F

    moment = F.unix_micros(F.col(column))
    return (moment >= low) & (moment < high)


def _margin_s(configuration: Configuration, gold: Gold) -> float:
    """How far beyond the range a gold has to read."""
    joins = [step for step in configuration.enrich if step.within]
    margin_s = sum(seconds(step.within) for step in joins)
    if gold.width:
        margin_s += seconds(gold.width)
    if gold.kind == "pattern":
        margin_s += parse_pattern(gold.pattern).clauses.within_s or PATTERN_MARGIN_S
    return margin_s


def _check_complete(
    spark: SparkSession, configuration: Configuration, tiers: Tiers, until_us: int, margin_us: int
) -> None:
    """Check that every event before ``until_us`` was read, and is in bronze, and that no further event before it can
    come in time."""
    report = Report(files_of(configuration.state, spark)).summary
    has = tiers.bronze.place(WRITER)
    with LogClient(configuration.url) as keepers:
        for silver in configuration.silver:
            known = keepers.topics(silver.topics)
            watermark_us = report.watermarks_us.get(silver.name, until_us if not known else 0)
            if watermark_us < until_us:
                until = datetime.fromtimestamp(max(watermark_us - margin_us, 0) / 1e6, UTC)
                raise BadInput(
                    f"events of {silver.name!r} that belong to this range may still come in time: go up to "
                    f"{until:%Y-%m-%dT%H:%M:%S} at most, or run the backbone for longer"
                )
            for one in known:
                # Times of a topic need not rise: an event of the range may stand behind younger ones. What the intake
                # has not read yet comes too late for the range.
                at, stop = max(has.get(one.topic, 0), one.first), min(report.next.get(one.topic, 0), one.end)
                missing = keepers.read(one.topic, at, stop, bodies=False) if at < stop else ()
                if any(len(batch) and int(batch.times.min()) < until_us for batch in missing):
                    raise BadInput(
                        f"bronze has {one.topic!r} up to offset {at:,}, and events of this range stand behind it: run "
                        "the backbone until its tiers are there"
                    )


def _raw(spark: SparkSession, configuration: Configuration, tiers: Tiers, low: int, high: int) -> DataFrame:
    """Bronze of a range, with the name of the table beside each event."""
    from pyspark.sql import functions as F

    files = on_days(tiers.bronze.snapshot(), days_between(low, high))
    rows = tiers.bronze.read(spark, bronze_fields(), files).drop("day").where(_within("time", low, high))
    return rows.withColumn("table", table_of(configuration, F.col("topic"))).where(F.col("table").isNotNull())


def _judged(configuration: Configuration, raw: DataFrame) -> DataFrame:
    """Verdicts without lateness; of events with the same key, the first one is good."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    schema = judged_fields(raw.schema)
    judged = raw.mapInArrow(Judge(tuple(configuration.silver), {}, schema, time.time()).judged, schema)
    if not any(silver.unique for silver in configuration.silver):
        return judged
    order = Window.partitionBy("table", "key").orderBy("time", "topic", "offset")
    again = F.col("key").isNotNull() & (F.row_number().over(order) > 1)
    return judged.withColumn("verdict", F.when(again, F.lit("duplicate")).otherwise(F.col("verdict")))


def _clean(judged: DataFrame, silver: Silver) -> DataFrame:
    from pyspark.sql import functions as F

    good = judged.where((F.col("table") == silver.name) & (F.col("verdict") == GOOD))
    kept = good.select("topic", "offset", "id", "sender", "time", "headers", "kind", "body")
    return shaped(decode(kept, fields=silver.fields, type=silver.type), silver)


def _dead(judged: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    kept = ["topic", "offset", "id", "sender", "time", "headers", "kind", "body", "table", "rule", "reason"]
    return dated(judged.select(*kept).withColumn("dead_offset", F.lit(None).cast("long")), "time")


def _replace(spark: SparkSession, table: Landing, rows: DataFrame, low: int, high: int) -> None:
    """Replace whole partitions: rows outside of the range stay, rows inside are replaced. If a batch of the live
    backbone lands there meanwhile, repeat."""
    days = days_between(low, high)
    for _ in range(TRIES):
        table.finish()
        old = on_days(table.snapshot(), days)
        whole = rows
        if old:
            before = table.read(spark, rows.schema, old)
            whole = rows.unionByName(before.where(~_within(table.at, low, high)).select(*rows.columns))
        number = table.last(BACKFILL) + 1
        if table.land(BACKFILL, number, whole.coalesce(1), removes=old, fence=(low, high), days=days):
            return
    raise BadInput(
        f"{table.files.root} was changed {TRIES} times meanwhile: run the backfill again, when less lands there"
    )
