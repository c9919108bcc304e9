"""Golds as queries: which share one, and what moves the watermark that their windows wait for."""

import json

import pytest

from pluribus.pipeline.backbone.answers import answers
from pluribus.pipeline.backbone.configuration import load
from pluribus.pipeline.backbone.groups import groups

CONFIGURATION = """
name = "room"
url = "client://127.0.0.1:1/room"
state = "state"
tables = "tables"

[[silver]]
name = "ticks"
topics = "stocks/#"
fields = "symbol string, price double"
late = "3 seconds"

[[gold]]
name = "averages"
of = "ticks"
kind = "windows"
width = "10 seconds"
by = ["symbol"]
where = "symbol = 'IBM'"
topic = "averages"
values = { mean = "avg(price)" }

[[gold]]
name = "turns"
of = "ticks"
kind = "pattern"
time = "at"
topic = "turns"
pattern = "ORDER BY time MEASURES LAST(time) AS at PATTERN (A) DEFINE A AS price > 7"

[[gold]]
name = "latest"
of = "ticks"
kind = "last"
by = ["symbol"]
topic = "latest"
"""


def configured(tmp_path, more=""):
    path = tmp_path / "room.toml"
    path.write_text(more + CONFIGURATION)
    return load(path)


def test_patterns_share_a_query_with_windows_only_if_few_are_wanted(tmp_path):
    many = [(group.name, len(group.golds)) for group in groups(configured(tmp_path))]
    assert many == [("gold-windows-ticks", 1), ("gold-pattern-ticks", 1), ("gold-last-ticks", 1)]
    few = [(group.name, len(group.golds)) for group in groups(configured(tmp_path, 'queries = "few"'))]
    assert few == [("gold-answers-ticks", 2), ("gold-last-ticks", 1)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_events_that_a_gold_does_not_choose_end_its_windows_all_the_same(spark, tmp_path):
    """Spark would move the condition in front of the watermark: the window would wait for the next price of IBM."""
    folder = tmp_path / "ticks"
    folder.mkdir()
    for number, (symbol, minute) in enumerate([("IBM", 0), ("GE", 1)]):
        row = {"time": f"2026-09-15T12:0{minute}:00Z", "symbol": symbol, "price": 5.0}
        (folder / f"{number}.json").write_text(json.dumps(row))
    configuration = configured(tmp_path)
    ticks = spark.readStream.schema("time timestamp, symbol string, price double").json(str(folder))
    found = answers(configuration, configuration.gold[0], ticks)
    query = found.writeStream.format("memory").queryName("ended").trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    assert [(row["symbol"], row["mean"]) for row in spark.table("ended").collect()] == [("IBM", 5.0)]
