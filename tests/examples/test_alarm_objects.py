"""The fire alarm with objects, as the documentation starts it."""

import os
import subprocess
import sys
import uuid

from tests.features import ROOT

EXAMPLE = ROOT / "examples" / "alarm_objects.py"


def test_everything_in_one_process():
    found = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.count("FIRE in the cellar") == 2 and found.stdout.count("FLOOD in the laundry") == 1
    assert "the siren howls for 3 s: flood" in found.stdout


def test_the_parts_as_processes():
    surroundings = {**os.environ, "PLURIBUS_URL": f"multicast://alarm-{uuid.uuid4().hex[:8]}"}
    hear = [sys.executable, str(EXAMPLE), "hear", "--place", "cellar"]
    panel = subprocess.Popen(hear, env=surroundings, stdout=subprocess.PIPE, text=True)
    try:
        for place, taken in (("cellar", "1"), ("roof", "0")):
            command = [sys.executable, str(EXAMPLE), "raise", "fire", place]
            told = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=60, check=True)
            assert told.stdout == f"{taken} panels took the alarm\n"
        assert "FIRE in the cellar" in panel.stdout.readline()
    finally:
        panel.kill()
        panel.communicate()
