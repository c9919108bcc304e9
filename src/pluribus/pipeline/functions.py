"""Small functions from tables to tables, for batches and for streams: windows, last values, best ones, joins, scores.

Each takes a table of events with a column ``time`` (as the source gives it) and returns a table; put them one behind
another with ``DataFrame.transform``. On a stream each keeps state that is bounded by ``late``, how much later than the
newest an event may come and still count, or by the number of keys where that is said. Later events are left out, and
Spark counts them (``numRowsDroppedByWatermark``).

Widths and lateness are Spark's intervals: ``"10 seconds"``, ``"5 minutes"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIME = "time"
WATERMARK = "spark.watermarkDelayMs"
"""How Spark marks the column that carries a watermark."""


def windows(
    events: DataFrame,
    width: str,
    *,
    every: str | None = None,
    by: Sequence[str] = (),
    late: str = "0 seconds",
    time: str = TIME,
    **aggregates: Column,
) -> DataFrame:
    """Aggregates over windows of time, by key: ``start``, ``end``, the keys, and one column an aggregate.

    Windows follow each other, or begin ``every`` so often and overlap. On a stream in append mode a window comes once,
    when nothing can come late to it any more; in update mode as often as it changes. State: one row a window and key,
    for as long as ``late``.
    """
    from pyspark.sql import functions as F

    _need(events, time, *by)
    if not aggregates:
        raise BadInput("windows() has nothing to compute: name aggregates, as mean=F.avg('price')")
    window = F.window(F.col(time), width, every or width)
    timed = events if _timed(events, time) else events.withWatermark(time, late)  # joined streams have one already
    grouped = timed.groupBy(window.alias("window"), *by)
    found = grouped.agg(*(aggregate.alias(name) for name, aggregate in aggregates.items()))
    # A window is done when the watermark has passed its end, so that is the time of what follows.
    end = F.col("window.end").alias("end", metadata=dict(found.schema["window"].metadata))
    return found.select(F.col("window.start").alias("start"), end, *by, *aggregates)


def last(events: DataFrame, by: Sequence[str], *, time: str = TIME) -> DataFrame:
    """The last event of each key, by its time. State on a stream: one row a key; use update or complete mode."""
    from pyspark.sql import functions as F

    _need(events, time, *by)
    rest = [name for name in events.columns if name not in by]
    newest = F.max_by(F.struct(*rest), F.col(time)).alias("newest")
    return events.groupBy(*by).agg(newest).select(*by, "newest.*").select(*events.columns)


def top(events: DataFrame, k: int, score: str, *, by: Sequence[str] = ()) -> DataFrame:
    """The ``k`` events with the highest score, of all or by key, with their ``rank`` from 1. State on a stream: ``k``
    rows a key; behind ``windows``, by their ``start`` or ``end``, in append mode, each window once."""
    from pyspark.sql import functions as F

    _need(events, score, *by)
    if k < 1:
        raise BadInput(f"the best {k} are none: ask for 1 or more")
    # The watermark of windows is that of their ends, and windows of one width with the same start end together.
    keys = [*by, "end"] if "start" in by and "end" not in by and _timed(events, "end") else list(by)
    rest = [name for name in events.columns if name not in keys]
    ranked = events.groupBy(*keys).agg(F.max_by(F.struct(*rest), F.col(score), k).alias("best"))
    found = ranked.select(*keys, F.posexplode("best").alias("rank", "one"))
    return found.select((F.col("rank") + 1).alias("rank"), *keys, "one.*").select("rank", *by, *_others(events, by))


def join(
    left: DataFrame,
    right: DataFrame,
    on: Sequence[str],
    *,
    within: str,
    late: str = "0 seconds",
    time: str = TIME,
    how: str = "inner",
) -> DataFrame:
    """Pairs of events of two streams with equal keys and at most ``within`` apart in time. Columns of the right one
    that the left one has too begin with ``right_``. State on a stream: the events of the last ``within`` and
    ``late``."""
    from pyspark.sql import functions as F

    _need(left, time, *on)
    _need(right, time, *on)
    names = {name: f"right_{name}" if name in left.columns else name for name in right.columns}
    renamed = right.withWatermark(time, late).select(*(F.col(name).alias(new) for name, new in names.items()))
    other = F.col(names[time])
    apart = F.expr(f"INTERVAL {within}")
    near = (other >= F.col(time) - apart) & (other <= F.col(time) + apart)
    for key in on:
        near = near & (F.col(key) == F.col(f"right_{key}"))
    return left.withWatermark(time, late).join(renamed, near, how).drop(*(f"right_{key}" for key in on))


def anomalies(
    events: DataFrame,
    value: str,
    width: str,
    *,
    by: Sequence[str] = (),
    late: str = "0 seconds",
    time: str = TIME,
) -> DataFrame:
    """How far the strangest value of each window and key is from the window's mean, in standard deviations.

    Columns: ``start``, ``end``, the keys, ``count``, ``mean``, ``deviation``, ``strangest`` (the value) and ``score``,
    which is 0 where all values are alike. Of n values no score is over the square root of n - 1: choose windows that
    hold enough of them.
    """
    from pyspark.sql import functions as F

    found = windows(
        events,
        width,
        by=by,
        late=late,
        time=time,
        count=F.count(value),
        mean=F.avg(value),
        deviation=F.stddev_pop(value),
        least=F.min(value),
        most=F.max(value),
    )
    over, under = F.col("most") - F.col("mean"), F.col("mean") - F.col("least")
    strangest = F.when(over >= under, F.col("most")).otherwise(F.col("least"))
    score = F.when(F.col("deviation") > 0, F.greatest(over, under) / F.col("deviation")).otherwise(F.lit(0.0))
    return found.withColumns({"strangest": strangest, "score": score}).drop("least", "most")


def _timed(table: DataFrame, name: str) -> bool:
    """Whether a column carries the watermark."""
    return name in table.columns and WATERMARK in table.schema[name].metadata


def _others(table: DataFrame, by: Sequence[str]) -> list[str]:
    return [name for name in table.columns if name not in by]


def _need(table: DataFrame, *names: str) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise BadInput(f"there is no column {missing[0]!r}: use one of {', '.join(table.columns)}")
