"""What a session is given on each engine, as far as that is known without one."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.core.errors import BadInput
from pluribus.pipeline.jobs import below
from pluribus.pipeline.session import defaults, is_here, open_session


@pytest.mark.parametrize("master", ["local[2]", "local[2, 3]", "spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_what_is_on_this_machine_stays_on_loopback(master):
    given = defaults(master)
    assert is_here(master) and given["spark.driver.host"] == given["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.parametrize(
    "master",
    ["spark://head.example.org:7077", "spark://127.0.0.1:7077,other:7077", "yarn", "k8s://https://10.0.0.1:443"],
)
def test_a_cluster_elsewhere_is_given_no_loopback_address(master):
    given = defaults(master)
    assert not is_here(master) and "127.0.0.1" not in given.values()
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & set(given)


def test_an_engine_that_is_none_is_said():
    with pytest.raises(BadInput, match=r"there is no engine 'mesos://x': use local\[N\], .*k8s"):
        open_session("mesos://x")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("s3a://bucket/state", "s3a://bucket/state/q"),
        ("hdfs:///state/", "hdfs:///state/q"),
        ("file:/state", "file:/state/q"),
        ("/state", "/state/q"),
    ],
)
def test_checkpoints_may_be_uris(place, found):
    assert below(place, "q") == found


def test_a_relative_checkpoint_is_absolute_for_spark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert below("state", "q") == str(tmp_path / "state" / "q")


DEATHS = """
import os
import signal
import sys

from pluribus.core.errors import JobFailed, Unreachable
from pluribus.pipeline.jobs import Job
from pluribus.pipeline.session import session

os.environ["JDK_JAVA_OPTIONS"] = "-XX:NoSuchOption"
try:
    with session("local[1]", "refused"):
        pass
except Unreachable as error:
    print(error)
os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"


def ticking(spark, options):
    return {"ticking": spark.readStream.format("rate").load().writeStream.format("noop")}


def kill(progress):
    from pyspark import SparkContext

    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)


try:
    with session("local[1]", "killed") as spark:
        Job(spark, "ticking", sys.argv[1], {}, ticking).run(progress=kill)
except JobFailed as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_last_words_of_java_are_in_the_error(java, tmp_path):
    """Of one that does not start, and of one that is killed under a job."""
    command = [sys.executable, "-c", DEATHS, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert answer.returncode == 0, answer.stderr[-3000:]
    refused, killed = answer.stdout.splitlines()
    assert refused.startswith("no Spark session at local[1]: ") and "NoSuchOption" in refused
    assert killed.startswith("Spark's Java has died: ") and killed.endswith(
        "run it again with the same checkpoint to resume"
    )
