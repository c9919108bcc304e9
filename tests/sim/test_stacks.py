"""The groups campaign with other layers in the stack: a short path, so messages in pieces; sealed; compressed."""

import pytest

from pluribus.sim.machinery.campaign import play_seed
from tests.sim import large

SEEDS = 6
SEEDS_A_TEST = 3


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
@pytest.mark.parametrize("scenario", ["FRAGMENT", "SECURE", "COMPRESS", "ALL_OF_THEM"])
def test_every_promise_holds_on_other_stacks(scenario: str, first: int):
    large.LARGE.clear()
    outcomes = [play_seed(f"tests.sim.large:{scenario}", seed) for seed in range(first, first + SEEDS_A_TEST)]
    assert {outcome.seed: outcome.failure for outcome in outcomes if outcome.failure} == {}
    for promise in ("integrity", "view_agreement", "view_synchrony", "converged", "reached"):
        assert sum(outcome.checks[promise] for outcome in outcomes) > 0
    if scenario in ("FRAGMENT", "ALL_OF_THEM"):
        assert large.LARGE["pieces"] > large.LARGE["whole"] > 100


def test_a_sealed_run_has_the_same_trace_hash_again():
    one, other = (play_seed("tests.sim.large:ALL_OF_THEM", 3) for _ in range(2))
    assert one.trace_hash == other.trace_hash
