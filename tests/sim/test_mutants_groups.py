"""Mutants of views, streams and orders are found: each by the seed that is recorded with it, or, if the scenario has
changed since, by the hunt."""

import warnings

import pytest

from pluribus.sim.machinery.campaign import play_seed
from tests.mutants import orders, regrouping, views
from tests.mutants.hunt import SEEDS_MAX, hunt

FOUND = {**orders.FOUND, **views.FOUND, **regrouping.FOUND}


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = FOUND[mutant]
    found = hunt(mutant, [seed])
    if found is None or sentence not in found.failure:
        warnings.warn(f"{mutant.__name__} does otherwise in seed {seed}: `python -m tests.mutants`", stacklevel=1)
        assert hunt(mutant) is not None, f"{mutant.__name__} survived {SEEDS_MAX} seeds"


def test_the_shipped_orders_pass_where_mutants_fail():
    for seed in sorted({seed for seed, _ in FOUND.values()}):
        assert play_seed("groups", seed).failure == ""
