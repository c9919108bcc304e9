"""Conformance: traces of any size checked on Spark for every promise of order and delivery.

The checks are those of ``pluribus.sim``, asked by joins and windows instead of a walk through the history; a property
of the tests is that both find the same promises broken in every mutant. Nothing but counts and the first offending
events comes to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput
from ...core.ids import MemberId
from ..traces import HISTORY_SUFFIX, gather

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .events import Trace

Check = Callable[["Trace"], Iterator["DataFrame"]]
ON_REQUEST = ("agreement",)
"""Checked only in runs that say so: groups without agreed views may promise it or not."""
SHOWN_MAX = 3


def checks() -> dict[str, Check]:
    """Every check by its name."""
    from . import delivery, orders, views

    return {check.__name__: check for check in (*delivery.CHECKS, *orders.CHECKS, *views.CHECKS)}


def conformance(
    spark: SparkSession, trace: str | PathLike[str] | DataFrame, only: Sequence[str] = (), shown: int = SHOWN_MAX
) -> dict[str, Any]:
    """Check a trace: a folder of Parquet files, one such file, or a table of the same columns.

    The report counts, for each check, the checks that were made and the breaches that were found, says in which runs,
    and shows the first ``shown`` offending events of each, in the order of their runs and places.
    """
    from .events import Trace

    known = checks()
    unknown = [name for name in only if name not in known]
    if unknown:
        raise BadInput(f"there is no check {unknown[0]!r}: use {', '.join(known)}")
    rows = trace if not isinstance(trace, str | PathLike) else _read(spark, trace)
    prepared = Trace(rows)
    try:
        chosen = {name: known[name] for name in only or known}
        return _report(prepared, chosen, bool(only), shown)
    finally:
        prepared.close()


def _read(spark: SparkSession, trace: str | PathLike[str]) -> DataFrame:
    path = Path(trace)
    if path.is_dir() and any(path.glob(f"*{HISTORY_SUFFIX}")):
        path = gather(path, "real", sorted(path.glob(f"*{HISTORY_SUFFIX}"))).parent
    if not path.exists() or (path.is_dir() and not any(path.glob("*.parquet"))):
        raise BadInput(f"{trace} holds no trace: 'pluribus sim SCENARIO --history DIR' writes one")
    rows = spark.read.parquet(str(path.resolve()))
    missing = {"run", "place", "member", "what", "group", "sender", "number", "members"} - set(rows.columns)
    if missing:
        raise BadInput(f"{trace} is no trace, it has no column {sorted(missing)[0]!r}: write one with --history DIR")
    return rows


def _report(trace: Trace, chosen: dict[str, Check], asked: bool, shown: int) -> dict[str, Any]:
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F

    found = reduce(DataFrame.unionByName, (part for check in chosen.values() for part in check(trace)))
    # Of a run that says what it was promised, only that counts.
    named = F.array_contains("checks_of_run", F.col("check"))
    by_default = F.lit(asked) | ~F.col("check").isin(*ON_REQUEST)
    wanted = trace.wanted.withColumnRenamed("checks", "checks_of_run")
    counts = F.when(F.col("checks_of_run").isNull(), by_default).otherwise(named)
    found = trace.keep(found.join(F.broadcast(wanted), "run", "left").where(counts).drop("checks_of_run"))
    made = {
        row["check"]: row
        for row in found.groupBy("check")
        .agg(F.coalesce(F.sum("checks"), F.lit(0)).alias("made"), F.count("said").alias("breaches"))
        .collect()
    }
    breaches = found.where("said IS NOT NULL")
    first = Window.partitionBy("check").orderBy("run", "place")
    events = breaches.withColumn("nth", F.row_number().over(first)).where(F.col("nth") <= shown).orderBy("check", "nth")
    offending: dict[str, list[dict[str, Any]]] = {}
    for row in events.collect():
        offending.setdefault(row["check"], []).append(_event(row))
    runs = {
        row["check"]: row["runs"]
        for row in breaches.groupBy("check")
        .agg(F.slice(F.sort_array(F.collect_set("run")), 1, RUNS_NAMED_MAX).alias("runs"))
        .collect()
    }
    report = {
        name: {
            "checks": made[name]["made"] if name in made else 0,
            "breaches": made[name]["breaches"] if name in made else 0,
            "runs": list(runs.get(name, [])),
            "first": offending.get(name, []),
        }
        for name in chosen
    }
    counted = trace.deliveries.agg(F.count("*").alias("deliveries"), F.count_distinct("run").alias("runs")).first()
    assert counted is not None
    return {
        "runs": counted["runs"],
        "deliveries": counted["deliveries"],
        "breaches": sum(part["breaches"] for part in report.values()),
        "checks": report,
    }


RUNS_NAMED_MAX = 20


def _event(row: Any) -> dict[str, Any]:
    told = {name: row[name] for name in ("run", "place", "at", "group", "said") if row[name] is not None}
    if row["member"] is not None:
        told["member"] = str(MemberId(row["member"]))
    if row["sender"] is not None:
        told["message"] = [row["sender"], row["number"]]
    return told
