"""Topics in the simulator: a sample of seeds keeps every promise, and mutants are found."""

import pytest

from pluribus.sim.machinery.campaign import campaign, play_seed
from tests.mutants import topics
from tests.mutants.hunt import assert_found


@pytest.mark.slow
def test_a_sample_breaks_no_promise():
    found = campaign("topics", [0, 1, 2, 3, 10, 15])  # half of all worlds have nobody who shares
    assert found["violations"] == 0, found["reasons"]
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", topics.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = topics.FOUND[mutant]
    assert_found(mutant, seed, sentence, "topics")


def test_a_seed_is_the_same_twice():
    first, second = (play_seed("topics", 3) for _ in range(2))
    assert first.failure == ""
    assert (first.trace_hash, first.events) == (second.trace_hash, second.events)
