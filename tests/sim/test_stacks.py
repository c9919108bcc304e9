"""The groups campaign with other layers in the stack: a short path, so messages in pieces; sealed; compressed."""

import pytest

from pluribus.sim.machinery.campaign import play_seed
from tests.sim import large

SEEDS = 3


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["FRAGMENT", "SECURE", "COMPRESS", "ALL_OF_THEM"])
def test_every_promise_holds_on_other_stacks(scenario: str):
    large.LARGE.clear()
    outcomes = [play_seed(f"tests.sim.large:{scenario}", seed) for seed in range(SEEDS)]
    assert {outcome.seed: outcome.failure for outcome in outcomes if outcome.failure} == {}
    for promise in ("integrity", "view_agreement", "view_synchrony", "converged", "reached"):
        assert sum(outcome.checks[promise] for outcome in outcomes) > 0
    if scenario in ("FRAGMENT", "ALL_OF_THEM"):
        assert large.LARGE["pieces"] > large.LARGE["whole"] > 100
    if scenario == "ALL_OF_THEM":
        again = play_seed(f"tests.sim.large:{scenario}", 0)
        assert again.trace_hash == outcomes[0].trace_hash, "a sealed run is the same twice"
