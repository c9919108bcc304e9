"""Mutants of the ways to spread are found: each by the seed that is recorded with it, or, if the scenario has changed
since, by the hunt."""

import pytest

from pluribus.sim.machinery.campaign import play_seed
from tests.mutants import spread
from tests.mutants.hunt import assert_found

FOUND = {"spread": spread.FOUND, "crowd": spread.CROWD_FOUND, "spread-views": spread.SUMS_FOUND}
ALL = {mutant: (scenario, *found) for scenario, mutants in FOUND.items() for mutant, found in mutants.items()}


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    scenario, seed, sentence = ALL[mutant]
    assert_found(mutant, seed, sentence, scenario)


@pytest.mark.parametrize("scenario", FOUND)
def test_what_is_shipped_passes_where_mutants_fail(scenario: str):
    for seed in sorted({seed for name, seed, _ in ALL.values() if name == scenario}):
        assert play_seed(scenario, seed).failure == ""
