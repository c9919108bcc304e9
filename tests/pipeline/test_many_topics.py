"""Many topics and several logs through the source and the sink, with keepers and without Spark: what its driver and
executors would call."""

import json
from contextlib import ExitStack

import pytest

pytest.importorskip("pyspark.sql")

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StringType, StructType

import pluribus
from pluribus.core.errors import BadInput, LogChanged, Refused, Unreachable
from pluribus.pipeline.offsets import events_of
from pluribus.pipeline.options import HIDDEN, Settings
from pluribus.pipeline.sink import BatchWriter, log_of
from pluribus.pipeline.source import TopicReader, TopicStreamReader
from pluribus.runtime.clients.log_client import LogClient

TOPICS = 600


def url_of(bus) -> str:
    host, port = bus._real.doors[0].address
    return f"client://{host}:{port}/{bus._real.url.bus}"


def kept(name, stack):
    return stack.enter_context(pluribus.sync.connect(f"inproc://{name}", store=":memory:", serve="127.0.0.1:0"))


@pytest.fixture(scope="module")
def bus():
    with ExitStack() as stack:
        bus = kept("many-topics", stack)
        for turn in range(3):
            bus.durable.publish_many([(f"many/{n:04d}", {"n": n, "turn": turn}) for n in range(TOPICS)])
        bus.durable.publish_many(
            [
                (
                    "many/0000",
                    b"raw",
                )
            ]
            * 2
        )
        yield bus


def reader(kind, url, **options):
    settings = Settings({"url": url, **options})
    return kind(settings, settings.schema())


def rows_of(reader, tasks):
    return [row for task in tasks for table in reader.read(task) for row in table.to_pylist()]


def test_every_row_of_many_topics_is_read_once_and_in_its_order(bus):
    batch = reader(TopicReader, url_of(bus), topic="many/#")
    rows = rows_of(batch, batch.partitions())
    found = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(row["offset"])
    assert len(found) == TOPICS and found.pop("many/0000") == [0, 1, 2, 3, 4]
    assert all(offsets == [0, 1, 2] for offsets in found.values())
    (event, *_) = bus.log("many/0007").read().events()
    row = next(row for row in rows if row["topic"] == "many/0007" and row["offset"] == 0)
    assert (row["id"]["session"], row["id"]["number"]) == event.id and row["sender"] == event.sender
    assert row["time"].timestamp() == event.time


def test_fields_conditions_and_parts_of_many_topics(bus):
    typed = reader(
        TopicReader, url_of(bus), topic="many/#", fields="n bigint, turn bigint", where="turn >= 1 AND n < 10"
    )
    rows = rows_of(typed, typed.partitions())
    assert sorted((row["n"], row["turn"]) for row in rows) == [(n, turn) for n in range(10) for turn in (1, 2)]
    poisoned = reader(TopicReader, url_of(bus), topic="many/#", fields="n bigint")
    with pytest.raises(BadInput, match="event 3 of 'many/0000' is poison"):
        rows_of(poisoned, poisoned.partitions())
    starts = {"many/0001": 2, "many/#": "latest"}
    some = reader(TopicReader, url_of(bus), topic="many/#", start=json.dumps(starts), columns="topic,offset")
    assert rows_of(some, some.partitions()) == [{"topic": "many/0001", "offset": 2}]
    listed = reader(TopicReader, url_of(bus), topics="many/0001,many/0002", columns="offset")
    assert len(rows_of(listed, listed.partitions())) == 6
    fine = reader(TopicReader, url_of(bus), topic="many/#", minPartitions="5", columns="offset")
    assert 5 <= len(fine.partitions()) <= 6


def test_a_place_of_many_topics_is_short_and_found_again(bus):
    url = url_of(bus)
    stream = reader(TopicStreamReader, url, topic="many/#", start="earliest", columns="topic,offset")
    first = stream.initialOffset()
    end = stream.latestOffset(first, ReadAllAvailable())
    assert len(json.dumps(end)) < 200 and events_of(end) == 3 * TOPICS + 2 and events_of(first) == 0
    assert stream.latestOffset(end, ReadAllAvailable()) == end, "nothing new is no other place"
    assert events_of(stream.reportLatestOffset()) == events_of(end)
    again = reader(TopicStreamReader, url, topic="many/#", start="earliest", columns="topic,offset")
    assert len(rows_of(again, again.partitions(first, end))) == 3 * TOPICS + 2, "as a driver that was started again"
    bus.durable.publish_many([("many/0003", {"n": 3})])
    following = again.latestOffset(end, ReadAllAvailable())
    assert rows_of(again, again.partitions(end, following)) == [{"topic": "many/0003", "offset": 3}]
    every = reader(TopicReader, url, topic="#", columns="topic")
    assert not any(row["topic"].startswith(HIDDEN) for row in rows_of(every, every.partitions()))
    shares = again.latestOffset(first, ReadMaxRows(TOPICS))
    assert TOPICS <= events_of(shares) <= 2 * TOPICS
    (log,) = end
    spoilt = {log: {**end[log], "@kept": end[log]["@kept"][:-8] + "00000000"}}
    fresh = reader(TopicStreamReader, url, topic="many/#")
    with pytest.raises(LogChanged, match="another place"):
        fresh.latestOffset(spoilt, ReadAllAvailable())
    gone = {log: {**end[log], "@kept": "abc:7:00000000"}}
    with pytest.raises(LogChanged, match="do not hold the place"):
        fresh.latestOffset(gone, ReadAllAvailable())


def test_a_micro_batch_waits_for_enough_rows(bus, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("pluribus.pipeline.source.monotonic", lambda: now[0])
    bus.durable.publish_many([("slow", b"x")] * 3)
    stream = reader(TopicStreamReader, url_of(bus), topic="slow", start="earliest", rows_min="5", wait="30s")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    now[0] += 29
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    now[0] += 2
    waited = stream.latestOffset(start, ReadAllAvailable())
    assert events_of(waited) == 3
    bus.durable.publish_many([("slow", b"x")] * 5)
    assert events_of(stream.latestOffset(waited, ReadAllAvailable())) == 8
    stream = reader(TopicStreamReader, url_of(bus), topic="slow", start="earliest", rows_min="500")
    stream.prepareForTriggerAvailableNow()
    assert events_of(stream.latestOffset(start, ReadAllAvailable())) == 8, "who takes what is there waits for no more"


SCHEMA = StructType().add("topic", StringType()).add("body", BinaryType())


def table(rows):
    return pa.RecordBatch.from_pydict({"topic": [topic for topic, _ in rows], "body": [body for _, body in rows]})


def test_rows_for_many_topics_are_written_once(bus):
    rows = [(f"out/{n % 300}", b"%d" % n) for n in range(900)]
    for _ in range(2):  # a batch that is done again
        writer = BatchWriter(Settings({"url": url_of(bus), "writer": "w", "batch": "1"}), SCHEMA)
        writer.commit([writer.write(iter([table(rows[:500]), table(rows[500:])]))])
    back = reader(TopicReader, url_of(bus), topic="out/#", columns="topic,offset,body")
    found = {(row["topic"], row["offset"]): row["body"] for row in rows_of(back, back.partitions())}
    assert found == {(f"out/{n % 300}", n // 300): b"%d" % n for n in range(900)}


def test_what_retention_removed_of_some_topics_fails_or_is_skipped(bus):
    for _ in range(8):
        bus.durable.publish_many([("short/a", b"x" * 1_000)] * 1_000)
    bus.durable.publish_many([("short/b", b"y")] * 3)
    bus.durable.retain("short/a", size=1_000_000)
    log = bus.log("short/a")
    while log.offsets()[0] == 0:
        bus.durable.publish_many([("short/a", b"y")])
    first, end = log.offsets()
    options = {"topic": "short/#", "start": "0", "columns": "offset", "part_rows": "100000"}
    skipping = reader(TopicReader, url_of(bus), gaps="skip", **options)
    (task,) = skipping.partitions()
    assert len(task.ranges) == 2 and len(rows_of(skipping, [task])) == end - first + 3
    failing = reader(TopicReader, url_of(bus), **options)
    with pytest.raises(BadInput, match=r"removed by retention.*gaps='skip'"):
        rows_of(failing, failing.partitions())


@pytest.fixture(scope="module")
def logs():
    """Two logs of two buses, with topics of the same names."""
    with ExitStack() as stack:
        pair = [kept(f"shard-{number}", stack) for number in range(2)]
        for number, bus in enumerate(pair):
            bus.durable.publish_many([(f"t/{n}", b"%d" % number) for n in range(3)])
        yield pair


def test_several_logs_are_one_table_and_one_stream(logs):
    urls = " ".join(map(url_of, logs))
    both = reader(TopicReader, urls, topic="t/#", columns="topic,offset,body")
    rows = rows_of(both, both.partitions())
    assert sorted((row["topic"], row["body"]) for row in rows) == [
        (f"t/{n}", body) for n in range(3) for body in (b"0", b"1")
    ]
    stream = reader(TopicStreamReader, urls, topic="t/#", start="latest", columns="topic,offset,body")
    place = stream.initialOffset()
    assert len(place) == 2 and all(len(topics) == 3 for topics in place.values())
    logs[1].durable.publish_many([("t/9", b"new")])
    end = stream.latestOffset(place, ReadAllAvailable())
    assert rows_of(stream, stream.partitions(place, end)) == [{"topic": "t/9", "offset": 0, "body": b"new"}]
    with pytest.raises(LogChanged, match="another log"):
        reader(TopicStreamReader, url_of(logs[0]), topic="t/#").latestOffset(end, ReadAllAvailable())
    grown = reader(TopicStreamReader, urls, topic="t/#").latestOffset(
        {next(iter(end)): end[next(iter(end))]}, ReadAllAvailable()
    )
    assert set(grown) == set(end), "a log that is added is read from its first event on"
    twice = reader(TopicReader, f"{url_of(logs[0])} {url_of(logs[0])}", topic="t/#")
    with pytest.raises(BadInput, match="have the same log"):
        twice.partitions()


def test_a_batch_is_written_once_to_each_log_though_the_driver_died_between_them(logs):
    urls = " ".join(map(url_of, logs))
    rows = [(f"sums/{n}", b"%d" % n) for n in range(40)]
    options = {"url": urls, "writer": "sums", "batch": "0"}
    writer = BatchWriter(Settings(options), SCHEMA)
    staged = writer.write(iter([table(rows)]))
    with LogClient(url_of(logs[0])) as keepers:  # the driver commits to the first log, and dies
        keepers.commit_batch("sums", 0, [(staged.attempt, staged.parts[0])], query=staged.query)
    there = [{known.topic for known in bus.durable.topics("sums/#")} for bus in logs]
    assert there == [{topic for topic, _ in rows if log_of(topic, 2) == 0}, set()]
    again = BatchWriter(Settings(options), SCHEMA)
    message = again.write(iter([table(rows)]))
    assert message.parts[0] == 0, "the first log has it"
    again.commit([message])
    again.commit([message])
    found = [(known.topic, known.end) for bus in logs for known in bus.durable.topics("sums/#")]
    assert sorted(found) == sorted((topic, 1) for topic, _ in rows)


def test_readers_begin_with_different_keepers_and_go_on_with_others(bus):
    host = url_of(bus).removeprefix("client://").split("/")[0]
    with LogClient(f"client://127.0.0.1:9,{host}/many-topics", begin_with=1) as keepers:
        assert keepers._hosts[0][1] == int(host.split(":")[1]) and keepers.topics("many/0001")
    with LogClient(f"client://127.0.0.1:9,{host}/many-topics", begin_with=4) as keepers:
        assert keepers._hosts[0][1] == 9 and keepers.topics("many/0001"), "the first is not there: another one is asked"


def test_what_keepers_refuse_of_many_commands_is_said(bus):
    writer = BatchWriter(Settings({"url": url_of(bus), "writer": "mine", "batch": "0"}), SCHEMA)
    writer.publish([writer.stage(iter([table([("x", b"1")])]), 0, "first")], 0)
    other = BatchWriter(Settings({"url": url_of(bus), "writer": "mine", "batch": "1"}), SCHEMA)
    with pytest.raises(Refused, match="belongs to another query"):
        other.stage(iter([table([("x", b"1")])]), 1, "another")
    with pytest.raises(Unreachable), LogClient("client://127.0.0.1:9/x", timeout=0.1) as keepers:
        keepers.topics()
