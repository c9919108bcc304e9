"""``pluribus bench patterns``: complex events in a process and on Spark.

*Prices*: each of 100 shares walks at random; the pattern is a fall over two ticks or more with a recovery, within a
minute. The conditions compare a tick with the one before it. *Places*: three different places rise by a fifth within a
minute; the conditions refer to earlier events of the match, and any event may lie between.

*State*: a stream of a million partitions, each of which remembers a rise; a micro-batch that touches all of them is
compared with one that touches one in a hundred.

In a process, plain dictionaries come in batches of 1,000. On Spark the same events lie in Parquet files: once as a
table, once as a stream of one file a micro-batch, of which the first, which starts workers, does not count. All three
must find the same.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from ..core.errors import Unavailable
from ..patterns import Matcher
from .report import Goal, Result, at_least, at_most, report, result

SHARES = 100
BATCH = 1_000
FILES = 5
GOAL = 100_000
PRICES = """
    PARTITION BY name ORDER BY time
    MEASURES FIRST(price) AS top, LAST(DOWN.price) AS bottom, LAST(UP.price) AS now, COUNT(*) AS ticks
    PATTERN (TOP DOWN{2,} UP{2,}) WITHIN INTERVAL '1' MINUTE
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
"""
PLACES = """
    PARTITION BY name ORDER BY time
    MEASURES R1.place AS one, R2.place AS two, R3.place AS three
    PATTERN (R1 ANY*? R2 ANY*? R3) WITHIN INTERVAL '1' MINUTE
    DEFINE R1 AS price >= 1.2 * usual, R2 AS price >= 1.2 * usual AND place <> R1.place,
           R3 AS price >= 1.2 * usual AND place <> R1.place AND place <> R2.place
"""
RISES = """
    PARTITION BY k ORDER BY t MEASURES LAST(x) AS top
    PATTERN (A UP{9}) WITHIN 100 ROWS DEFINE UP AS x > PREV(x)
"""
"""A pattern that never matches completely, so that every key is remembered."""
CASES = {"prices": PRICES, "places": PLACES}
COLUMNS = ("name", "time", "price", "usual", "place")
Event = dict[str, Any]
Progress = Callable[[str], None]


def events_of(count: int) -> list[Event]:
    """A thousand a second; the same for the same number."""
    drawn = random.Random(count)
    prices = [100.0] * SHARES
    events = []
    for number in range(count):
        share = drawn.randrange(SHARES)
        prices[share] += drawn.choice((-1.0, 0.5, 1.0))
        usual = prices[share] / (1.25 if drawn.random() < 0.05 else 1.0)
        row = (f"share{share}", number / 1_000, prices[share], usual, f"place{drawn.randrange(20)}")
        events.append(dict(zip(COLUMNS, row, strict=True)))
    return events


def run(*, quick: bool = False, progress: Progress = lambda text: None, **_: Any) -> dict[str, Any]:
    count, runs = (60_000, 1) if quick else (1_000_000, 3)
    events = events_of(count)
    results: list[Result] = []
    goals: list[Goal] = []
    expected = {}
    for case, text in CASES.items():
        progress(f"{case}, in a process")
        rates = []
        for _again in range(runs):
            rate, expected[case] = _in_process(text, events)
            rates.append(rate)
        results.append(result(f"{case}, in a process", "events/s", rates))
        results.append(result(f"{case}: matches", "matches", [len(expected[case])]))
        goals.append(at_least(f"{case}, in a process: events/s", results[-2].value, GOAL))
    try:
        for case, way, rates in _on_spark(events, expected, runs, progress):
            results.append(result(f"{case}, Spark, {way}", "events/s", rates))
            goals.append(at_least(f"{case}, Spark, {way}: events/s", results[-1].value, GOAL))
        keys = 20_000 if quick else 1_000_000
        progress(f"state of {keys:,} keys")
        every_s, some_s = _touched(keys)
        results.append(result(f"state, all of {keys:,} keys touched", "s", [every_s]))
        results.append(result(f"state, 1 % of {keys:,} keys touched", "s", [some_s]))
        if not quick:
            goals.append(at_most("state, 1 % touched over all touched", some_s / every_s, 0.1))
    except Unavailable as error:
        progress(str(error))
    return report("patterns", results, goals)


def _in_process(text: str, events: list[Event]) -> tuple[float, list[Any]]:
    matcher = Matcher(text)
    gc.collect()
    found = []
    began = perf_counter()
    for first in range(0, len(events), BATCH):
        found += matcher.feed(events[first : first + BATCH])
    rate = len(events) / (perf_counter() - began)
    found += matcher.finish()
    assert not matcher.problems
    return rate, sorted((*match.partition.values(), *match.measures.values()) for match in found)


@contextmanager
def _spark() -> Iterator[Any]:
    from ..pipeline.session import session

    cores = os.cpu_count() or 1
    settings = {
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "ERROR",
    }
    with session(f"local[{cores}]", "bench", **settings) as spark:
        yield spark


def _touched(keys: int) -> tuple[float, float]:
    """Seconds of a micro-batch that touches all keys, and of one that touches one in a hundred. Before either, one of
    the same size makes the state, or warms up."""
    from ..pipeline.patterns import match_recognize

    with _spark() as spark, tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        for number, step in enumerate((1, 1, 100, 100)):
            rows = spark.range(0, keys, step, 2).selectExpr("id AS k", f"{number}.0D AS t", f"{number} AS x")
            made = files / f"made-{number}"
            rows.coalesce(1).write.parquet(str(made))
            (files / "in").mkdir(exist_ok=True)
            (part,) = made.glob("*.parquet")
            part.rename(files / "in" / f"{number}.parquet")
            os.utime(files / "in" / f"{number}.parquet", (number + 1, number + 1))
        source = spark.readStream.schema("k long, t double, x int").option("maxFilesPerTrigger", 1)
        found = match_recognize(source.parquet(str(files / "in")), RISES, lateness_s=3_600)
        writer = found.writeStream.format("noop").option("checkpointLocation", str(files / "state"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = [each.batchDuration / 1_000 for each in query.recentProgress if each.numInputRows]
    assert len(took) == 4, f"{len(took)} micro-batches had rows"
    return took[1], took[3]


def _on_spark(
    events: list[Event], expected: dict[str, list[Any]], runs: int, progress: Progress
) -> Iterator[tuple[str, str, list[float]]]:
    with _spark() as spark, tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        _write(files / "events", events)
        for case, text in CASES.items():
            progress(f"{case}, Spark, a table")
            yield case, "table", [_table(spark, files, text, events, expected[case]) for _ in range(runs + 1)][1:]
            progress(f"{case}, Spark, a stream")
            yield case, "stream", _stream(spark, files, case, text, expected[case])


def _write(folder: Path, events: list[Event]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    each = -(-len(events) // FILES)
    # The last file ends everything that time can end.
    last = {"name": "", "time": events[-1]["time"] + 3_600, "price": 0.0, "usual": 1.0, "place": ""}
    parts = [*(events[first : first + each] for first in range(0, len(events), each)), [last]]
    for number, part in enumerate(parts):
        file = folder / f"{number}.parquet"
        parquet.write_table(pa.Table.from_pylist(part), file)
        os.utime(file, (number, number))


SCHEMA = "name string, time double, price double, usual double, place string"


def _table(spark: Any, files: Path, text: str, events: list[Event], expected: list[Any]) -> float:
    from ..pipeline.patterns import match_recognize

    began = perf_counter()
    rows = match_recognize(spark.read.schema(SCHEMA).parquet(str(files / "events")), text).collect()
    rate = len(events) / (perf_counter() - began)
    assert sorted(tuple(row)[:-1] for row in rows) == expected, "Spark and the process disagree"
    return rate


def _stream(spark: Any, files: Path, case: str, text: str, expected: list[Any]) -> list[float]:
    from ..pipeline.patterns import match_recognize

    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files / "events"))
    writer = match_recognize(source, text).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(files / f"{case}-state")).trigger(availableNow=True)
    query = writer.start(str(files / case))
    query.awaitTermination()
    rows = spark.read.parquet(str(files / case)).collect()
    assert sorted(tuple(row)[:-1] for row in rows) == expected, "Spark's stream and the process disagree"
    batches = [(each.numInputRows, each.batchDuration) for each in query.recentProgress]
    return [rows / (duration_ms / 1_000) for rows, duration_ms in batches[1:FILES]]
