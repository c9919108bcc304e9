"""Conformance on Spark finds what the checkers in a process find: in mutants, in what is shipped, in a real run.

All runs go into one trace, which is checked once.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import pluribus
from pluribus.bench.ports import free_port
from pluribus.cli.app import run
from pluribus.core.errors import BadInput, Violation
from pluribus.pipeline import conformance as room
from pluribus.pipeline.conformance import checks, conformance
from pluribus.pipeline.traces import gather, write_history, written_by_members
from pluribus.sim.machinery.campaign import play_seed
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.machinery.observer import Observer
from pluribus.sim.scenarios import scenario
from tests.mutants import orders, regrouping, spread, views
from tests.mutants.hunt import released

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CHOSEN = {
    *("orders.Careful", "orders.Misplaced", "orders.Severe"),
    *("views.Double", "views.Hurried", "views.Polite", "views.Tactful", "views.Trusting", "views.Vain"),
    *("regrouping.Ahead", "spread.Blunt", "spread.Echoing", "spread.Selfish", "spread.Talkative", "spread.Unseeing"),
}
"""One or two for each promise, with short runs. That each of the others is found is tested with the simulator."""
MUTANTS = [
    (scenario, mutant, seed)
    for scenario, tables in {
        "groups": [orders.FOUND, views.FOUND, regrouping.FOUND],
        "spread": [spread.FOUND],
        "crowd": [spread.CROWD_FOUND],
    }.items()
    for table in tables
    for mutant, (seed, _) in table.items()
    if f"{mutant.__module__.rpartition('.')[2]}.{mutant.__name__}" in CHOSEN
]
SHIPPED = [("groups", 1), ("groups", 4), ("spread", 5), ("flood", 0)]


class Verdicts(NamedTuple):
    by_process: dict[str, dict[str, int | str]]
    """By run and check: how many checks were made, or the sentence of the breach."""
    by_spark: dict
    folder: str


def judged(name: str, history: History) -> dict[str, int | str]:
    verdict: dict[str, int | str] = {}
    for check, function in scenario(name).checkers.items():
        if check in checks():
            try:
                verdict[check] = function(history)
            except Violation as violation:
                verdict[check] = str(violation)
    return verdict


def swapped() -> History:
    """Two members of a totally ordered group that pass through a view together, and deliver in different orders."""
    history = History()
    for epoch in (1, 2):
        for member in (1, 2):
            history.add(Happening(epoch, member, "bus", "", (epoch, 1), members=(1, 2), chain=(7, epoch)))
        if epoch == 1:
            for member in (1, 2):
                history.add(Happening(1.1, member, "view", "g", (1, 1), members=(1, 2), promises="total"))
                history.add(Happening(1.2, member, "send", "g", (member, 0), b"x"))
            for member, order in ((1, (1, 2)), (2, (2, 1))):
                for sender in order:
                    history.add(Happening(1.3, member, "deliver", "g", (sender, 0), b"x"))
    return history


async def real_run(happenings: list[Happening], traces: Path) -> None:
    """Three members in this process, on the runtime that applications use; each also writes a trace of its own."""
    seen: list[Happening] = []
    promises = {"causes": {"order": "causal"}, "ledger": {"safe": True}, "talk": {"order": "semantic"}}
    async with (
        pluribus.connect("inproc://conformance", name="a", trace=traces / "a.trace") as a,
        pluribus.connect("inproc://conformance", name="b", trace=traces / "b.trace") as b,
        pluribus.connect("inproc://conformance", name="c", trace=traces / "c.trace") as c,
    ):
        for bus in (a, b, c):
            Observer(bus, promises, time.monotonic, seen.append)
        groups = [[await bus.group(name, **promise) for name, promise in promises.items()] for bus in (a, b, c)]
        for group in (group for mine in groups for group in mine):
            await group.wait_for(3)
        sent = 0
        for _ in range(20):
            for bus, mine in zip((a, b, c), groups, strict=True):
                for name, group in zip(promises, mine, strict=True):
                    body = f"{sent}".encode()
                    seen.append(Happening(time.monotonic(), bus.me, "send", name, (bus.me, sent // 9), body))
                    assert await group.send(body) == (bus.me, sent // 9)
                    sent += 1
        async with asyncio.timeout(30):
            while sum(h.what == "deliver" for h in seen) < 3 * sent:  # noqa: ASYNC110 - between two looks
                await asyncio.sleep(0.01)
        happenings += seen  # before they leave: who leaves last has no majority


@pytest.fixture(scope="module", autouse=True)
def few_partitions(spark):
    """Some hundred thousand rows in dozens of tables: a task takes longer to start than to end."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture(scope="module")
def verdicts(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    by_process = {}

    def keep(run: str):
        def kept(name, seed, history, promised):
            write_history(folder, run, history.happenings, promised)
            by_process[run] = judged(name, history)

        return kept

    for name, mutant, seed in MUTANTS:
        with released(mutant):
            play_seed(name, seed, keep=keep(f"{name}-{mutant.__module__.rpartition('.')[2]}-{mutant.__name__}"))
    for name, seed in SHIPPED:
        play_seed(name, seed, keep=keep(f"shipped-{name}-{seed}"))
    keep("made-swapped")("groups", 0, swapped(), scenario("groups").checkers)
    happenings: list[Happening] = []
    traces = tmp_path_factory.mktemp("traced")
    asyncio.run(real_run(happenings, traces))
    write_history(folder, "real", happenings)
    gather(folder, "traced", written_by_members(traces))
    patch = pytest.MonkeyPatch()
    patch.setattr(room, "RUNS_NAMED_MAX", 1000)
    found = conformance(spark, folder)
    patch.undo()
    return Verdicts(by_process, found, str(folder))


def test_the_same_promises_are_broken_in_every_mutant(verdicts):
    broken = {
        (run, check)
        for run, verdict in verdicts.by_process.items()
        for check, said in verdict.items()
        if isinstance(said, str)
    }
    assert {(run, check) for check, part in verdicts.by_spark["checks"].items() for run in part["runs"]} == broken
    assert len({run for run, _ in broken}) > len(CHOSEN)  # and the run that was made
    assert {check for _, check in broken} >= {
        *("agreement", "causal", "excluded", "fifo", "integrity", "one_primary", "reported", "safe", "semantic"),
        *("survives", "total", "validity", "view_agreement", "view_synchrony"),
    }


def test_what_is_shipped_and_a_real_run_break_nothing(verdicts):
    accused = {run for part in verdicts.by_spark["checks"].values() for run in part["runs"]}
    assert not [run for run in accused if run in ("real", "traced") or run.startswith("shipped")]
    assert verdicts.by_spark["runs"] == len(verdicts.by_process) + 2


def test_as_many_checks_are_made_where_nothing_is_broken(verdicts):
    kept = {check: part["checks"] for check, part in verdicts.by_spark["checks"].items() if not part["breaches"]}
    assert kept
    for check in set(kept) & {"validity", "converged", "excluded"}:
        assert kept[check] == sum(verdict.get(check, 0) for verdict in verdicts.by_process.values())


def test_the_report_shows_the_first_offending_events(verdicts):
    causal = verdicts.by_spark["checks"]["causal"]
    first = causal["first"][0]
    sentence = verdicts.by_process[first["run"]]["causal"]
    assert first["message"] == json.loads(f"[{sentence.partition('(')[2].partition(')')[0]}]")
    assert f"{first['at']:.6f}" in sentence and first["member"] in sentence
    assert len(causal["first"]) == 3


def test_the_command_says_no_and_shows_why(verdicts, capsys):
    trace = f"{verdicts.folder}/crowd-spread-Echoing.parquet"
    assert run(["pipeline", "conformance", trace, "--only", "fifo,integrity", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 1 and set(found["checks"]) == {"fifo", "integrity"}
    assert found["checks"]["fifo"]["first"][0]["said"].startswith("delivered after")
    assert run(["pipeline", "conformance", trace, "--only", "validity"]) == 0
    assert "validity" in capsys.readouterr().out


def test_a_check_or_a_trace_that_is_none_is_said(spark, tmp_path):
    with pytest.raises(BadInput, match="there is no check 'fast'"):
        conformance(spark, tmp_path, only=["fast"])
    with pytest.raises(BadInput, match="holds no trace"):
        conformance(spark, tmp_path)
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    with pytest.raises(BadInput, match="it has no column 'group'"):
        conformance(spark, tmp_path / "numbers")


def test_a_folder_of_members_traces_is_checked_as_it_is(spark, tmp_path):
    url = f"udp://127.0.0.1:{free_port()}/traced"

    async def main() -> None:
        async with (
            pluribus.connect(url, name="a", trace=tmp_path / "a.trace") as a,
            pluribus.connect(url, name="b", trace=tmp_path / "b.trace") as b,
        ):
            groups = [await bus.group("red", order="total") for bus in (a, b)]
            for group in groups:
                await group.wait_for(2)
                await group.send(b"here")
            for group in groups:
                assert [(await group.receive(timeout=5)).body for _ in groups] == [b"here"] * 2

    asyncio.run(main())
    found = conformance(spark, tmp_path, only=("integrity", "total"))
    assert (found["runs"], found["deliveries"], found["breaches"]) == (1, 4, 0)
