"""Executors that do not see a folder of the driver are found out before anything is written there. No Spark."""

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark.sql")

from pluribus.core.errors import BadInput
from pluribus.pipeline.sharing import check_shared
from pluribus.pipeline.source import _cores


class Cluster:
    """As much of a cluster as is asked for; ``elsewhere`` is a folder that its executors do not have."""

    defaultParallelism = 3

    def __init__(self, master="spark://head:7077", elsewhere=None):
        self.master = master
        self.elsewhere = elsewhere
        self.tasks = 0

    def parallelize(self, numbers, tasks):
        self.tasks = tasks
        return SimpleNamespace(map=lambda look: SimpleNamespace(collect=lambda: self.looked(look)))

    def looked(self, look):
        if self.elsewhere is None:
            return [look(0)]
        away = self.elsewhere.rename(self.elsewhere.with_name("away"))
        try:
            return [look(0)]
        finally:
            away.rename(self.elsewhere)


def check(cluster, *places):
    check_shared(SimpleNamespace(sparkContext=cluster), *map(str, places))


def test_a_folder_that_executors_do_not_see_is_refused(tmp_path):
    tables, state = tmp_path / "tables", tmp_path / "state"
    with pytest.raises(BadInput, match=r"tables is a folder of this machine that executors on \S+ do not see: name a"):
        check(Cluster(elsewhere=tables), state, tables)
    shared = Cluster()
    check(shared, state, tables.as_uri())
    assert shared.tasks == 6, "two a core, so that every executor looks"
    assert not list(tables.iterdir()) and not list(state.iterdir()), "nothing is left behind"


def test_nobody_looks_where_there_is_one_disk_or_a_uri(tmp_path):
    for cluster, place in ((Cluster("local[2]", tmp_path), tmp_path), (Cluster(), "s3a://bucket/tables")):
        check(cluster, place)
        assert not cluster.tasks


class Told(dict):
    contains = dict.__contains__


def cores(master="spark://head:7077", executors=0, **told):
    tracker = SimpleNamespace(getExecutorInfos=lambda: [None] * (executors + 1))
    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
    named = Told({name.replace("_", "."): value for name, value in told.items()})
    return _cores(SimpleNamespace(master=master, defaultParallelism=2, getConf=lambda: named, _jsc=java))


def test_a_cluster_whose_executors_have_not_come_yet_is_of_no_known_size():
    assert cores("local[2]") == 2 and cores() == 0 and cores(executors=1) == 2
    assert cores(spark_default_parallelism="2") == 2
    assert cores("yarn", spark_executor_instances="4") == 4
    assert cores("k8s://x", spark_executor_instances="4", spark_executor_cores="3") == 12
