"""``spark-sql`` alone: PySpark finds the source by the name of its module, and nobody registers it."""

import os
import subprocess
import sys

import pytest

from pluribus.cli import programs

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_table_of_the_catalog_is_a_topic(tmp_path):
    pyspark = pytest.importorskip("pyspark")
    if not programs.find_java():
        pytest.skip(f"Java is missing. {programs.REMEDIES['java']}")
    import pluribus

    home = os.path.dirname(pyspark.__file__)
    with pluribus.sync.connect("inproc://sql", store=":memory:", serve="127.0.0.1:0") as bus:
        host, port = bus._real.doors[0].address
        bus.durable.publish_many([("stocks/ibm", {"symbol": "ibm", "price": float(n)}) for n in range(100)])
        options = {
            "url": f"client://{host}:{port}/sql",
            "topic": "stocks/#",
            "fields": "symbol string, price double",
        }
        told = ", ".join(f"{name} '{value}'" for name, value in options.items())
        made, asked = f"CREATE TABLE ticks USING pluribus OPTIONS ({told})", "count(*), sum(price) FROM ticks"
        script = f"{made}; SELECT {asked} WHERE price > 50"
        command = [f"{home}/bin/spark-sql", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
        command += ["--conf", "spark.sql.catalogImplementation=in-memory", "-e", script]
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3_000:]
        assert done.stdout.split() == ["49", f"{sum(range(51, 100)):.1f}"]
