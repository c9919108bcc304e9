"""Members that publish and subscribe, killed without warning: the others miss nothing and get nothing twice."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.real.cluster import eventually
from tests.real.live import JOBS
from tests.real.processes import Processes, processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]


def heard(found: Processes, file: str) -> dict[str, list[int]]:
    """What one subscriber got, by publisher."""
    numbers: dict[str, list[int]] = {}
    for line in found.lines(file):
        name, number = line.split()
        numbers.setdefault(name, []).append(int(number))
    return numbers


def from_all(found: Processes, file: str, *names: str) -> None:
    """Wait until it hears these publishers, and some more of each."""
    before = {name: len(heard(found, file).get(name, [])) for name in names}
    eventually(
        lambda: all(len(heard(found, file).get(name, [])) > before[name] + 20 for name in names),
        f"{file} hears {', '.join(names)}",
    )


def test_publishers_and_subscribers_are_killed(tmp_path: Path):
    with processes(tmp_path) as found:
        for name in ("one", "two"):
            found.start_live("subscribe", name, name)
        for name in ("a", "b"):
            found.start_live("publish", name, "published")
        for file in ("one", "two"):
            from_all(found, file, "a", "b")
        found.kill("a")  # in the middle of what it says
        found.start_live("publish", "c", "published")
        found.start_live("subscribe", "three", "three")
        for file in ("one", "two", "three"):
            from_all(found, file, "b", "c")
        found.kill("two", "b")  # a subscriber, and a publisher who waits for it
        for file in ("one", "three"):
            from_all(found, file, "c")
        eventually(lambda: heard(found, "one")["b"][-1] == heard(found, "three")["b"][-1], "they agree on b")
        lives = {file: heard(found, file) for file in ("one", "two", "three")}
        for file, numbers in lives.items():
            for name, some in numbers.items():
                assert all(other == one + 1 for one, other in pairwise(some)), f"{file} missed some of {name}"
        assert lives["one"]["a"][-1] == lives["two"]["a"][-1], "who went on together has the same of who died"


def test_of_a_worker_that_is_killed_one_event_at_most_is_done_twice(tmp_path: Path):
    with processes(tmp_path) as found:
        for name in ("one", "two"):
            found.start_live("work", name, name)
        for name in ("one", "two"):
            eventually(lambda name=name: len(found.lines(name)) == 1, f"{name} is ready")
        found.start_live("hand_out", "boss", "boss")
        found.more("two", 40)
        found.kill("two")
        begun = jobs(found, "two")
        eventually(lambda: len(begun | jobs(found, "one")) == JOBS, "everything is done")
        lines = [line.split() for line in found.lines("one")[1:]]
        twice = begun & jobs(found, "one")
        assert len(twice) <= 1
        assert all([str(number), "again"] in lines for number in twice)


def jobs(found: Processes, file: str) -> set[int]:
    return {int(line.split()[0]) for line in found.lines(file)[1:]}
