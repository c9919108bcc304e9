"""For every test: real servers and Spark, or a skip that says how to get them; the order of tests; and the check that
promises are shown.

A test that asks for a server runs in the same worker as the others that ask for one (``--dist loadgroup``), so that
each server starts once in a test run. Spark, which takes seconds to start, has two sessions, in two workers, and a line
of tests for each. Tests that start programs with Spark in them stand in these lines, too: more than two at a time would
wait for each other until their time is over.
"""

import faulthandler
import gc
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from pluribus.cli import programs
from tests import durations, features, servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes depends on what else the machine does: no test fails by the clock.
hypothesis.settings.register_profile("pluribus", deadline=None)
hypothesis.settings.load_profile("pluribus")

TESTS = Path(__file__).parent
SPARK_DEFAULTS = TESTS / "pipeline" / "spark-defaults.conf"
LATE_S = 60.0
"""A test that goes on so long after its time is over takes its worker with it; see ``pytest_runtest_protocol``."""
SERVER_FIXTURES = ("nats_server", "postgres_server")
SECOND_SPARK = {
    *("pipeline/backbone/test_faults.py", "pipeline/backbone/test_running.py"),
    *("pipeline/test_conformance.py", "pipeline/test_landing.py"),
    *("pipeline/test_jobs.py", "pipeline/test_queue_source.py", "pipeline/test_session.py"),
}
"""Files of the second line of tests with Spark; it should take as long as the first."""


@pytest.fixture(scope="session")
def nats_server() -> Iterator[str]:
    """The URL of a NATS server that lives as long as the test run."""
    program = programs.find_nats_server()
    if program is None:
        pytest.skip(f"nats-server is missing. {programs.REMEDIES['nats']}")
    with servers.running_nats(program) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The connection string of a PostgreSQL server that lives as long as the test run."""
    folder = programs.find_postgres_folder()
    if folder is None:
        pytest.skip(f"The PostgreSQL server is missing. {programs.REMEDIES['postgres']}")
    with servers.running_postgres(folder) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def java() -> None:
    """For tests that start a program with Spark in it."""
    pytest.importorskip("pyspark.sql")
    if not programs.find_java():
        pytest.skip(f"Java is missing. {programs.REMEDIES['java']}")


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator["SparkSession"]:
    """A Spark session that lives as long as the worker."""
    from pluribus.pipeline.session import open_session

    settings = {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "2g", "spark.log.level": "ERROR"}
    session = open_session("local[2, 3]", "tests", **settings)  # a task that fails is tried three times
    yield session
    session.stop()


# --- order ----------------------------------------------------------------------------------------------------------


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_left_out = collection_path.name in durations.NOT_QUICK and collection_path.parent == TESTS
    return True if config.getoption("--quick") and is_left_out else None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        needed = getattr(item, "fixturenames", ())
        if item.get_closest_marker("xdist_group") is not None:
            continue
        if "spark" in needed or "java" in needed:
            second = item.path.relative_to(TESTS).as_posix() in SECOND_SPARK
            item.add_marker(pytest.mark.xdist_group("spark-2" if second else "spark-1"))
        elif set(needed) & set(SERVER_FIXTURES):
            item.add_marker(pytest.mark.xdist_group("servers"))
    seconds = durations.table()
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not durations.is_quick(item, seconds)])
        items[:] = [item for item in items if durations.is_quick(item, seconds)]
    if hasattr(config, "workerinput"):
        items[:] = durations.in_order(items, seconds)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Ours instead of ``--dist loadgroup``; a run without workers needs none."""
    from tests.scheduling import Scheduling

    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """While tests are collected nothing becomes garbage. What is there afterwards, some hundred thousand objects, stays
    there: Python need not look through it for cycles again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


# --- promises -------------------------------------------------------------------------------------------------------


class PromisesShown:
    """Fails the run when a test that docs/features.md names did not run and pass. For whole runs only."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.skipped: set[str] = set()
        self.complaints: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = durations.name_of(report.nodeid)
        if report.skipped:
            self.skipped.add(name)
        elif report.when == "call" and report.passed:
            self.passed.add(name)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.complaints = features.promises_not_shown(self.passed, self.skipped)
        if self.complaints and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for complaint in self.complaints:
            terminalreporter.write_line(f"FAILED docs/features.md: {complaint}", red=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The signal that ends a test whose time is over does not end one that stands in uvloop, as it waits in C: such a
    test would stop the whole run. Its worker writes all stacks and exits; the other workers go on, and the test has
    failed."""
    marker = item.get_closest_marker("timeout")
    given = item.config.getini("timeout") if marker is None else (*marker.args, *marker.kwargs.values())[0]
    faulthandler.dump_traceback_later(float(given or 0) + LATE_S, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--promises", action="store_true", help="fail unless every test of docs/features.md ran and passed"
    )
    parser.addoption("--quick", action="store_true", help="short tests only, and none that starts servers or Spark")
    parser.addoption("--write-durations", action="store_true", help="write tests/durations.txt; for whole runs only")


def pytest_configure(config: pytest.Config) -> None:
    # Not by SPARK_CONF_DIR: it takes classes from the archive only if it looks for them where the archive's maker did.
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(str(SPARK_DEFAULTS))} pyspark-shell"
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--promises") and not is_worker:
        config.pluginmanager.register(PromisesShown(), "promises-shown")
    if config.getoption("--write-durations") and not is_worker:
        config.pluginmanager.register(durations.Stopwatch(), "stopwatch")
