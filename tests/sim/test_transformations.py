"""Transformers in the simulator: a sample of the campaign, mutants, and the checkers on broken histories."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import transformations
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import transformations as mutants
from tests.mutants.hunt import assert_found, sample

encode = msgspec.msgpack.encode


@pytest.mark.slow
def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("transformations", mutants.FOUND, 100)
    assert all(count > 5 for count in found["checkers"].values())


@pytest.mark.slow
@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "transformations")


def history(*happenings):
    made = History()
    for at, (what, number, body) in enumerate(happenings):
        made.add(Happening(float(at), 0, what, "kept", (number, 0), encode(body)))
    return made


SENT = (("sending", 1, True), ("sent", 1, True), ("sending", 2, False), ("sent", 2, False))
MOVED = ("moved", 1, [3, "key 1"])
DEAD = ("dead", 2, "did not transform: step 1, json: no")


@pytest.mark.parametrize(
    ("checker", "happenings", "sentence"),
    [
        (transformations.moved_once, [*SENT, MOVED, MOVED], r"\[1\] are in the target more than once"),
        (transformations.moved_once, SENT, r"\[1\] were confirmed"),
        (transformations.moved_once, [*SENT, MOVED, ("moved", 2, [6, "key 2"])], "nobody sent them so"),
        (transformations.transformed_whole, [("moved", 1, [1, "key 1"])], "came as"),
        (transformations.failures_kept, [*SENT, DEAD, DEAD], "more than once"),
        (transformations.failures_kept, SENT, "are no dead letters"),
        (transformations.failures_kept, [*SENT, DEAD, ("dead", 1, "step 1, json")], "message 1 is a dead letter"),
    ],
)
def test_the_checker_finds_it(checker, happenings, sentence):
    with pytest.raises(Violation, match=sentence):
        checker(history(*happenings))


def test_checkers_count_what_is_well():
    well = history(*SENT, MOVED, DEAD)
    assert [transformations.moved_once(well), transformations.transformed_whole(well)] == [1, 1]
    assert transformations.failures_kept(well) == 1
