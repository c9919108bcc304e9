"""The bench of the tree measures what it says, on real namespaces where they can be made; never how fast it is."""

import signal
import subprocess
import sys

import pytest

from pluribus.bench import namespaces, tree
from pluribus.bench.tree import ONE_BY_ONE, PIPELINED, Plan
from pluribus.cli import programs
from pluribus.core.errors import Unavailable


def test_every_host_has_every_message_by_every_way():
    if not programs.can_make_namespaces():
        pytest.skip(programs.REMEDIES["namespaces"])
    ways = {ONE_BY_ONE: "by='unicast'", "tree, k = 1": "by='tree'", PIPELINED: "by='pipeline'"}
    took = tree._one_pass(Plan(hosts=4, ways=ways, rounds={20_480: 2, 200_000: 1}))
    assert took.keys() == {(way, size) for way in ways for size in (20_480, 200_000)}
    for (_, size), values in took.items():
        line_ms = size * 8 / (tree.MBIT_S * 1e3)
        # The first copy alone takes what its line takes, but for what a line lets through at once.
        assert all(value > line_ms - 2 * namespaces.BURST_BYTES * 8 / (tree.MBIT_S * 1e3) for value in values)
    assert len(took[(PIPELINED, 20_480)]) == 2


def test_ratios_and_goals_are_of_the_medians():
    plan = Plan(hosts=16, ways=tree.WAYS, rounds={20_480: 3, 1 << 20: 1})
    took = {(way, size): [10.0, 8.0, 9.0] for way in tree.WAYS for size in plan.rounds}
    took[(ONE_BY_ONE, 20_480)] = [36.0, 30.0, 90.0]
    took[(ONE_BY_ONE, 1 << 20)] = [40.0]
    rows, goals = tree._rows(plan, took)
    assert len(rows) == 2 * (2 * len(tree.WAYS) - 1)
    assert [(goal.measured, goal.met) for goal in goals] == [(4.0, True), (4.444, False)]
    assert tree._rows(Plan(hosts=4, ways=tree.WAYS, rounds=plan.rounds), took)[1] == []


def test_without_the_right_to_make_namespaces_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match="install iproute2"), namespaces.bridged(2, 100):
        pass


SLEEPER = """
import sys, time
from pluribus.bench import namespaces
with namespaces.bridged(2, 100):
    print("made", flush=True)
    time.sleep(60)
"""


def test_whoever_is_told_to_end_removes_its_namespaces():
    if not programs.can_make_namespaces():
        pytest.skip(programs.REMEDIES["namespaces"])
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "made\n"
        mine = f"{namespaces.MARK}{process.pid}-*"
        assert len(list(namespaces.PLACES.glob(mine))) == 3
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert list(namespaces.PLACES.glob(mine)) == []


def test_what_a_killed_one_left_is_removed_by_the_next():
    if not programs.can_make_namespaces():
        pytest.skip(programs.REMEDIES["namespaces"])
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "made\n"
        process.kill()
    mine = f"{namespaces.MARK}{process.pid}-*"
    assert len(list(namespaces.PLACES.glob(mine))) == 3
    with namespaces.pair():
        assert list(namespaces.PLACES.glob(mine)) == []
