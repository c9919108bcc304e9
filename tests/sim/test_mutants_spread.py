"""Mutants of the tree are found: each by the seed that is recorded with it, or, if the scenario has changed since, by
the hunt."""

import warnings

import pytest

from pluribus.sim.campaign import play_seed
from tests.mutants import spread
from tests.mutants.hunt import SEEDS_MAX, hunt


@pytest.mark.parametrize("mutant", spread.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = spread.FOUND[mutant]
    found = hunt(mutant, [seed], "spread")
    if found is None or sentence not in found.failure:
        warnings.warn(f"{mutant.__name__} does otherwise in seed {seed}: `python -m tests.mutants`", stacklevel=1)
        assert hunt(mutant, scenario="spread") is not None, f"{mutant.__name__} survived {SEEDS_MAX} seeds"


def test_the_shipped_tree_passes_where_mutants_fail():
    for seed in sorted({seed for seed, _ in spread.FOUND.values()}):
        assert play_seed("spread", seed).failure == ""
