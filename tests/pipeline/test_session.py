"""What a session is given on each engine, as far as that is known without one."""

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
