"""Machines in the memory of a group in the simulator: a sample of the campaign, mutants, and broken histories."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import group_hosts as checkers
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import group_hosts as mutants
from tests.mutants.hunt import assert_found, sample


def test_a_sample_of_the_campaign_breaks_no_promise():
    """In seeds 6 and 7 large rows were once sent by two stimuli of the stack."""
    found = sample("group-hosts", mutants.FOUND, 6, 7)
    assert all(count > 5 for count in found["checkers"].values())


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "group-hosts")


def history(*happenings):
    made = History()
    for at, (what, member, number, body) in enumerate(happenings):
        made.add(Happening(float(at), member, what, "both", number, body))
    return made


def final(member=0, left=(), right=(), part=b"same", strangers=(), life=1):
    body = msgspec.msgpack.encode(([("0/space", part)], (list(left), list(right)), list(strangers)))
    return ("final", member, (life, 0), body)


@pytest.mark.parametrize(
    ("checker", "happenings", "sentence"),
    [
        (checkers.kept, [("put", 0, (5, 1), b""), final()], "are nowhere"),
        (checkers.kept, [final(left=[1], right=[1])], "on both sides"),
        (checkers.kept, [("moved", 0, (5, 1), b""), final(left=[5])], "not on the right"),
        (checkers.told_once, [("told", 1, (7, 1), b"x"), ("told", 1, (7, 1), b"x")], "told twice as new"),
        (checkers.settled_once, [("settled", 1, (7, 1), b""), ("settled", 2, (7, 1), b"")], "settled by 1 and by 2"),
        (checkers.same_states, [final(0), final(1, part=b"other")], "another part 0/space"),
        (checkers.same_states, [final(0), final(1, life=2)], "another life"),
        (checkers.same_states, [final(0, strangers=[9])], "still own consumers"),
        (checkers.with_bodies, [("body", 0, (3, 0), b"")], "job 3 has the body b''"),
        (checkers.time_never_falls, [("time", 0, (5, 1), b""), ("time", 0, (4, 1), b"")], "the time fell to 4"),
    ],
)
def test_a_broken_history_is_found(checker, happenings, sentence):
    with pytest.raises(Violation, match=sentence):
        checker(history(*happenings))


def test_a_good_history_is_counted():
    good = history(
        ("put", 0, (1, 1), b""),
        ("put", 0, (2, 9), b""),
        ("moved", 0, (1, 1), b""),
        ("told", 0, (1, 1), b"x"),
        ("settled", 0, (1, 1), b""),
        ("settled", 0, (1, 9), b""),
        ("body", 0, (1, 0), b"body of job 1 "),
        ("time", 0, (5, 1), b""),
        ("time", 0, (3, 9), b""),
        final(right=[1]),
        final(1, right=[1]),
    )
    every = (checkers.kept, checkers.told_once, checkers.settled_once, checkers.same_states, checkers.with_bodies)
    assert all(checker(good) > 0 for checker in (*every, checkers.time_never_falls))
