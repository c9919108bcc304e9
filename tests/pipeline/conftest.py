"""One Spark session for all tests of the pipeline: it takes seconds to start. Tests that use it are marked
``xdist_group("spark")``, so that one worker has it, and not each its own."""

import pytest

from pluribus.cli import programs


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip("pyspark.sql")
    if not programs.find_java():
        pytest.skip(f"Java is missing. {programs.REMEDIES['java']}")
    from pluribus.pipeline.session import open_session

    # Small tables and many queries: what replans, compiles and optimises while they run costs more than it saves. Room
    # for what Spark compiles is there from the beginning; growing it would collect all garbage each time.
    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=512m",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    session = open_session("local[2, 3]", "tests", **settings)  # a task that fails is tried three times
    yield session
    session.stop()
