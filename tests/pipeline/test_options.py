"""Options of the source and the sink: which topics, from where, and the names of Spark's source for Kafka."""

import json

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.core.errors import BadInput
from pluribus.pipeline.options import Settings

NOON_MS = 1_763_121_600_000


def settings(**options):
    return Settings({"url": "client://127.0.0.1:1/x", **options})


def test_names_of_kafkas_source_are_taken():
    given = settings(
        subscribe="a, b",
        startingOffsets="earliest",
        endingOffsets="latest",
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="15m",
        minPartitions="4",
        maxRecordsPerPartition="100",
        failOnDataLoss="false",
        includeHeaders="true",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert given.patterns == ["a", "b"] and given.several and given.gaps == "skip" and given.wait_s == 900
    names = ("rows", "rows_min", "parts_min", "part_rows")
    assert [given.number(name) for name in names] == [10, 5, 4, 100]
    assert settings(topic="a", failOnDataLoss="TRUE").gaps == "fail"


def test_a_regular_expression_names_topics():
    given = settings(subscribePattern=r"stocks/(ibm|sap)")
    assert given.patterns == ["#"] and given.wants("stocks/ibm") and not given.wants("stocks/ibmx")
    assert not settings(regex=".*").wants("pluribus/places/1")


def test_places_of_queries_are_hidden_unless_they_are_named():
    hidden = "pluribus/places/8a"
    assert not settings(topic="#").wants(hidden)
    assert settings(topic="pluribus/places/#").wants(hidden)


def test_each_topic_may_start_elsewhere():
    places = {"a": 5, "b": {"0": -2}, "c": -1, "d/#": "earliest", "e": "2025-11-14T12:00:00"}
    place = settings(topic="#", start=json.dumps(places)).placing("start", "latest")
    assert [place(topic) for topic in ("a", "b", "c", "d/x", "z")] == [5, "earliest", "latest", "earliest", "latest"]
    assert place("e") == NOON_MS / 1_000
    by_time = settings(topic="a", startingOffsetsByTimestamp=json.dumps({"a": {"0": NOON_MS}}))
    assert by_time.placing("start", "latest")("a") == NOON_MS / 1_000
    assert settings(topic="a", startingTimestamp=str(NOON_MS)).placing("start", "latest")("a") == NOON_MS / 1_000


def test_tables_of_a_catalog_bring_their_options_twice():
    given = Settings(
        {"option.url": "client://127.0.0.1:1/x", "topic": "a", "option.topic": "a", "provider": "pluribus"}
    )
    assert given.urls == ["client://127.0.0.1:1/x"] and given.patterns == ["a"]


def test_columns_of_a_table_carry_its_options():
    """Spark keeps the columns of a table, and forgets its options."""
    made = Settings({"url": "client://127.0.0.1:1/x", "topic": "a", "fields": "n bigint", "provider": "pluribus"})
    found = Settings({"start": "5"}).of(made.schema())
    assert found.urls == made.urls and found.given["start"] == "5" and found.given["fields"] == "n bigint"
    plain = settings(topic="a")
    assert plain.of(plain.schema()) is plain and not plain.schema().fields[0].metadata


def test_several_logs_are_named_one_after_another():
    urls = ["client://127.0.0.1:1,127.0.0.1:2/x", "client://127.0.0.1:3/y"]
    assert Settings({"url": " ".join(urls)}).urls == Settings({"url": ";".join(urls)}).urls == urls
    with pytest.raises(BadInput, match="an archive has the events of one log"):
        Settings({"url": " ".join(urls), "topic": "a", "archive": "events"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.bootstrap.servers": "h:1"}, "client://HOST:PORT"),
        ({"assign": "{}"}, "no partitions"),
        ({"subscribe": "a", "topics": "b"}, "'subscribe' and 'topics' say the same"),
        ({"topic": "a", "regex": "b"}, "topic and regex both say which topics"),
        ({"regex": "("}, "no regular expression"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"maxTriggerDelay": "soon"}, "is no time"),
        ({"startingOffsetsByTimestampStrategy": "error"}, "is read from its end; say .latest., or leave it out"),
        ({"startingTimestamp": "noon"}, "milliseconds since 1970"),
        ({"start": "{"}, "is no JSON"),
        ({"start": "{}"}, "names no topic"),
        ({"start": '{"a": {"1": 5}}'}, "one partition here"),
        ({"start": '{"a": -3}'}, "is no place"),
        ({"start": '{"a//b": 3}'}, "a level is empty"),
    ],
)
def test_what_cannot_be_meant_is_said(options, said):
    if not {"topics", "regex"} & set(options):
        options = {"topic": "a", **options}
    with pytest.raises(BadInput, match=said):
        all_of(options)


def all_of(options):
    given = settings(**options)
    return given.placing("start", "latest"), given.wait_s
