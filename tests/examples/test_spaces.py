"""The examples of tuple spaces, as the documentation starts them."""

import subprocess
import sys

import pytest

from tests.features import ROOT


def run(*words, timeout=110):
    command = [sys.executable, *(str(ROOT / "examples" / words[0]), *words[1:])]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True).stdout


def test_the_fire_alarm():
    told = run("alarm_space.py")
    assert "Fire" in told or "FIRE" in told, told


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["replicated", "views", "partitioned"])
def test_primes_are_counted_although_workers_die_and_come(kind):
    told = run("primes_space.py", "--below", "30000", "--workers", "2", "--kind", kind, timeout=300)
    assert "3245" in told.replace(",", "") and "was killed" in told, told
