"""Functions from tables to tables, in batches against what plain Python computes, and on a stream."""

import statistics
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F

from pluribus.core.errors import BadInput
from pluribus.pipeline.functions import anomalies, join, last, top, windows

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


TICKS = [
    (at(0), "ibm", 10.0),
    (at(4), "ibm", 14.0),
    (at(6), "hp", 3.0),
    (at(11), "ibm", 20.0),
    (at(13), "hp", 5.0),
    (at(14), "hp", 5.0),
]


@pytest.fixture(scope="module")
def ticks(spark):
    return spark.createDataFrame(TICKS, "time timestamp, symbol string, price double")


def rows(table, *order):
    found = [row.asDict() for row in table.orderBy(*order).collect()]
    for row in found:
        for name, value in row.items():
            if isinstance(value, datetime):
                row[name] = value.astimezone(UTC)
    return found


def test_windows_by_key(ticks):
    found = rows(windows(ticks, "10 seconds", by=["symbol"], mean=F.avg("price"), n=F.count("*")), "start", "symbol")
    assert found == [
        {"start": at(0), "end": at(10), "symbol": "hp", "mean": 3.0, "n": 1},
        {"start": at(0), "end": at(10), "symbol": "ibm", "mean": 12.0, "n": 2},
        {"start": at(10), "end": at(20), "symbol": "hp", "mean": 5.0, "n": 2},
        {"start": at(10), "end": at(20), "symbol": "ibm", "mean": 20.0, "n": 1},
    ]


def test_windows_that_overlap_hold_an_event_more_than_once(ticks):
    found = rows(windows(ticks, "10 seconds", every="5 seconds", n=F.count("*")), "start")
    assert [(row["start"], row["n"]) for row in found] == [(at(-5), 2), (at(0), 3), (at(5), 4), (at(10), 3)]


def test_the_last_of_each_key(ticks):
    assert [(row["symbol"], row["price"]) for row in rows(last(ticks, ["symbol"]), "symbol")] == [
        ("hp", 5.0),
        ("ibm", 20.0),
    ]
    assert last(ticks, ["symbol"]).columns == ticks.columns


def test_the_best_of_each_window_of_a_stream_in_append_mode(spark, tmp_path):
    """Each window comes once, when nothing can come late to it any more."""
    schema = "time timestamp, symbol string, price double"
    later = [(at(31), "ibm", 1.0), (at(32), "sap", 2.0)]
    for number, some in enumerate([TICKS, later, [(at(60), "hp", 1.0)]]):
        spark.createDataFrame(some, schema).coalesce(1).write.parquet(str(tmp_path / "in" / str(number)))
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in" / "*"))
    means = windows(stream, "10 seconds", by=["symbol"], mean=F.avg("price"))
    best = top(means, 1, "mean", by=["start"])
    assert best.columns == ["rank", "start", "end", "symbol", "mean"]
    writer = best.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(100)
    found = rows(spark.read.schema(best.schema).parquet(str(tmp_path / "out")), "start")
    assert [(row["start"], row["end"], row["rank"], row["symbol"], row["mean"]) for row in found] == [
        (at(0), at(10), 1, "ibm", 12.0),
        (at(10), at(20), 1, "ibm", 20.0),
        (at(30), at(40), 1, "sap", 2.0),
    ]


def test_the_best_of_all_and_by_key(ticks):
    assert [(row["rank"], row["price"]) for row in rows(top(ticks, 2, "price"), "rank")] == [(1, 20.0), (2, 14.0)]
    best = rows(top(ticks, 1, "price", by=["symbol"]), "symbol")
    assert [(row["symbol"], row["price"], row["rank"]) for row in best] == [("hp", 5.0, 1), ("ibm", 20.0, 1)]


def test_a_join_of_what_is_near_in_time(spark, ticks):
    orders = spark.createDataFrame([(at(5), "ibm", 7), (at(30), "hp", 8)], "time timestamp, symbol string, amount int")
    found = rows(join(ticks, orders, ["symbol"], within="2 seconds"), "time")
    assert [(row["time"], row["right_time"], row["amount"]) for row in found] == [(at(4), at(5), 7)]


def test_the_score_of_the_strangest(spark):
    values = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 9.0]
    table = spark.createDataFrame([(at(i), value) for i, value in enumerate(values)], "time timestamp, v double")
    (found,) = rows(anomalies(table, "v", "1 minute"), "start")
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    assert found["strangest"] == 9.0 and found["count"] == 7
    assert found["score"] == pytest.approx((9.0 - mean) / deviation)
    (same,) = rows(anomalies(table.withColumn("v", F.lit(2.0)), "v", "1 minute"), "start")
    assert same["score"] == 0.0


def test_a_column_that_is_none_is_said(ticks):
    with pytest.raises(BadInput, match="there is no column 'place'"):
        last(ticks, ["place"])
    with pytest.raises(BadInput, match="nothing to compute"):
        windows(ticks, "1 minute")
    with pytest.raises(BadInput, match="ask for 1 or more"):
        top(ticks, 0, "price")


def test_on_a_stream_a_window_comes_when_nothing_can_be_late_to_it(spark, ticks, tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    ticks.coalesce(1).write.parquet(str(source))
    spark.createDataFrame([(at(60), "ibm", 1.0)], ticks.schema).coalesce(1).write.mode("append").parquet(str(source))
    stream = spark.readStream.schema(ticks.schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    counted = windows(stream, "10 seconds", late="5 seconds", n=F.count("*"), best=F.max("price"))
    query = (
        counted.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    found = rows(spark.read.parquet(str(out)), "start")
    assert [(row["start"], row["n"], row["best"]) for row in found] == [(at(0), 3, 14.0), (at(10), 3, 20.0)]
