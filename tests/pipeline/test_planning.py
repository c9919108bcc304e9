"""What the driver plans: how much a micro-batch takes, which task reads what; and schemas that do not fit. No Spark."""

import datetime
from contextlib import nullcontext

import msgspec
import pytest

pytest.importorskip("pyspark.sql")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pluribus.core.errors import BadInput, LogChanged
from pluribus.pipeline import source
from pluribus.pipeline.columns import spark_fields
from pluribus.pipeline.options import Settings
from pluribus.pipeline.source import TopicReader, TopicStreamReader
from pluribus.pubsub.durable.requests import Known


class Log:
    """Keepers that know these topics."""

    def __init__(self, *known: Known) -> None:
        self.known = known

    def topics(self, pattern):
        return list(self.known)


LOG = 0x5EED


def known(topic, first, end, size=0, log=LOG):
    return Known(topic, first, end, 0, size, log=log)


def at(log=LOG, **offsets):
    """A place of a stream in a log."""
    return {f"{log:x}": offsets}


def reader(kind, log, monkeypatch, **options):
    settings = Settings({"url": "client://127.0.0.1:1/x", "topic": "#", **options})
    monkeypatch.setattr(Settings, "keepers", lambda self, *_: nullcontext(log))
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
    here = at(a=0, b=0)
    seen = []
    for _ in range(3):
        here = stream.latestOffset(here, limit)
        seen.append(here)
    assert seen == [at(a=45, b=5), at(a=90, b=10), at(a=90, b=10)]


def test_an_offset_to_start_with_passes_over_nothing_of_shorter_topics(monkeypatch):
    """What comes to a short topic later is new, although its offsets are below the one that was named."""
    log = Log(known("long", 0, 1_000), known("short", 0, 10))
    stream = reader(TopicStreamReader, log, monkeypatch, start="990")
    assert stream.initialOffset() == at(long=990, short=10)
    log.known = (known("long", 0, 1_000), known("short", 0, 25))
    end = stream.latestOffset(at(long=990, short=10), ReadAllAvailable())
    assert ranges(stream.partitions(at(long=990, short=10), end)) == [[("long", 990, 1_000), ("short", 10, 25)]]
    assert ranges(reader(TopicReader, log, monkeypatch, start="990").partitions()) == [[("long", 990, 1_000)]]
    assert ranges(reader(TopicReader, log, monkeypatch, stop="20").partitions()) == [
        [("long", 0, 20), ("short", 0, 20)]
    ]
    for kind, plan in ((TopicReader, "partitions"), (TopicStreamReader, "initialOffset")):
        with pytest.raises(BadInput, match="offset 990 of 'short' is beyond its end 25"):
            getattr(reader(kind, Log(known("short", 0, 25)), monkeypatch, topic="short", start="990"), plan)()


def test_a_stream_takes_so_many_bytes(monkeypatch):
    log = Log(known("a", 0, 100, 10_000))
    stream = reader(TopicStreamReader, log, monkeypatch, bytes="2000")
    assert stream.latestOffset(at(a=0), stream.getDefaultReadLimit()) == at(a=20)
    both = reader(TopicStreamReader, log, monkeypatch, bytes="2000", rows="7")
    assert both.latestOffset(at(a=0), both.getDefaultReadLimit()) == at(a=7)
    free = reader(TopicStreamReader, log, monkeypatch)
    assert free.getDefaultReadLimit() == ReadAllAvailable()
    assert free.latestOffset({}, ReadAllAvailable()) == at(a=100)


def test_a_place_in_another_log_is_no_place_in_this_one(monkeypatch):
    old, new = at(0xA, a=1_000), Log(known("a", 0, 1_200, log=0xB))
    stream = reader(TopicStreamReader, new, monkeypatch)
    with pytest.raises(LogChanged, match=r"another log \(b\) than the one that was read so far \(a\).*gaps='skip'"):
        stream.latestOffset(old, ReadAllAvailable())
    skipping = reader(TopicStreamReader, new, monkeypatch, gaps="skip")
    end = skipping.latestOffset(old, ReadAllAvailable())
    assert end == at(0xB, a=1_200)
    (task,) = skipping.partitions(old, end)
    assert (task.ranges, task.log) == ((("a", 0, 1_200),), 0xB)


def test_an_end_that_went_backwards_is_told(monkeypatch):
    log = Log(known("a/x", 0, 900), known("a/y", 0, 5))
    before = at(**{"a/x": 1_000, "a/y": 5})
    for options, said in (({"topic": "a/+"}, "'a/x' ends at 900, and was read up to 1000"), ({"topic": "#"}, "900")):
        with pytest.raises(LogChanged, match=said):
            reader(TopicStreamReader, log, monkeypatch, **options).latestOffset(before, ReadAllAvailable())
    skipping = reader(TopicStreamReader, log, monkeypatch, gaps="skip")
    end = skipping.latestOffset(before, ReadAllAvailable())
    assert end == at(**{"a/x": 900, "a/y": 5}) and skipping.partitions(before, end) == []
    with pytest.raises(LogChanged, match="'a/x' ends at 0"):
        reader(TopicStreamReader, Log(), monkeypatch).latestOffset(before, ReadAllAvailable())


def test_a_query_may_want_fewer_topics_than_before(monkeypatch):
    stream = reader(TopicStreamReader, Log(known("b", 0, 3)), monkeypatch, topic="b")
    assert stream.latestOffset(at(a=10, b=1), ReadAllAvailable()) == at(a=10, b=3)


def test_a_checkpoint_from_before_logs_had_names_goes_on(monkeypatch):
    stream = reader(TopicStreamReader, Log(known("a", 0, 30)), monkeypatch)
    end = stream.latestOffset({"a": 10}, ReadAllAvailable())
    assert end == at(a=30)
    (task,) = stream.partitions({"a": 10}, end)
    assert (task.ranges, task.log) == ((("a", 10, 30),), LOG)


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


def test_conditions_on_the_envelope_say_what_is_read(monkeypatch):
    from pyspark.sql.datasource import (
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        StringStartsWith,
    )

    from pluribus.pipeline.source import PushingReader

    log = Log(known("a/x", 0, 100), known("a/y", 0, 50), known("b", 0, 100))
    log.offsets_at = lambda topics, time_s: [{"a/x": 70, "a/y": 50, "b": 0}[topic] for topic in topics]
    narrow = reader(PushingReader, log, monkeypatch)
    filters = [
        StringStartsWith(("topic",), "a/"),
        IsNotNull(("offset",)),
        GreaterThan(("offset",), 9),
        LessThan(("offset",), 90),
        GreaterThanOrEqual(("time",), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
        EqualTo(("sender",), 7),
    ]
    assert list(narrow.pushFilters(filters)) == filters[-2:], "Spark looks at times again, and at what is not taken"
    assert ranges(narrow.partitions()) == [[("a/x", 70, 90)]]
    some = reader(PushingReader, log, monkeypatch)
    assert list(some.pushFilters([In(("topic",), ("b", "c")), EqualTo(("offset",), 3)])) == []
    assert ranges(some.partitions()) == [[("b", 3, 4)]]
    naive = reader(PushingReader, log, monkeypatch)
    assert len(list(naive.pushFilters([GreaterThan(("time",), datetime.datetime(2026, 1, 1))]))) == 1
    assert naive._bounds.since_s is None, "nobody knows where that time is meant"


def test_tasks_are_as_many_as_the_cluster_and_the_bytes_ask_for(monkeypatch):
    monkeypatch.setattr(source, "ROWS_A_TASK_MIN", 10)
    large = Log(known("a", 0, 1_000_000, 320 << 20))
    plain = reader(TopicReader, large, monkeypatch)
    assert len(plain.partitions()) == 10, "32 MiB each"
    plain._cores = 50
    assert len(plain.partitions()) == 100
    assert len(reader(TopicReader, large, monkeypatch, part_rows="1000").partitions()) == 1_000
    assert len(reader(TopicReader, large, monkeypatch, parts="3").partitions()) == 3
    small = Log(known("a", 0, 5, 100))
    assert len(reader(TopicReader, small, monkeypatch).partitions()) == 1


FULL = """[STREAM_FAILED] Query [id = 7] terminated with exception: An exception was raised by the Python Proxy.
Traceback (most recent call last):
  File "tiers.py", line 115, in handle
py4j.protocol.Py4JJavaError: An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure.
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
OURS = """[STREAM_FAILED] Query [id = 7] terminated with exception: An exception was raised by the Python Proxy.
pluribus.core.errors.BadInput: event 7 of 'numbers' breaks the rule
OSError: [Errno 28] No space left on device
"""


def test_the_error_of_a_query_names_its_cause():
    from pluribus.pipeline.jobs import _words

    assert _words(FULL).startswith("[STREAM_FAILED] Query [id = 7]") and _words(FULL).endswith(
        ": No space left on device"
    )
    assert _words(OURS) == "event 7 of 'numbers' breaks the rule"
    assert _words("one line: no more") == "one line: no more" and _words("") == ""
