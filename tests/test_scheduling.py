"""Workers that end in the middle of a test: what they had is done by others, and the run ends."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(12))
def test_one(number):
    if number == 0:
        while len(list(Path("done").iterdir())) < 8:  # the other worker has nothing to do any more, and is shut down
            time.sleep(0.05)
        time.sleep(0.5)
        os._exit(1)
    Path("done", str(number)).touch()
"""
CONFTEST = """
from tests.scheduling import Scheduling


def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""


def test_the_work_of_a_worker_that_ended_late_is_done_once_and_the_run_ends(tmp_path):
    (tmp_path / "test_many.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "done").mkdir()
    root = Path(__file__).parent.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(root), environment.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 failed, 11 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "crashed while running 'test_many.py::test_one[0]'" in ran.stdout
