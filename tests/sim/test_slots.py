"""Software buses in the simulator: a sample of seeds keeps every promise, and mutants are found."""

import pytest

from pluribus.sim.machinery.campaign import play_seed
from tests.mutants import slots
from tests.mutants.hunt import assert_found, sample

FAILED = [
    ("slots", 9, "a receiver that moved acknowledges again with its new ticket"),
    ("slots", 5, "a router that begins anew where clocks drift"),
    ("slots-replica", 5, "a ticket whose enrolment was given up before it was agreed"),
    ("slots-replica", 555, "a copy of the map that is asked in the moment in which it is made"),
    ("slots-replica", 564, "a ticket that was issued twice, by a primary that was forced to go on with an older map"),
    ("slots-replica", 12, "a ticket of a member that left before its enrolment was applied"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "found"), [("slots", slots.FOUND), ("slots-replica", slots.FOUND_WITHOUT_ROUTER)])
def test_a_sample_breaks_no_promise(scenario, found):
    report = sample(scenario, found, *(seed for name, seed, _ in FAILED if name == scenario))
    assert all(count > 0 for count in report["checkers"].values()), report["checkers"]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [*slots.FOUND, *slots.FOUND_WITHOUT_ROUTER], ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    scenario = "slots" if mutant in slots.FOUND else "slots-replica"
    seed, sentence = (slots.FOUND | slots.FOUND_WITHOUT_ROUTER)[mutant]
    assert_found(mutant, seed, sentence, scenario)


def test_a_seed_is_the_same_twice():
    first, second = (play_seed("slots", 3) for _ in range(2))
    assert first.failure == ""
    assert (first.trace_hash, first.events) == (second.trace_hash, second.events)
