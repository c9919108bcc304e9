"""Campaigns: what they add up, what they call a failure, and when they prove too little."""

import asyncio
from collections import Counter

import msgspec
import pytest

from pluribus.core.errors import BadInput, Violation
from pluribus.sim import scenarios
from pluribus.sim.machinery import campaign as campaigns
from pluribus.sim.machinery.campaign import (
    CHECKS_MIN,
    SEEDS_FOR_MINIMA,
    STRIKES_MIN,
    Outcome,
    campaign,
    matrix_of,
    play_seed,
    weaknesses,
)
from pluribus.sim.machinery.history import Happening
from pluribus.sim.scenarios import Scenario, scenario
from pluribus.sim.scenarios.groups import MEDIA

REPORT = {
    *("scenario", "seeds", "violations", "failures", "reasons", "checkers", "faults", "weak", "events", "seconds"),
    *("matrix", "seeds_with_views_changed_in_flight"),
}


@pytest.mark.parametrize("name", ["flood", "disk"])
def test_a_sample_of_each_scenario_keeps_every_promise(name):
    found = campaign(name, range(6))
    assert set(found) == REPORT
    assert (found["scenario"], found["seeds"], found["violations"], found["failures"]) == (name, 6, 0, [])
    assert found["weak"] == []
    played = scenario(name)
    assert list(found["checkers"]) == list(played.checkers)
    assert all(count > 1_000 for count in found["checkers"].values())
    assert all(found["faults"][fault] > 0 for fault in played.faults), "every fault that it names struck"
    assert found["events"] > 15_000


def test_two_processes_add_up_to_the_same():
    seeds = range(100, 103)
    progress: list[Outcome] = []
    one, two = campaign("flood", seeds), campaign("flood", seeds, jobs=2, progress=progress.append)
    del one["seconds"], two["seconds"]
    assert one == two
    assert sorted(outcome.seed for outcome in progress) == list(seeds)


async def uneven(world, history):
    """A scenario with a broken promise for odd seeds and a bug for seed 4."""
    history.add(Happening(world.now, world.seed, "looked"))
    world.faults["thunder"] += 2
    if world.seed == 4:
        raise KeyError("a bug")


def even(history):
    (looked,) = history.of("looked")
    if looked.member % 2:
        raise Violation(f"{looked.member} is odd")
    return 10


UNEVEN = Scenario(
    "uneven", "for this test", "transport | presence | groups", uneven, {"even": even}, ("thunder",), 1, 3
)


@pytest.fixture
def played(monkeypatch):
    monkeypatch.setattr(campaigns, "scenario", lambda name: UNEVEN)


@pytest.mark.usefixtures("played")
def test_every_failing_seed_is_listed_with_its_reason():
    found = campaign("uneven", range(6))
    assert found["violations"] == 4
    assert found["failures"] == [1, 3, 4, 5]
    assert found["reasons"]["3"] == "Violation: 3 is odd"
    assert "KeyError: 'a bug'" in found["reasons"]["4"], "a bug of ours is a failure too, with its traceback"
    assert found["checkers"] == {"even": 20}
    assert found["faults"] == {"thunder": 12}


@pytest.mark.usefixtures("played")
def test_failures_are_all_listed_but_only_twenty_explained():
    found = campaign("uneven", range(101, 200, 2))
    assert len(found["failures"]) == 50
    assert len(found["reasons"]) == 20


def test_the_number_of_members_follows_from_the_seed_and_stays_in_its_bounds(monkeypatch):
    sizes = Counter()

    async def count(world, history):
        sizes[len(world.hosts)] += 1

    monkeypatch.setattr(campaigns, "scenario", lambda name: Scenario("x", "", UNEVEN.stack, count, {}, (), 1, 3))
    for seed in range(60):
        play_seed("x", seed)
    assert set(sizes) == {1, 2, 3}
    assert min(sizes.values()) > 5


def test_a_long_campaign_that_checked_or_struck_too_little_is_weak():
    enough = Counter({"even": CHECKS_MIN}), Counter({"thunder": STRIKES_MIN})
    few_checks, few_strikes = Counter({"even": CHECKS_MIN - 1}), Counter({"thunder": STRIKES_MIN - 1})

    def weak(checks: Counter[str], faults: Counter[str], seeds: int = SEEDS_FOR_MINIMA) -> list[str]:
        return weaknesses(UNEVEN, seeds, checks, faults, {}, 0)

    assert weak(*enough) == []
    assert weak(few_checks, enough[1]) == ["even made 9999 checks of 10000"]
    assert weak(enough[0], few_strikes) == ["thunder struck 99 times of 100"]
    assert len(weak(Counter(), Counter())) == 2
    assert weak(Counter(), Counter(), SEEDS_FOR_MINIMA - 1) == [], "a short one is only a sample"


def test_a_long_campaign_of_views_needs_every_cell_and_changes_while_messages_fly():
    viewed = msgspec.structs.replace(UNEVEN, checkers={}, faults=(), promises=("fifo", "total"), media=MEDIA[:2])
    cells = matrix_of(viewed)
    assert cells == ["broadcast 60000, fifo", "broadcast 60000, total", "unicast 60000, fifo", "unicast 60000, total"]

    def weak(matrix: dict[str, int], flying: int, seeds: int = SEEDS_FOR_MINIMA) -> list[str]:
        return weaknesses(viewed, seeds, Counter(), Counter(), matrix, flying)

    everywhere = dict.fromkeys(cells, 1)
    assert weak(everywhere, 100) == []
    assert weak(everywhere, 99) == [
        "views changed while messages were under way in 99 of 200 seeds, which is under half"
    ]
    assert weak(everywhere | {cells[2]: 0}, 100) == ["no seed ran unicast 60000, fifo"]
    assert weak({}, 0, SEEDS_FOR_MINIMA - 1) == []


def test_a_sample_of_groups_tells_which_cells_of_the_matrix_ran():
    found = campaign("groups", range(4))
    assert list(found["matrix"]) == matrix_of(scenario("groups")) and len(found["matrix"]) == 20
    for medium in MEDIA:
        ran = [cell for cell, seeds in found["matrix"].items() if seeds and cell.startswith(str(medium))]
        assert 1 <= len(ran) <= 2, "a seed has two groups, and its number says on what engine"
    assert found["seeds_with_views_changed_in_flight"] >= 3


def test_an_unknown_scenario_is_refused_with_the_list():
    for ask in (scenario, lambda name: play_seed(name, 1), lambda name: campaign(name, [1])):
        with pytest.raises(BadInput, match=r"no scenario 'nonsense': use flood \(.*disk \("):
            ask("nonsense")


def test_every_scenario_names_faults_that_strike_and_checkers_that_check():
    for name in ("flood", "disk"):
        found = scenarios.scenario(name)
        assert found.name == name
        assert found.about and found.checkers and found.faults
        assert 0 < found.members_min <= found.members_max


def test_a_scenario_of_ones_own_is_named_by_its_module(tmp_path, monkeypatch):
    (tmp_path / "own_scenarios.py").write_text(
        "from pluribus.sim import Scenario\n"
        "async def play(world, history): world.faults['x'] += 1\n"
        "QUIET = Scenario('quiet', '', 'transport | presence | groups', play, {'none': len}, ('x',), 1, 2)\n"
        "NONE = 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = campaign("own_scenarios:QUIET", range(3))
    assert (found["violations"], found["faults"], found["checkers"]) == (0, {"x": 3}, {"none": 0})
    for name, sentence in {
        "own_scenarios:NONE": "is of type int: make it a pluribus.sim.Scenario",
        "own_scenarios:MISSING": "has no attribute 'MISSING'",
        "no_such_module:X": "No module named 'no_such_module'",
        ":X": "write module:NAME",
    }.items():
        with pytest.raises(BadInput, match=sentence):
            scenario(name)


async def careless(world, history):
    """A scenario with a task that fails while nobody waits for it."""

    async def failing():
        raise KeyError("nobody looks")

    asyncio.create_task(failing())  # noqa: RUF006 - that is the mistake
    await asyncio.sleep(1)


CARELESS = Scenario("careless", "", "transport | presence | window | groups", careless, {}, ())


def test_a_task_that_fails_in_silence_is_a_failure_of_its_seed():
    assert "KeyError: 'nobody looks'" in play_seed(f"{__name__}:CARELESS", 0).failure
