"""The fire alarm with a queue, as the documentation starts it."""

import subprocess
import sys

from tests.features import ROOT


def test_crews_share_alarms():
    example = ROOT / "examples" / "alarm_queue.py"
    found = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=100, check=True)
    assert found.stdout.splitlines() == [
        "the southern crew drives to the harbour",
        "the engine broke down: the smoke in the kitchen is given back",
        "try 2: smoke in the kitchen is put out",
        "try 1: fire in the kitchen is put out",
        "dead letter: test, because there is no such place",
        "0 alarms wait, 1 dead letter",
    ]
