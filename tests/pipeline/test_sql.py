"""Spark's own commands: PySpark finds the source by the name of its module, and nobody registers it."""

import os
import subprocess
import sys

import pytest

from pluribus.cli import programs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


TICKS = [("stocks/ibm", {"symbol": "ibm", "price": float(n)}) for n in range(100)]
FLOWS = """
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
bus = {"url": os.environ["PLURIBUS_URL"]}


@dp.table
def ticks():
    source = spark.readStream.format("pluribus").options(**bus, topic="stocks/#", start="earliest")
    return source.option("fields", "symbol string, price double").load()


dp.create_sink("alerts", "pluribus", {**bus, "topic": "alerts", "writer": "alerts"})


@dp.append_flow(target="alerts")
def high():
    return spark.readStream.table("ticks").where("price > 50").select("symbol", "price")
"""


@pytest.fixture
def bus():
    import pluribus

    pytest.importorskip("pyspark")
    if not programs.find_java():
        pytest.skip(f"Java is missing. {programs.REMEDIES['java']}")
    with pluribus.sync.connect("inproc://sql", store=":memory:", serve="127.0.0.1:0") as bus:
        bus.durable.publish_many(TICKS)
        yield bus


def url_of(bus):
    host, port = bus._real.doors[0].address
    return f"client://{host}:{port}/sql"


def output_of(program, arguments, folder, **environment):
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    ours = {"SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    ours |= {"PYSPARK_DRIVER_PYTHON": sys.executable, **environment}
    command = [f"{home}/bin/{program}", "--conf", "spark.ui.enabled=false", *arguments]
    done = subprocess.run(command, env=os.environ | ours, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1_000:] + done.stderr[-3_000:]
    return done.stdout


def test_a_table_of_the_catalog_is_a_topic(bus, tmp_path):
    options = {"url": url_of(bus), "topic": "stocks/#", "fields": "symbol string, price double"}
    told = ", ".join(f"{name} '{value}'" for name, value in options.items())
    made, asked = f"CREATE TABLE ticks USING pluribus OPTIONS ({told})", "count(*), sum(price) FROM ticks"
    arguments = ["--master", "local[1]", "--conf", "spark.sql.catalogImplementation=in-memory"]
    found = output_of("spark-sql", [*arguments, "-e", f"{made}; SELECT {asked} WHERE price > 50"], tmp_path)
    assert found.split() == ["49", f"{sum(range(51, 100)):.1f}"]


def test_a_declarative_pipeline_reads_and_writes(bus, tmp_path):
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "alerts.py").write_text(FLOWS)
    storage = (tmp_path / "storage").as_uri()
    spec = f"name: alerts\nstorage: {storage}\nlibraries:\n  - glob:\n      include: flows/**\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    output_of(
        "spark-pipelines", ["--conf", "spark.sql.shuffle.partitions=2", "run"], tmp_path, PLURIBUS_URL=url_of(bus)
    )
    assert [(known.topic, known.end) for known in bus.durable.topics("alerts")] == [("alerts", 49)]
