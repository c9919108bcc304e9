"""Jobs: progress, stop, checkpoint and resume; and one file on the local engine, a cluster and a Connect server."""

import json
import subprocess
import sys
import textwrap
import threading

import pytest

from pluribus.cli.app import run
from pluribus.core.errors import BadInput, JobFailed
from pluribus.pipeline.jobs import Job
from tests.pipeline import engines

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow, pytest.mark.timeout(300)]

JOB = """
    from pyspark.sql import functions as F

    from pluribus.pipeline.functions import windows


    def job(spark, options):
        numbers = spark.readStream.schema("time timestamp, key string, n bigint").json(options["in"])
        sums = windows(numbers, "10 seconds", by=["key"], late="0 seconds", sum=F.sum("n"))
        written = sums.writeStream.format("json").option("path", options["out"])
        return {"sums": written}
"""
FIRST = [("00:00", "a", 1), ("00:05", "a", 2), ("00:07", "b", 5), ("00:12", "a", 4)]
SECOND = [("00:13", "b", 8), ("00:31", "a", 1)]
THIRD = [("01:00", "a", 1)]


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
    first = Job(spark, job, tmp_path / "checkpoint", options(tmp_path)).run(once=True, progress=told.append)
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
    assert run(["pipeline", "run", str(tmp_path / "empty.py"), "--master", "yarn"]) == 2


def run_on(master, job, tmp_path, environment):
    write(tmp_path / "in", "2.json", SECOND)
    write(tmp_path / "in", "3.json", THIRD)
    command = [sys.executable, "-m", "pluribus", "pipeline", "run", str(job), "--master", master, "--once", "--json"]
    for name, value in options(tmp_path).items():
        command += ["--set", f"{name}={value}"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return json.loads(answer.stdout)


def test_the_same_job_on_a_standalone_cluster(spark, job, tmp_path):
    with engines.cluster(tmp_path / "cluster") as master:
        found = run_on(master, job, tmp_path, engines.environment())
    assert found["queries"]["sums"]["rows"] == 7
    assert sums(tmp_path / "out")[:3] == [("00:00", "a", 3), ("00:00", "b", 5), ("00:10", "a", 4)]


def test_the_same_job_through_a_connect_server(spark, job, tmp_path):
    with engines.connect_server(tmp_path / "server") as master:
        found = run_on(master, job, tmp_path, engines.environment())
    assert found["queries"]["sums"]["rows"] == 7
    assert sums(tmp_path / "out")[:3] == [("00:00", "a", 3), ("00:00", "b", 5), ("00:10", "a", 4)]
