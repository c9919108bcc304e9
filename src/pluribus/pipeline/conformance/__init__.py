"""Conformance: traces of any size checked on Spark for every promise of order and delivery.

The checks are those of ``pluribus.sim``, asked by joins and windows instead of a walk through the history; a property
of the tests is that both find the same promises broken in every mutant. Nothing but counts and the first offending
events comes to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput
from ...core.ids import MemberId
from ..traces import REAL, gather, written_by_members

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .events import Findings, Trace

Check = Callable[["Trace"], "Findings"]
ON_REQUEST = ("agreement",)
"""Checked only in runs that say so: groups without agreed views may promise it or not."""
SHOWN_MAX = 3
SETTINGS = {
    # Many small tables: planning anew after every stage of every one costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    # What lies by run, or by run, member and group, need not move to be joined by more than that.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}


def checks() -> dict[str, Check]:
    """Every check by its name."""
    from . import delivery, orders, survival, views

    rooms = (delivery, orders, views, survival)
    return {check.__name__: check for room in rooms for check in room.CHECKS}


def check_names(only: Sequence[str]) -> None:
    """``BadInput`` if one of these is no check. It needs no Spark."""
    known = checks()
    for name in only:
        if name not in known:
            raise BadInput(f"there is no check {name!r}: use {', '.join(known)}")


def conformance(
    spark: SparkSession,
    trace: str | PathLike[str] | DataFrame,
    only: Sequence[str] = (),
    shown: int = SHOWN_MAX,
    progress: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Check a trace: a folder of Parquet files, one such file, or a table of the same columns. Files that the members
    of a run wrote themselves (``connect(trace="NAME.trace")``, or an observer's ``NAME.history``) become such a file
    first, beside them.

    The report counts, for each check, the checks that were made and the breaches that were found, says in which runs,
    and shows the first ``shown`` offending events of each, in the order of their runs and places. ``progress`` is told
    what is done next.
    """
    from .events import Trace

    check_names(only)
    known = checks()
    progress("reads the trace")
    rows = trace if not isinstance(trace, str | PathLike) else _read(spark, trace)
    with _settings(spark) as partitions:
        prepared = Trace(rows, partitions)
        try:
            chosen = {name: known[name] for name in only or known}
            return _report(prepared, chosen, bool(only), shown, progress)
        finally:
            prepared.close()


@contextmanager
def _settings(spark: SparkSession) -> Iterator[int]:
    """Spark as these questions want it, and as it was afterwards; gives the partitions of a shuffle."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def _read(spark: SparkSession, trace: str | PathLike[str]) -> DataFrame:
    path = Path(trace)
    written = written_by_members(path)
    if written and path.is_dir():
        gather(path, REAL, written)
    elif written:
        path = gather(path.parent, path.stem, written)
    if not path.exists() or (path.is_dir() and not any(path.glob("*.parquet"))):
        raise BadInput(f"{trace} holds no trace: 'pluribus sim SCENARIO --history DIR' writes one")
    reader = spark.read.option("pathGlobFilter", "*.parquet") if path.is_dir() else spark.read  # traces lie beside it
    rows = reader.parquet(str(path.resolve()))
    missing = {"run", "place", "member", "what", "group", "sender", "number", "members"} - set(rows.columns)
    if missing:
        raise BadInput(f"{trace} is no trace, it has no column {sorted(missing)[0]!r}: write one with --history DIR")
    return rows


def _report(
    trace: Trace, chosen: dict[str, Check], asked: bool, shown: int, progress: Callable[[str], object]
) -> dict[str, Any]:
    from pyspark.sql import functions as F

    progress(f"goes through the events with {len(chosen)} checks: {', '.join(chosen)}")
    found = _wanted(trace, _findings(trace, chosen), asked)
    progress("counts what they found")
    summed = found.groupBy("check").agg(F.sum("checks").alias("made"), F.count("said").alias("breaches"))
    made = {row["check"]: row for row in summed.collect()}
    broken = [name for name, row in made.items() if row["breaches"]]
    runs, offending = _offending(trace, found.where(F.col("check").isin(*broken)), shown) if broken else ({}, {})
    report = {
        name: {
            "checks": made[name]["made"] or 0 if name in made else 0,
            "breaches": made[name]["breaches"] if name in made else 0,
            "runs": runs.get(name, []),
            "first": offending.get(name, []),
        }
        for name in chosen
    }
    volume = F.coalesce(F.sum("deliveries"), F.lit(0)).alias("deliveries")
    counted = trace.parts.agg(volume, F.count_distinct("run").alias("runs")).first()
    assert counted is not None
    return {
        "runs": counted["runs"],
        "deliveries": counted["deliveries"],
        "breaches": sum(part["breaches"] for part in report.values()),
        "checks": report,
    }


def _findings(trace: Trace, chosen: dict[str, Check]) -> list[DataFrame]:
    """What all checks find. They go on side by side, so that the doubts of all are settled by one question to Spark."""
    from .events import Doubt

    found: list[DataFrame] = []
    waiting: list[tuple[Findings, Any]] = [(check(trace), None) for check in chosen.values()]
    while waiting:
        doubts: list[tuple[Findings, Doubt]] = []
        for check, answer in waiting:
            try:
                while not isinstance(item := check.send(answer), Doubt):
                    found.append(item)
                    answer = None
                doubts.append((check, item))
            except StopIteration:
                pass
        answers = iter(trace.rare([table for _, doubt in doubts for table in doubt.tables]))
        waiting = [(check, list(islice(answers, len(doubt.tables)))) for check, doubt in doubts]
    return found


def _wanted(trace: Trace, found: list[DataFrame], asked: bool) -> DataFrame:
    """Of a run that says what it was promised, only that counts."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    named = F.array_contains("checks_of_run", F.col("check"))
    by_default = F.lit(asked) | ~F.col("check").isin(*ON_REQUEST)
    wanted = trace.wanted.withColumnRenamed("checks", "checks_of_run")
    counts = F.when(F.col("checks_of_run").isNull(), by_default).otherwise(named)
    every = reduce(DataFrame.unionByName, found)
    return trace.keep(every.join(F.broadcast(wanted), "run", "left").where(counts).drop("checks_of_run"))


def _offending(trace: Trace, found: DataFrame, shown: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """By check: the runs that break it, and its first breaches, in the order of their runs and places."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from .events import cut

    breaches = cut(found.where("said IS NOT NULL").coalesce(1))
    named = F.slice(F.sort_array(F.collect_set("run")), 1, RUNS_NAMED_MAX).alias("runs")
    runs = {row["check"]: list(row["runs"]) for row in breaches.groupBy("check").agg(named).collect()}
    first = Window.partitionBy("check").orderBy("run", "place")
    events = breaches.withColumn("nth", F.row_number().over(first)).where(F.col("nth") <= shown)
    events = cut(events.orderBy("check", "nth"))
    # Times are not carried along with deliveries; those few are looked up.
    places = events.select("run", "place").distinct()
    timed = trace.rows.select("run", "place", F.col("at").alias("time")).join(F.broadcast(places), ["run", "place"])
    times = {(row["run"], row["place"]): row["time"] for row in timed.collect()}
    offending: dict[str, list[dict[str, Any]]] = {}
    for row in events.collect():
        time = times.get((row["run"], row["place"]))
        offending.setdefault(row["check"], []).append(_event(row, time))
    return runs, offending


RUNS_NAMED_MAX = 20


def _event(row: Any, time: float | None) -> dict[str, Any]:
    told = {name: row[name] for name in ("run", "place", "at", "group", "said") if row[name] is not None}
    if row["at"] is None and time is not None:
        told["at"] = time
    if row["member"] is not None:
        told["member"] = str(MemberId(row["member"]))
    if row["sender"] is not None:
        told["message"] = [row["sender"], row["number"]]
    return told
