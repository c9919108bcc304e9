"""The bench of patterns: the form of its report, and that it goes on without Spark."""

from pluribus.bench import bench, patterns
from pluribus.core.errors import MissingExtra


def test_without_java_the_process_is_measured_all_the_same(monkeypatch):
    def no_java(*_):
        raise MissingExtra("Spark needs Java")

    told = []
    monkeypatch.setattr(patterns, "_on_spark", no_java)
    found = bench("patterns")(quick=True, progress=told.append)
    assert told[-1] == "Spark needs Java"
    assert [row["case"] for row in found["results"]] == [
        "prices, in a process",
        "prices: matches",
        "places, in a process",
        "places: matches",
    ]
    assert all(row["value"] > 100 for row in found["results"])
    assert [goal["wanted"] for goal in found["goals"]] == [100_000, 100_000]


def test_the_events_are_the_same_again():
    assert patterns.events_of(500) == patterns.events_of(500) != patterns.events_of(501)[:500]
