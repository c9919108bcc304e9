"""Queues in Spark: looked at as tables, taken from as streams, with drivers and executors that die."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pluribus import sync
from pluribus.cli import app
from pluribus.core.errors import BadInput, TransactionEnded
from pluribus.pipeline.options import Settings
from pluribus.pipeline.queue_source import QueueStreamReader
from pluribus.pipeline.source import register
from pluribus.runtime.clients.log_client import LogClient

pytestmark = [pytest.mark.timeout(400)]
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A bus with its keeper in this process, and the URL of its clients."""
    name = f"spark-queues-{os.getpid()}"
    store = tmp_path_factory.mktemp("keeper") / "k.db"
    with sync.connect(f"inproc://{name}", store=store, serve="127.0.0.1:0") as bus:
        host, port = bus.doors[0].address
        yield bus, f"client://{host}:{port}/{name}"


def filled(bus, name, count):
    queue = bus.queue(name)
    for number in range(count):
        queue.send({"n": number, "name": f"x{number}"}, key=f"k{number % 3}" if number % 2 else "")
    return queue


def stream_reader(url, queue, reader="job", rows=None):
    schema = Settings({"url": url, "queue": queue, "fields": "n long"}).schema()
    return QueueStreamReader(url, queue, "", schema, reader, rows)


def numbers_between(reader, start, end):
    return sorted(
        row["n"] for piece in reader.partitions(start, end) for batch in reader.read(piece) for row in batch.to_pylist()
    )


def test_a_batch_is_the_same_for_whoever_plans_or_reads_it(shop):
    bus, url = shop
    queue = bus.queue("stable")
    for number in range(5):
        queue.send({"n": number})
    reader = stream_reader(url, "stable", rows=3)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(3))
    assert first != start and numbers_between(reader, start, first) == [0, 1, 2]

    again = stream_reader(url, "stable", rows=3)  # the driver died before it wrote the offset down
    start_again = again.initialOffset()
    assert again.latestOffset(start_again, ReadMaxRows(3)) == first
    assert numbers_between(again, start_again, first) == [0, 1, 2]
    assert bus.queue("stable").receive(timeout=60).body == {"n": 3}, "the batch is in nobody else's hands"

    then = again.latestOffset(first, ReadMaxRows(3))
    assert numbers_between(again, first, then) == [4]
    again.commit(then)
    assert again.latestOffset(then, ReadMaxRows(3)) == then, "nothing is left"
    with pytest.raises(TransactionEnded, match="older than what was done"):
        again.latestOffset(start, ReadMaxRows(3))


def test_a_batch_whose_job_is_gone_is_released(shop, capsys):
    bus, url = shop
    bus.queue("gone").send({"n": 1})
    reader = stream_reader(url, "gone")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert bus.queue("gone").receive(timeout=0) is None
    assert app.run(["queue", "release", "gone", "job", "--url", url]) == 0
    assert capsys.readouterr().out == "1 micro-batches given back\n"
    assert bus.queue("gone").receive(timeout=30).body == {"n": 1}
    with pytest.raises(TransactionEnded):
        reader.commit(end)
    with pytest.raises(TransactionEnded, match="given back"):
        reader.partitions(start, end)


def test_options_are_checked(shop):
    _, url = shop
    with pytest.raises(BadInput, match="reader"):
        stream_reader(url, "q", reader="")
    with pytest.raises(BadInput, match="stands alone"):
        Settings({"url": url, "queue": "q", "topic": "t"})
    with pytest.raises(BadInput, match="at most"):
        stream_reader(url, "q", rows=20_000)
    with pytest.raises(BadInput, match="envelope"):
        Settings({"queue": "q", "fields": "number long"}).schema()


def test_a_queue_is_a_table(shop, spark):
    bus, url = shop
    filled(bus, "table", 6)
    register(spark)
    table = spark.read.format("pluribus").options(url=url, queue="table", fields="n long, name string").load()
    assert sorted((row.n, row.name, row.key) for row in table.collect()) == [
        (n, f"x{n}", f"k{n % 3}" if n % 2 else "") for n in range(6)
    ]
    bodies = spark.read.format("pluribus").options(url=url, queue="table", columns="number,body").load()
    assert bodies.orderBy("number").first().body == b'{"n": 0, "name": "x0"}'
    assert bus.queue("table").stats().depth == 6, "looking takes nothing"


JOB = """
    from pluribus.pipeline.source import register

    def job(spark, options):
        register(spark)
        taken = spark.readStream.format("pluribus").options(url=options["url"], queue="orders", reader="orders")
        done = taken.options(fields="n long", rows=10).load().select("n").writeStream.format("pluribus")
        return {"done": done.options(url=options["url"], topic="done", writer="done")}
"""
ORDERS = 60
WAIT_S = 480.0


def workers_of(driver: int) -> list[int]:
    """Python processes that do the work of Spark's executors, below a driver."""
    parents, words = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words[int(folder.name)] = (folder / "cmdline").read_bytes()

    def below(process: int) -> bool:
        while process in parents and process != driver:
            process = parents[process]
        return process == driver

    def works(argv: list[bytes]) -> bool:
        return b"python" in argv[0] and any(word.endswith(b"daemon") for word in argv)

    return [one for one in words if one != driver and works(words[one].split(b"\0")) and below(one)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_message_is_handled_once_while_drivers_and_executors_are_killed(shop, java, tmp_path):
    bus, url = shop
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    queue = bus.queue("orders")
    for number in range(ORDERS):
        queue.send({"n": number})
    command = [sys.executable, "-m", "pluribus", "pipeline", "run", "job.py", "--set", f"url={url}"]
    command += ["--checkpoint", "progress", "--master", "local[2, 4]"]

    def published() -> list[int]:
        with LogClient(url) as keepers:
            if not keepers.topics("done"):
                return []
            start, stop = keepers.offsets("done")
            return [body["n"] for batch in keepers.read("done", start, stop) for body in batch.plain()]

    def started() -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)

    def kill(driver: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    killed_workers, killed_driver, starts = 0, False, 1
    driver = started()
    try:
        give_up_at = time.monotonic() + WAIT_S
        while len(published()) < ORDERS or queue.stats().depth:
            assert time.monotonic() < give_up_at, (tmp_path / "log").read_text()[-3000:]
            if driver.poll() is not None:
                # With the workers dies the process in which Spark plans, and then the query; it is started again.
                assert killed_workers and starts < 4, (tmp_path / "log").read_text()[-3000:]
                starts += 1
                driver = started()
            if not killed_workers and published():
                for worker in workers_of(driver.pid):
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
                        killed_workers += 1
            elif killed_workers and not killed_driver and len(published()) >= ORDERS // 2:
                kill(driver)
                killed_driver = True
            time.sleep(0.05)
    finally:
        kill(driver)
    assert killed_workers and killed_driver
    found = published()
    assert (len(found), sum(found)) == (ORDERS, sum(range(ORDERS))), "count and checksum"
    assert sorted(found) == list(range(ORDERS))
