"""Keepers, publishers and subscribers as processes, killed without warning: nothing acknowledged is lost or doubled."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.real.cluster import eventually
from tests.real.processes import processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]


def check_publishers(log: list[str], acknowledged: list[str]) -> None:
    """Everything acknowledged is there; each publisher's numbers are there once, in order, without a gap."""
    numbers: dict[str, list[int]] = {}
    for body in log:
        name, number = body.split()
        numbers.setdefault(name, []).append(int(number))
    for name, found in numbers.items():
        assert found == list(range(len(found))), f"{name} is not in order, or not once"
    assert set(acknowledged) <= set(log)


def check_subscriber(log: list[str], handled: list[str], lives: int) -> None:
    """Every event was handled, in order; after a crash it goes on where it had committed, not further behind."""
    offsets = [int(line.split()[0]) for line in handled]
    assert [line.partition(" ")[2] for line in handled] == [log[offset] for offset in offsets]
    backwards = [(one, other) for one, other in pairwise(offsets) if other != one + 1]
    assert len(backwards) < lives, f"{backwards} are jumps that no crash explains"
    assert all(other <= one for one, other in backwards), f"{backwards} leave something out"
    assert set(offsets) == set(range(max(offsets) + 1))


def test_publisher_and_subscriber_are_killed(tmp_path: Path):
    with processes(tmp_path) as found:
        found.keep("a")
        found.start("subscribe", "reader-0", "handled")
        for life in range(3):
            found.start("publish", f"writer-{life}", "acknowledged")
            found.more("acknowledged")
            found.more("handled")
            found.kill(f"writer-{life}", f"reader-{life}")
            found.start("subscribe", f"reader-{life + 1}", "handled")
        log = found.log()
        eventually(lambda: int(found.lines("handled")[-1].split()[0]) == len(log) - 1, "everything is handled")
        check_publishers(log, found.lines("acknowledged"))
        check_subscriber(log, found.lines("handled"), 4)


def test_keepers_are_killed_one_by_one_and_all_at_once(tmp_path: Path):
    with processes(tmp_path) as found:
        for name in "abc":
            found.keep(name)
        found.start("publish", "writer", "acknowledged")
        found.start("subscribe", "reader", "handled")
        found.more("acknowledged")
        for name in "ab":
            found.kill(name)
            found.more("acknowledged")
            found.keep(name)
        found.more("acknowledged")
        found.kill(*"abc")
        found.keep(*"abc")
        found.more("acknowledged")
        found.more("handled")
        found.kill("writer")
        log = found.log()
        eventually(lambda: int(found.lines("handled")[-1].split()[0]) == len(log) - 1, "everything is handled")
        check_publishers(log, found.lines("acknowledged"))
        check_subscriber(log, found.lines("handled"), 1)


def test_founders_are_killed_while_they_begin_a_log(tmp_path: Path):
    with processes(tmp_path) as found:
        options = ["--voters", "3"]
        for name in "abc":
            found.begin(name, *options)
        for name in "ab":  # the eldest, and who may have become that
            eventually(lambda: (tmp_path / f"{name}.db-mark").exists(), f"{name} has a store")  # noqa: B023
            found.kill(name)
            found.begin(name, *options)
        found.wait(*"abc")
        found.start("publish", "writer", "acknowledged")
        found.more("acknowledged")
        found.kill("a")
        found.more("acknowledged")
        found.kill("writer")
        found.keep("a")
        check_publishers(found.log(), found.lines("acknowledged"))
        assert found.stop(*"abc") == dict.fromkeys("abc", (3, 0)), "three voters, and no second log"
