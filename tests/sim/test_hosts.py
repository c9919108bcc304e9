"""Machines on one log in the simulator: samples of both campaigns, mutants, and checkers on broken histories."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import hosts
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.scenarios.hosts import Covered
from tests.mutants import hosts as mutants
from tests.mutants.hunt import assert_found, sample


def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("hosts", mutants.FOUND)
    assert all(count > 5 for count in found["checkers"].values())


def test_a_sample_of_durable_replicas_breaks_no_promise():
    found = sample("durable-replica", mutants.DURABLE_REPLICA, 100)
    assert found["checkers"]["linearizable"] > 200


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "hosts")


@pytest.mark.parametrize("mutant", mutants.DURABLE_REPLICA, ids=lambda mutant: mutant.__name__)
def test_the_mutant_of_a_users_machine_is_found_by_its_seed(mutant):
    seed, sentence = mutants.DURABLE_REPLICA[mutant]
    assert_found(mutant, seed, sentence, "durable-replica")


def test_rows_count_when_a_snapshot_has_covered_them_for_a_while():
    covered = Covered()
    found = [(now, covered.below(now, row)) for now, row in ((0.0, 7), (0.9, 7), (1.0, 7), (1.5, 30), (2.4, 50))]
    assert found == [(0.0, 0), (0.9, 0), (1.0, 7), (1.5, 7), (2.4, 7)]
    assert [covered.below(now, 50) for now in (2.5, 3.4, 9.0)] == [30, 50, 50]
    assert covered.below(9.1, 20) == 20, "the log began anew, with an older snapshot"


def history(*happenings):
    made = History()
    for at, (what, member, number, body) in enumerate(happenings):
        made.add(Happening(float(at), member, what, "kept", number, body))
    return made


def final(member=0, left=(), right=(), counters=None, part=b"same"):
    body = msgspec.msgpack.encode(([("0/space", part)], (list(left), list(right)), counters or {}))
    return ("final", member, (0, 0), body)


@pytest.mark.parametrize(
    ("checker", "happenings", "sentence"),
    [
        (hosts.all_or_nothing, [("put", 0, (1, 0), b""), final()], "are nowhere"),
        (hosts.all_or_nothing, [final(left=[1], right=[1])], "on both sides"),
        (hosts.all_or_nothing, [("moved", 0, (1, 5), b""), final(left=[1])], "not on the right"),
        (hosts.assigned_once, [("settled", 1, (7, 1), b""), ("settled", 2, (7, 1), b"")], "was settled by 1 and by 2"),
        (hosts.counted, [("added", 0, (1, 1), b"x"), final(counters={"x": 2})], "was acknowledged"),
        (hosts.same_states, [final(0), final(1, part=b"other")], "another part 0/space"),
        (hosts.same_states, [final(0), ("differed", 0, (1, 0), b"")], "another state than most"),
        (hosts.time_never_falls, [("time", 0, (5, 1), b""), ("time", 0, (4, 1), b"")], "the time fell to 4"),
        (hosts.with_bodies, [("body", 0, (3, 9), b"")], "job 3 has the body b''"),
        (hosts.bounded, [("stored", 0, (200_000, 10), b"")], "stores 200000 bytes"),
    ],
)
def test_a_broken_history_is_found(checker, happenings, sentence):
    with pytest.raises(Violation, match=sentence):
        checker(history(*happenings))


def test_a_good_history_is_counted():
    good = history(
        ("put", 0, (1, 0), b""),
        ("moved", 0, (1, 1), b""),
        ("settled", 1, (1, 1), b""),
        ("time", 0, (5, 1), b""),
        ("time", 0, (3, 2), b""),
        ("body", 0, (1, 1), b"body of job 1 "),
        ("stored", 0, (1_000, 500), b""),
        final(right=[1]),
        final(1, right=[1]),
    )
    checkers = (hosts.all_or_nothing, hosts.assigned_once, hosts.same_states, hosts.time_never_falls)
    assert all(checker(good) > 0 for checker in (*checkers, hosts.with_bodies, hosts.bounded))
