"""Jobs: progress, stop, checkpoint and resume; and one file on the local engine, a cluster and a Connect server."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import pluribus
from pluribus.cli.app import run
from pluribus.core.errors import BadInput, JobFailed
from pluribus.pipeline.jobs import Job
from pluribus.pipeline.status import Status, fetched
from tests.pipeline import engines
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = """
    import os
    import signal
    import time
    from pathlib import Path

    from pyspark.sql import functions as F

    from pluribus.pipeline.functions import windows
    from pluribus.pipeline.source import register


    def job(spark, options):
        numbers = spark.readStream.schema("time timestamp, key string, n bigint").json(options["in"])
        sums = windows(numbers, "10 seconds", by=["key"], late="0 seconds", sum=F.sum("n"))
        queries = {"sums": sums.writeStream.format("json").option("path", options["out"])}
        if "url" in options:
            queries["copies"] = copies(spark, options["url"], options.get("faults"))
        return queries


    def copies(spark, url, faults):
        register(spark)
        source = spark.readStream.format("pluribus").options(url=url, topic="numbers", start="earliest", rows="500")
        copied = source.options(fields="n bigint", columns="n").load()
        if faults:
            copied = copied.mapInArrow(suffering(faults), copied.schema)
        return copied.writeStream.format("pluribus").options(url=url, topic="copies", writer="copies")


    def suffering(folder):
        def suffer(batches):
            for batch in batches:
                yield batch
                seen = batch.column(0).to_pylist()
                if 700 in seen and not os.path.exists(f"{folder}/executor"):
                    Path(folder, "executor").touch()
                    os.kill(executor(), signal.SIGKILL)
                if 1200 in seen and not os.path.exists(f"{folder}/driver"):
                    Path(folder, "driver").touch()
                    time.sleep(100)  # the test kills the driver now, and Spark this task

        return suffer


    def executor():
        # This process was forked by a daemon of Spark, which the executor's Java machine has started.
        return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
"""
FIRST = [("00:00", "a", 1), ("00:05", "a", 2), ("00:07", "b", 5), ("00:12", "a", 4)]
SECOND = [("00:13", "b", 8), ("00:31", "a", 1)]
THIRD = [("01:00", "a", 1)]
COUNT = 2_000


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"time": f"2026-11-15T12:{at}Z", "key": key, "n": n}) for at, key, n in rows]
    (folder / name).write_text("\n".join(lines) + "\n")


def sums(folder):
    found = [json.loads(line) for path in folder.glob("part-*") for line in path.read_text().splitlines()]
    return sorted((row["start"][14:19], row["key"], row["sum"]) for row in found)


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "sums.py"
    path.write_text(textwrap.dedent(JOB))
    write(tmp_path / "in", "1.json", FIRST)
    return path


def options(tmp_path):
    return {"in": str(tmp_path / "in"), "out": str(tmp_path / "out")}


def test_a_job_tells_of_every_batch_and_resumes_where_it_ended(spark, job, tmp_path):
    told = []
    status = Status()
    running = Job(spark, job, tmp_path / "checkpoint", options(tmp_path), status=status)
    first = running.run(once=True, progress=told.append)
    reported = status.report()["queries"]["sums"]
    assert (reported["rows"], reported["state"]) == (len(FIRST), "ended") and reported["state_rows"] > 0
    assert first["queries"]["sums"]["rows"] == len(FIRST) == sum(batch["rows"] for batch in told)
    write(tmp_path / "in", "2.json", SECOND)
    second = Job(spark, job, tmp_path / "checkpoint", options(tmp_path)).run(once=True)
    assert second["queries"]["sums"]["rows"] == len(SECOND)
    assert second["queries"]["sums"]["batch"] > first["queries"]["sums"]["batch"]
    write(tmp_path / "in", "3.json", THIRD)
    Job(spark, job, tmp_path / "checkpoint", options(tmp_path)).run(once=True)
    assert sums(tmp_path / "out") == [
        ("00:00", "a", 3),
        ("00:00", "b", 5),
        ("00:10", "a", 4),
        ("00:10", "b", 8),
        ("00:30", "a", 1),
    ]


def test_a_stop_ends_a_job_between_batches(spark, job, tmp_path):
    running = Job(spark, job, tmp_path / "checkpoint", options(tmp_path))
    seen = threading.Event()
    answer = []
    thread = threading.Thread(target=lambda: answer.append(running.run(progress=lambda _: seen.set())))
    thread.start()
    assert seen.wait(60)
    running.stop()
    thread.join(60)
    assert answer[0]["queries"]["sums"]["rows"] == len(FIRST)
    assert not any(query.isActive for query in running.queries.values())


def test_a_query_that_fails_is_raised_with_its_reason(spark, tmp_path):
    job = tmp_path / "bad.py"
    job.write_text(
        "def job(spark, options):\n"
        "    rate = spark.readStream.format('rate').load()\n"
        "    return rate.selectExpr('raise_error(\"bad tide\")').writeStream.format('noop')\n"
    )
    with pytest.raises(JobFailed, match="the query 'bad' failed"):
        Job(spark, job, tmp_path / "checkpoint", {}).run(seconds=60)


def test_what_is_no_job_is_said(spark, tmp_path, capsys):
    with pytest.raises(BadInput, match="there is no job"):
        Job(spark, tmp_path / "none.py", tmp_path, {}).run()
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(BadInput, match="has no function job"):
        Job(spark, tmp_path / "empty.py", tmp_path, {}).run()
    assert run(["pipeline", "run", str(tmp_path / "empty.py"), "--set", "x"]) == 2
    assert "has no value" in capsys.readouterr().err
    assert run(["pipeline", "run", str(tmp_path / "empty.py"), "--master", "mesos://x"]) == 2


def test_options_that_do_not_fit_are_said_in_one_sentence(spark, tmp_path, capsys):
    """Of what is read when the job is planned, of what is written when its query runs."""
    job = tmp_path / "bad.py"
    code = """
        from pluribus.pipeline.source import register

        def job(spark, options):
            register(spark)
            table = spark.readStream.format(options["from"]).options(fields="n money", topic="t").load()
            return table.selectExpr("1 AS n").writeStream.format("pluribus").options(topic="u")
    """
    job.write_text(textwrap.dedent(code))
    for source, said in (("pluribus", "option fields has 'n money': write a name"), ("rate", "a stream needs a name")):
        assert run(["pipeline", "run", str(job), "--set", f"from={source}"]) == 2
        told = capsys.readouterr().err
        assert said in told and "Traceback" not in told and len(told.splitlines()) == 1


def descendants(pid):
    """All processes below one. Java starts them from any of its threads."""
    children = []
    for thread in Path("/proc", str(pid), "task").glob("*/children"):
        with suppress(OSError):
            children += [int(word) for word in thread.read_text().split()]
    return [one for child in children for one in (child, *descendants(child))]


def test_a_polite_kill_of_all_processes_ends_a_job_between_batches(java, tmp_path):
    """As systemd stops a service: Python, Java and Spark's workers get the signal, and the first of them sees to it."""
    job = tmp_path / "ticking.py"
    job.write_text(
        "def job(spark, options):\n"
        "    ticks = spark.readStream.format('rate').load()\n"
        "    return ticks.mapInArrow(lambda batches: batches, ticks.schema).writeStream.format('noop')\n"
    )
    command = [sys.executable, "-m", "pluribus", "pipeline", "run", str(job), "--master", "local[1]", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=engines.environment(), start_new_session=True, **pipes)
    try:
        told = []
        while not any(line.startswith("ticking batch") for line in told):
            told.append(process.stderr.readline())
            assert told[-1], "".join(told)[-3000:]
        everybody = [process.pid, *descendants(process.pid)]
        assert len(everybody) >= 3, "Java and a daemon of workers are there"
        for one in everybody:
            with suppress(ProcessLookupError):  # a worker that is done
                os.kill(one, signal.SIGTERM)
        answer, rest = process.communicate(timeout=100)
    finally:
        for one in (*descendants(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, rest[-3000:]
    assert not [word for word in ("Traceback", "Exception", "\tat ", "Error") if word in rest], rest[-3000:]
    assert json.loads(answer)["queries"]["ticking"]["rows"] > 0


@contextmanager
def bus_of_numbers(folder):
    """A keeper with numbers in its log; the address at which it serves."""
    with pluribus.sync.connect(f"inproc://{folder.name}", store=folder / "keeper.db", serve="127.0.0.1:0") as bus:
        bus.durable.publish_many([("numbers", {"n": n}) for n in range(COUNT)])
        yield bus, url_of(bus)


def copies_of(bus):
    found = [event.body["n"] for event in bus.log("copies").read(max_bytes=1 << 30).events()]
    return len(found), sum(found), len(set(found))


ALL = (COUNT, sum(range(COUNT)), COUNT)


def command_for(master, job, tmp_path, uri=False, **more):
    write(tmp_path / "in", "2.json", SECOND)
    write(tmp_path / "in", "3.json", THIRD)
    command = [sys.executable, "-m", "pluribus", "pipeline", "run", str(job), "--master", master, "--once", "--json"]
    command += ["--checkpoint", (tmp_path / "checkpoint").as_uri() if uri else str(tmp_path / "checkpoint")]
    command += ["--conf", "spark.sql.streaming.minBatchesToRetain=7", "--conf", "spark.sql.shuffle.partitions=2"]
    for name, value in {**options(tmp_path), **more}.items():
        command += ["--set", f"{name}={value}"]
    return command


def run_to_the_end(command):
    answer = subprocess.run(command, env=engines.environment(), capture_output=True, text=True, timeout=240)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return json.loads(answer.stdout)


def killed_when(mark, command):
    """Run it until the mark is there, then kill -9 its Python and its Java."""
    process = subprocess.Popen(
        command, env=engines.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        while not mark.exists():
            assert process.poll() is None, process.stderr.read()[-3000:]
            threading.Event().wait(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()


def test_on_a_standalone_cluster_an_executor_and_then_the_driver_are_killed_in_mid_batch(java, job, tmp_path):
    faults = tmp_path / "faults"
    faults.mkdir()
    with engines.cluster(tmp_path / "cluster") as master, bus_of_numbers(tmp_path) as (bus, url):
        command = command_for(master, job, tmp_path, uri=True, url=url, faults=faults)
        killed_when(faults / "driver", command)
        assert (faults / "executor").exists()
        assert 0 < copies_of(bus)[0] < COUNT
        run_to_the_end(command)
        assert copies_of(bus) == ALL
    assert sums(tmp_path / "out")[:3] == [("00:00", "a", 3), ("00:00", "b", 5), ("00:10", "a", 4)]


def test_the_same_job_through_a_connect_server(java, job, tmp_path):
    with engines.connect_server(tmp_path / "server") as master, bus_of_numbers(tmp_path) as (bus, url):
        found = run_to_the_end(command_for(master, job, tmp_path, url=url))
        assert copies_of(bus) == ALL
    assert (found["queries"]["sums"]["rows"], found["queries"]["copies"]["rows"]) == (7, COUNT)
    reported = fetched(str(tmp_path / "checkpoint"))["queries"]["copies"]
    assert (reported["rows"], reported["lag"], reported["state"]) == (COUNT, 0, "ended")
    assert sums(tmp_path / "out")[:3] == [("00:00", "a", 3), ("00:00", "b", 5), ("00:10", "a", 4)]
