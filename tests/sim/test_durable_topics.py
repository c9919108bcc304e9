"""Durable topics in the simulator: a sample of the campaign, its mutants, and its checkers on broken histories."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import durable_topics as durables
from pluribus.sim.checkers.durable_topics import Finals, encode
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import durable as mutants
from tests.mutants.hunt import assert_found, sample


def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("durable-topics", mutants.FOUND, 100, 101)
    assert all(count > 50 for count in found["checkers"].values())


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "durable-topics")


def history(*happenings):
    made = History()
    for at, (what, topic, number, body) in enumerate(happenings):
        made.add(Happening(float(at), 0, what, topic, number, body))
    return made


def final(*events, topic="a", first=0):
    return ("final", "", (0, 0), encode(Finals({topic: (first, list(events))})))


SENT = [("sent", "a", (0, 0), body) for body in (b"x", b"y")]
GOOD = final((0, 5, 1, b"x"), (1, 5, 2, b"y"))


@pytest.mark.parametrize(
    ("checker", "happenings", "sentence"),
    [
        (durables.kept, [("acked", "a", (5, 1), b"x"), final()], "was acknowledged"),
        (durables.kept, [GOOD, final((0, 5, 1, b"x"))], "end with different topics"),
        (durables.in_order, [*SENT, final((0, 5, 2, b"y"), (1, 5, 1, b"x"))], "stands behind"),
        (durables.in_order, [*SENT, final((0, 5, 1, b"x"), (2, 5, 2, b"y"))], "stands where 1 should"),
        (durables.in_order, [*SENT, final((0, 5, 1, b"x"), (1, 6, 1, b"x"))], "twice"),
        (durables.in_order, [final((0, 5, 1, b"x"))], "never published"),
        (durables.read, [("handled", "a", (1, 0), b"y"), GOOD], "began again at 1"),
        (durables.read, [("handled", "a", (0, 0), b"y"), GOOD], "the subscriber got b'y' at 0"),
        (durables.read, [("handled", "a", (0, 0), b"x"), GOOD], "came to 1 of 2"),
        (durables.atomic, [("wrote", "sink", (0, 3), b"x z"), final((0, 5, 1, b"x"), topic="sink")], "batch 3"),
        (durables.atomic, [final((0, 5, 1, b"orphan-1"), topic="sink")], "never committed"),
        (durables.settled, [], "did not settle"),
    ],
)
def test_a_checker_sees(checker, happenings, sentence):
    with pytest.raises(Violation, match=sentence):
        checker(history(*happenings))


def test_a_good_history_passes():
    handled = [("handled", "a", (0, 0), b"x"), ("committed", "a", (1, 0), b""), ("handled", "a", (1, 1), b"y")]
    good = history(*SENT, ("acked", "a", (5, 1), b"x"), *handled, GOOD, ("settled", "", (0, 0), b""))
    for checker in (durables.kept, durables.in_order, durables.read, durables.settled):
        assert checker(good) > 0
