"""Mutants of views, streams and orders are found: each by the seed that is recorded with it, or, if the scenario has
changed since, by the hunt."""

import pytest

from pluribus.sim.machinery.campaign import campaign
from tests.mutants import orders, regrouping, views
from tests.mutants.hunt import assert_found
from tests.sim.test_groups import ONCE_FAILED

FOUND = {**orders.FOUND, **views.FOUND, **regrouping.FOUND}


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = FOUND[mutant]
    assert_found(mutant, seed, sentence)


def test_the_shipped_orders_pass_where_mutants_fail():
    """This is the sample of the campaign, too. Seeds that once failed are played in ``test_groups.py``."""
    found = campaign("groups", sorted({seed for seed, _ in FOUND.values()} - set(ONCE_FAILED)))
    assert found["failures"] == [] and found["violations"] == 0 and found["seeds"] >= 6
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]
