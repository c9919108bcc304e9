"""Writing to the bus, exactly once: across tasks that are tried again, batches that are done again, keepers that die.

What arrived is counted and summed: nothing lost, nothing twice.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import pluribus
from pluribus.pipeline.source import register
from pluribus.runtime.clients.log_client import LogClient
from tests.features import ROOT
from tests.pipeline.prices import Price
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
COUNT = 2_000


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    store = tmp_path_factory.mktemp("keeper") / "keeper.db"
    with pluribus.sync.connect("inproc://pipeline-sink", store=store, serve="127.0.0.1:0") as bus:
        bus.durable.publish_many([("numbers", {"n": n}) for n in range(COUNT)])
        yield bus


@pytest.fixture(autouse=True)
def registered(spark):
    register(spark)


def numbers_in(url: str, topic: str) -> list[int]:
    with LogClient(url) as keepers:
        _, end = keepers.offsets(topic)
        return [body["n"] for batch in keepers.read(topic, 0, end) for body in batch.plain()]


def query(spark, url: str, checkpoint: Path, to: str, change=lambda table: table, **options):
    stream = spark.readStream.format("pluribus").options(url=url, topic="numbers", start="earliest", rows="500")
    table = change(stream.options(fields="n bigint", columns="n").load())
    writer = table.writeStream.format("pluribus").options(url=url, topic=to, writer=f"writer of {to}", **options)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


def run_to_the_end(writer) -> None:
    running = writer.start()
    assert running.awaitTermination(150), "the query goes on and on"


def test_rows_become_events_of_their_topics(spark, bus):
    rows = [("out/a", 1, "x"), ("out/b", 2, None), ("out/a", 3, "z")]
    table = spark.createDataFrame(rows, "topic string, n int, name string").coalesce(1)
    table.write.format("pluribus").options(url=url_of(bus)).mode("append").save()
    assert [event.body for event in bus.log("out/a").read().events()] == [{"n": 1, "name": "x"}, {"n": 3, "name": "z"}]
    assert [event.body for event in bus.log("out/b").read().events()] == [{"n": 2, "name": None}]
    text = spark.createDataFrame([("hello", {"k": "v"})], "body string, headers map<string, string>")
    text.write.format("pluribus").options(url=url_of(bus), topic="out/text").mode("append").save()
    (event,) = bus.log("out/text").read().events()
    assert (event.body, dict(event.headers)) == ("hello", {"k": "v"})
    raw = spark.createDataFrame([(bytearray(b"\x00\x01"),)], "body binary")
    raw.write.format("pluribus").options(url=url_of(bus), topic="out/raw").mode("append").save()
    assert bus.log("out/raw").read().events()[0].body == b"\x00\x01"


def test_a_table_that_was_read_is_written_as_it_is(spark, bus):
    """Identities, senders, times, parents, headers, kinds and bodies; maps are maps."""
    url = url_of(bus)
    bus.durable.publish_many([("from", {"n": {"one": 1}}), ("from", "text"), ("from", b"bytes")], headers={"k": "v"})
    bus.durable.publish("from", Price("ibm", 1.5), parent=(7, 8))
    whole = spark.read.format("pluribus").options(url=url, topic="from").load()
    whole.coalesce(1).write.format("pluribus").options(url=url, topic="copy").mode("append").save()
    before, after = bus.log("from").read().events(), bus.log("copy").read().events()
    assert [msgspec.structs.replace(event, topic="from") for event in after] == before and len(after) == 4
    maps = spark.createDataFrame(
        [({"a": {"b": 1}}, [{"c": 2}])], "m map<string, map<string, int>>, l array<map<string, int>>"
    )
    maps.write.format("pluribus").options(url=url, topic="maps").mode("append").save()
    assert bus.log("maps").read().events()[0].body == {"m": {"a": {"b": 1}}, "l": [{"c": 2}]}
    again = spark.read.format("pluribus").schema(maps.schema).options(url=url, topic="maps").load()
    assert again.collect() == maps.collect()


def test_what_cannot_be_written_is_said(spark, bus):
    def write(table, **options):
        table.write.format("pluribus").options(url=url_of(bus), **options).mode("append").save()

    with pytest.raises(PySparkException, match="rows go to no topic"):
        write(spark.range(1))
    with pytest.raises(PySparkException, match="rows have no body"):
        write(spark.range(1).select(F.lit("t").alias("topic")))
    with pytest.raises(PySparkException, match="make it binary or string"):
        write(spark.range(1).select(F.col("id").alias("body")), topic="t")
    one = spark.range(1).select(F.lit(1).alias("n"))
    with pytest.raises(PySparkException, match=r"only grows, so nothing is overwritten: write with mode\('append'\)"):
        one.write.format("pluribus").options(url=url_of(bus), topic="t").mode("overwrite").save()
    with pytest.raises(PySparkException, match="option batch='last' is no number"):
        write(one, topic="t", writer="w", batch="last")
    with pytest.raises(PySparkException, match="is a number of no writer"):
        write(one, topic="t", batch="1")
    with pytest.raises(PySparkException, match="option foreign='mine' is none of fail, begin"):
        write(one, topic="t", foreign="mine")
    with pytest.raises(PySparkException, match="option lease='long' is no time"):
        write(one, topic="t", lease="long")


def test_a_task_that_dies_in_the_middle_leaves_nothing_behind(spark, bus, tmp_path):
    mark = str(tmp_path / "died")

    def die_once(batches):
        for batch in batches:
            yield batch
            if not os.path.exists(mark):
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    writer = query(
        spark, url_of(bus), tmp_path / "checkpoint", "retried", lambda table: table.mapInArrow(die_once, table.schema)
    )
    run_to_the_end(writer)
    assert os.path.exists(mark)
    assert sorted(numbers_in(url_of(bus), "retried")) == list(range(COUNT))


def test_a_batch_that_is_done_again_changes_nothing(spark, bus, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    run_to_the_end(query(spark, url_of(bus), checkpoint, "resumed"))
    commits = sorted(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    assert len(commits) == 4
    # As if the driver had died after the keepers' commit and before Spark's.
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    bus.durable.publish_many([("numbers", {"n": n}) for n in range(COUNT, COUNT + 100)])
    run_to_the_end(query(spark, url_of(bus), checkpoint, "resumed"))
    found = numbers_in(url_of(bus), "resumed")
    assert (len(found), sum(found)) == (COUNT + 100, sum(range(COUNT + 100)))


def test_a_writer_goes_on_with_its_own_checkpoint_alone(spark, bus, tmp_path):
    """Another checkpoint counts its batches from 0 again, which keepers must not take for those they know."""
    url = url_of(bus)
    run_to_the_end(query(spark, url, tmp_path / "one", "owned"))
    with pytest.raises(PySparkException, match=r"the writer 'writer of owned' belongs to another query.*begin"):
        run_to_the_end(query(spark, url, tmp_path / "other", "owned"))
    before = numbers_in(url, "owned")
    run_to_the_end(query(spark, url, tmp_path / "anew", "owned", foreign="begin"))
    run_to_the_end(query(spark, url, tmp_path / "anew", "owned"))  # it is known by now
    assert sorted(numbers_in(url, "owned")) == sorted(before * 2)


def test_a_batch_of_foreach_batch_that_is_done_again_changes_nothing(spark, bus, tmp_path):
    """As after a crash between the write and Spark's commit."""
    written = []

    def write(table, number):
        for _ in range(2):
            options = {"url": url_of(bus), "topic": "each", "writer": "each", "batch": number}
            table.write.format("pluribus").options(**options).mode("append").save()
        written.append(number)

    stream = spark.readStream.format("pluribus").options(url=url_of(bus), topic="numbers", start="earliest", rows="900")
    writer = stream.options(fields="n bigint", columns="n").load().writeStream.foreachBatch(write)
    run_to_the_end(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True))
    found = numbers_in(url_of(bus), "each")
    assert written == [0, 1, 2] and sorted(found) == sorted(numbers_in(url_of(bus), "numbers"))


def test_a_stream_without_a_name_is_refused(spark, bus, tmp_path):
    with pytest.raises(PySparkException, match="a stream needs a name"):
        run_to_the_end(query(spark, url_of(bus), tmp_path, "nameless").option("writer", ""))


@contextmanager
def three_keepers(folder: Path):
    """Keepers as processes; their addresses, and the processes."""
    name, processes = f"pipeline-{os.getpid()}", []
    try:
        for number in range(3):
            command = [
                sys.executable,
                "-m",
                "tests.pipeline.keeper",
                name,
                str(folder / f"{number}.db"),
                f"k{number}",
                "3",
            ]
            processes.append(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        addresses = [process.stdout.readline().strip() for process in processes]
        assert all(addresses), "a keeper did not start: see its output"
        yield name, addresses, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def test_a_keeper_that_dies_is_replaced_by_another(spark, tmp_path):
    with three_keepers(tmp_path) as (name, addresses, processes):
        url = f"client://{','.join(addresses)}/{name}"
        with pluribus.sync.connect(url) as client:
            client.publish_many([("numbers", {"n": n}) for n in range(COUNT)], durable=True)
        running = query(spark, url, tmp_path / "checkpoint", "survived").start()
        seen = threading.Event()

        def look() -> None:
            while running.isActive and not running.recentProgress:
                seen.wait(0.01)
            seen.set()

        threading.Thread(target=look).start()
        assert seen.wait(100)
        processes[0].kill()  # the one that everybody asks first
        assert running.awaitTermination(150)
        rest = f"client://{','.join(addresses[1:])}/{name}"
        found = numbers_in(rest, "survived")
        assert (len(found), sum(found)) == (COUNT, sum(range(COUNT)))
