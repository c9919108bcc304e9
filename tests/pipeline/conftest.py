"""One Spark session for all tests of the pipeline: it takes seconds to start."""

import pytest

from pluribus.cli import programs


@pytest.hookimpl(tryfirst=True)  # before the tests are dealt out: one worker has the session, and not each its own
def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/pipeline" in item.nodeid and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip("pyspark.sql")
    if not programs.find_java():
        pytest.skip(f"Java is missing. {programs.REMEDIES['java']}")
    from pluribus.pipeline.session import open_session

    # Small tables and many queries: what replans, compiles and optimises while they run costs more than it saves.
    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    session = open_session("local[2, 3]", "tests", **settings)  # a task that fails is tried three times
    yield session
    session.stop()
