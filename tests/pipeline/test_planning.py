"""What the driver plans: how much a micro-batch takes, which task reads what; and schemas that do not fit. No Spark."""

import datetime
from contextlib import nullcontext

import msgspec
import pytest

pytest.importorskip("pyspark.sql")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pluribus.core.errors import BadInput
from pluribus.pipeline import source
from pluribus.pipeline.columns import spark_fields
from pluribus.pipeline.source import Settings, TopicReader, TopicStreamReader
from pluribus.pubsub.durable.requests import Known


class Log:
    """Keepers that know these topics."""

    def __init__(self, *known: Known) -> None:
        self.known = known

    def topics(self, pattern):
        return list(self.known)


def known(topic, first, end, size=0):
    return Known(topic, first, end, 0, size)


def reader(kind, log, monkeypatch, **options):
    settings = Settings({"url": "client://127.0.0.1:1/x", "topic": "#", **options})
    monkeypatch.setattr(Settings, "keepers", lambda self: nullcontext(log))
    return kind(settings, settings.schema())


def ranges(parts):
    return [[tuple(one) for one in part.ranges] for part in parts]


def test_small_topics_share_a_task_and_large_ones_have_several(monkeypatch):
    monkeypatch.setattr(source, "ROWS_A_TASK_MIN", 10)
    log = Log(known("a", 0, 3), known("b", 2, 4), known("c", 0, 40), known("d", 5, 5))
    parts = reader(TopicReader, log, monkeypatch, parts="3").partitions()
    assert ranges(parts) == [
        [("a", 0, 3), ("b", 2, 4), ("c", 0, 10)],
        [("c", 10, 25)],
        [("c", 25, 40)],
    ]


def test_a_stream_takes_so_many_rows_of_each_topic_its_share(monkeypatch):
    stream = reader(TopicStreamReader, Log(known("a", 0, 90), known("b", 0, 10)), monkeypatch, rows="50")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(50)
    at = {"a": 0, "b": 0}
    seen = []
    for _ in range(3):
        at = stream.latestOffset(at, limit)
        seen.append((at["a"], at["b"]))
    assert seen == [(45, 5), (90, 10), (90, 10)]


def test_a_stream_takes_so_many_bytes(monkeypatch):
    log = Log(known("a", 0, 100, 10_000))
    stream = reader(TopicStreamReader, log, monkeypatch, bytes="2000")
    assert stream.latestOffset({"a": 0}, stream.getDefaultReadLimit()) == {"a": 20}
    both = reader(TopicStreamReader, log, monkeypatch, bytes="2000", rows="7")
    assert both.latestOffset({"a": 0}, both.getDefaultReadLimit()) == {"a": 7}
    free = reader(TopicStreamReader, log, monkeypatch)
    assert free.getDefaultReadLimit() == ReadAllAvailable()
    assert free.latestOffset({}, ReadAllAvailable()) == {"a": 100}


class Odd(msgspec.Struct):
    when: datetime.timedelta


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fields": "price money"}, "write a name and one of"),
        ({"fields": "offset bigint"}, "is a name of the envelope"),
        ({"type": "builtins:len"}, "is no class"),
        ({"type": "builtins:int"}, "has no fields"),
        ({"trace": "x", "columns": "price"}, "there is no column 'price'"),
    ],
)
def test_a_schema_that_does_not_fit_is_said(options, said):
    settings = Settings({"url": "client://127.0.0.1:1/x", "topic": "t", **options})
    with pytest.raises(BadInput, match=said):
        settings.schema()


def test_a_number_that_is_none_is_said():
    with pytest.raises(BadInput, match="option rows='many' is no number"):
        Settings({"rows": "many"}).number("rows")


def test_a_type_that_no_column_holds_is_said():
    with pytest.raises(BadInput, match=r"Odd.when is of type .*, which no column of Spark holds"):
        spark_fields(Odd)
