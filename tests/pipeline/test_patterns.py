"""A pattern finds on Spark what it finds in a process, in tables and in streams."""

import os
from datetime import datetime

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from pluribus.core.errors import BadInput, BadPattern
from pluribus.patterns import Matcher, Pattern
from tests.patterns.strategies import streams, texts
from tests.patterns.test_matcher import pattern_of

pytestmark = [pytest.mark.slow]

SCHEMA = "i long, t double, k string, x long, s string"
END = {"i": 0, "t": 1e6, "k": "end", "x": None, "s": None}
"""An event so late that it decides all that time can decide."""
few = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def plain(value):
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value


def shown_matches(matches):
    rows = [
        (
            *(match.partition.values() if match.event is None else map(plain, match.event.values())),
            *map(plain, match.measures.values()),
        )
        for match in matches
    ]
    return sorted(rows, key=repr)


def shown_rows(rows):
    assert not [row for row in rows if row["problem"] is not None]
    return sorted((tuple(map(plain, row[:-1])) for row in rows), key=repr)


@st.composite
def many_streams(draw):
    """Several streams, each with partitions of its own, in one order of time."""
    parts = draw(st.lists(streams(size_max=20), min_size=3, max_size=6))
    events = [{**event, "k": f"{event['k']}{number}"} for number, part in enumerate(parts) for event in part]
    return sorted(events, key=lambda event: event["t"])


def table(spark, events):
    rows = [
        (each["i"], None if each["t"] is None else float(each["t"]), each["k"], each["x"], each["s"]) for each in events
    ]
    return spark.createDataFrame(rows, SCHEMA)


@settings(few, max_examples=15)
@given(texts(), many_streams())
def test_a_table_gives_the_same_matches(spark, text, events):
    from pluribus.pipeline.patterns import match_recognize

    matcher = Matcher(pattern_of(text))
    expected = [*matcher.feed(events), *matcher.finish()]
    found = match_recognize(table(spark, events), text).collect()
    assert shown_rows(found) == shown_matches(expected)


def run_stream(spark, folder, batches, text, **options):
    """Each batch of events is a micro-batch. Called again, it goes on where it stopped. Gives all that came out."""
    import pyarrow as pa
    from pyarrow import parquet

    from pluribus.pipeline.patterns import match_recognize

    (folder / "in").mkdir(exist_ok=True)
    known = len(list((folder / "in").iterdir()))
    for number, events in enumerate(batches, start=known):
        file = folder / "in" / f"{number}.parquet"
        types = {"i": pa.int64(), "t": pa.float64(), "k": pa.string(), "x": pa.int64(), "s": pa.string()}
        parquet.write_table(pa.Table.from_pylist(events, pa.schema(types)), file)
        os.utime(file, (number, number))
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    found = match_recognize(source, text, **{"buckets": 3, **options})
    writer = found.writeStream.format("parquet").option("checkpointLocation", str(folder / "state"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    return spark.read.schema(found.schema).parquet(str(folder / "out")).collect(), query


@settings(few, max_examples=4)
@given(texts(), many_streams(), st.data())
def test_a_stream_gives_the_same_matches(spark, tmp_path_factory, text, events, data):
    """In micro-batches, each event late by up to five seconds, with the state in Spark's store between them."""
    matcher = Matcher(pattern_of(text), lateness_s=5)
    delays = data.draw(st.lists(st.integers(0, 4), min_size=len(events), max_size=len(events)))
    order = sorted(range(len(events)), key=lambda number: events[number]["t"] + delays[number])
    arriving = [events[number] for number in order]
    cut = data.draw(st.integers(0, len(events)))
    batches = [arriving[:cut], arriving[cut:], [END]]
    expected = [match for batch in batches for match in matcher.feed(batch)]
    assert not matcher.problems
    found, _ = run_stream(
        spark, tmp_path_factory.mktemp("stream"), [batch for batch in batches if batch], text, lateness_s=5
    )
    assert shown_rows(found) == shown_matches(expected)


RISING = """
    PARTITION BY k ORDER BY t, i
    MEASURES FIRST(t) AS began, LAST(x) AS x, COUNT(*) AS n
    PATTERN (A UP{2,}) WITHIN INTERVAL '10' SECOND DEFINE UP AS x > PREV(x)
"""


def event(time, x, k="p", i=0):
    return {"i": i, "t": float(time), "k": k, "x": x, "s": None}


def test_late_events_are_told_and_matched_no_more(spark, tmp_path):
    late = event(3, 2)
    batches = [[event(1, 1), event(2, 2), event(5, 3)], [event(20, 1)], [late, event(21, 5)], [END]]
    found, query = run_stream(spark, tmp_path, batches, RISING, lateness_s=1)
    assert [tuple(row[:-1]) for row in found if row["problem"] is None] == [("p", 1.0, 3, 3)]
    (problem,) = [row for row in found if row["problem"] is not None]
    assert problem["k"] == "p" and problem["problem"].startswith("late: its time 3.000000 is")
    assert "(event (3.0, 0, 'p', 2, 3.0))" in problem["problem"]
    assert not any(
        state.numRowsDroppedByWatermark for progress in query.recentProgress for state in progress.stateOperators
    )


def test_events_without_a_time_are_told(spark):
    from pluribus.pipeline.patterns import match_recognize

    events = [event(1, 1), {**event(2, 2), "t": None}, event(3, 4), event(4, 5)]
    found = match_recognize(table(spark, events), RISING).collect()
    assert [row["n"] for row in found if row["problem"] is None] == [3]
    (problem,) = [row["problem"] for row in found if row["problem"] is not None]
    assert problem.startswith("misfit: its time is None")


def test_whole_numbers_are_exact_and_times_are_times(spark):
    from pluribus.pipeline.patterns import match_recognize

    text = """
        PARTITION BY day ORDER BY at MEASURES FIRST(at) AS began, LAST(big) AS big, MAX(price) AS top
        PATTERN (A B) DEFINE B AS big > A.big AND at - A.at < INTERVAL '2' SECOND
    """
    large = 2**60 + 1
    noon = datetime(2026, 1, 31, 12, 0, 0, 123_456)
    rows = [
        (noon, noon.date(), large, 1.5),
        (noon.replace(second=1), noon.date(), large + 1, None),
        (noon.replace(second=9), noon.date(), None, 7.0),
    ]
    df = spark.createDataFrame(rows, "at timestamp_ntz, day date, big long, price double")
    (found,) = match_recognize(df, text).collect()
    assert found.asDict() == {"day": noon.date(), "began": noon, "big": large + 1, "top": 1.5, "problem": None}


def test_all_rows_bring_back_every_column(spark):
    from pluribus.pipeline.patterns import match_recognize

    rows = [(1, [1, 2], {"a": 1.5}, bytearray(b"x")), (2, None, None, None)]
    df = spark.createDataFrame(rows, "t int, list array<int>, inner struct<a: double>, body binary")
    text = "ORDER BY t MEASURES CLASSIFIER() AS v ALL ROWS PER MATCH PATTERN (A B) DEFINE B AS inner.a IS NULL"
    found = match_recognize(df, text).orderBy("t").collect()
    assert [(row["t"], row["list"], row["inner"], row["body"], row["v"]) for row in found] == [
        (1, [1, 2], (1.5,), bytearray(b"x"), "A"),
        (2, None, None, None, "B"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ORDER BY when PATTERN (A)", "has no column when: it has i, t, k, x, s"),
        ("ORDER BY t PATTERN (A) DEFINE A AS x.y = 1", r"has no column x\.y"),
        (
            "PARTITION BY k ORDER BY t MEASURES COUNT(*) AS k PATTERN (A)",
            "two columns of the answer would be called 'k'",
        ),
        ("ORDER BY t MEASURES x AS problem PATTERN (A)", "'problem'"),
        ("ORDER BY t PATTERN (A+)", "goes on without bound"),
    ],
)
def test_what_cannot_be_planned_is_refused_at_once(spark, text, reason):
    from pluribus.pipeline.patterns import match_recognize

    with pytest.raises((BadInput, BadPattern), match=reason):
        match_recognize(table(spark, []), text)


def test_a_query_goes_on_after_a_restart(spark, tmp_path):
    """What was begun before is found after it; nothing is found twice."""
    found, _ = run_stream(spark, tmp_path, [[event(1, 1), event(2, 2)]], RISING)
    assert found == []
    found, _ = run_stream(spark, tmp_path, [[event(3, 5)], [END]], Pattern(RISING))
    assert [tuple(match) for match in found] == [("p", 1.0, 5, 3, None)]
    found, _ = run_stream(
        spark, tmp_path, [[event(2e6, 1), event(2e6 + 1, 2), event(2e6 + 2, 3)], [event(3e6, 0)]], RISING
    )
    assert sorted(match["began"] for match in found) == [1.0, 2e6]


def test_another_number_of_buckets_on_one_checkpoint_is_refused(spark, tmp_path):
    """What was begun lies in the old buckets, where nobody would look for it."""
    keys = [f"k{number}" for number in range(20)]
    begun = [event(time, time, k=key) for time in (1, 2) for key in keys]
    run_stream(spark, tmp_path, [begun], RISING, buckets=2)
    rest = [event(3, 5, k=key) for key in keys]
    with pytest.raises(PySparkException, match=r"made with buckets=2, and buckets=7 would not find .*buckets=2"):
        run_stream(spark, tmp_path, [rest], RISING, buckets=7)
    with pytest.raises(BadInput, match="buckets=0: divide the stream into 1 to"):
        run_stream(spark, tmp_path, [], RISING, buckets=0)
    found, _ = run_stream(spark, tmp_path, [[END]], RISING, buckets=2)
    assert sorted(tuple(match) for match in found) == sorted((key, 1.0, 5, 3, None) for key in keys)


def test_windows_and_patterns_chain_in_both_directions(spark, tmp_path):
    """Counts of windows are searched for a rise; the matches are counted in windows. All in one query."""
    import pyarrow as pa
    from pyarrow import parquet
    from pyspark.sql import functions as F

    from pluribus.pipeline.patterns import match_recognize

    counts = [1, 2, 3, 1, 1, 2, 4, 1, 1, 1]
    (tmp_path / "in").mkdir()
    files = [[(10 * number, counts[number]) for number in some] for some in (range(4), range(4, 10))]
    for number, windows in enumerate([*files, [(100_000, 1)], [(110_000, 1)]]):
        starts = [(1_700_000_000 + after_s, count) for after_s, count in windows]
        times = [datetime.fromtimestamp(start + place) for start, count in starts for place in range(count)]
        file = tmp_path / "in" / f"{number}.parquet"
        parquet.write_table(pa.table({"at": pa.array(times, pa.timestamp("us"))}), file)
        os.utime(file, (number, number))
    source = spark.readStream.schema("at timestamp").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    windows = source.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds")).count()
    windows = windows.select("window", "count", F.window_time("window").alias("ended"))
    rises = match_recognize(
        windows,
        """ORDER BY ended MEASURES LAST(count) AS high PATTERN (A UP UP) WITHIN INTERVAL '1' HOUR
           DEFINE UP AS count > PREV(count)""",
        event_time="certain",
    )
    answer = rises.where("problem IS NULL").groupBy(F.window("certain", "1 hour")).agg(F.sum("high").alias("highs"))
    writer = answer.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sum(row.highs for row in found) == 3 + 4
