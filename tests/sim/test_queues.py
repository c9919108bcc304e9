"""Queues in the simulator: a sample of the campaign, mutants, and the checkers on broken histories."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import queues
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import queues as mutants
from tests.mutants.hunt import assert_found, sample

ONCE_FAILED = (5_500_004, 5_500_012)
"""A message that outlived its time while it was held."""

encode = msgspec.msgpack.encode


def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("queues", mutants.FOUND, *ONCE_FAILED)
    assert all(count > 5 for count in found["checkers"].values())


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "queues")


def history(*happenings):
    made = History()
    for at, (what, member, number, body) in enumerate(happenings):
        made.add(Happening(float(at), member, what, "kept", number, body))
    return made


def sent(number, thing, key="", delay_us=0, ttl_us=0):
    return ("sent", 9, (number, thing), encode((number, key, delay_us, ttl_us, "orders", thing)))


def given(thing, consumer=1, delivery=1, key="", waited_us=0, life=1):
    return ("given", 0, (thing, life), encode(("orders", consumer, delivery, key, waited_us, delivery - 1)))


def message(number):
    return b"message %06d" % number


@pytest.mark.parametrize(
    ("checker", "happenings", "sentence"),
    [
        (queues.nothing_lost, [sent(1, 0)], "nobody ever settled it"),
        (queues.nothing_lost, [("moved", 1, (0, 1), message(1)), ("done", 0, (0, 0), message(2))], "not in the other"),
        (queues.nothing_lost, [("done", 0, (0, 0), message(2)), ("done", 0, (0, 0), message(2))], "more than once"),
        (queues.nothing_invented, [("told", 1, (0, 1), message(7))], "which nobody sent"),
        (queues.nothing_invented, [("told", 1, (0, 1), b"broken")], "which nobody sent"),
        (
            queues.nothing_invented,
            [("sending", 9, (1, 0), b""), ("told", 1, (0, 1), message(1)), ("told", 1, (5, 1), message(1))],
            "in the queue twice",
        ),
        (
            queues.settled_once,
            [("acknowledged", 1, (3, 1), b""), ("acknowledged", 2, (3, 2), b"")],
            "acknowledged again",
        ),
        (queues.settled_once, [("acknowledged", 1, (3, 1), b""), ("told", 2, (3, 2), b"")], "was delivered again"),
        (queues.one_holder, [given(3), given(3, 2, 2)], "to 1 and to 2 at once"),
        (queues.one_holder, [given(3, key="k"), given(4, 2, key="k")], "of the key 'k' are held at once"),
        (
            queues.keys_in_order,
            [sent(1, 0, "k"), sent(2, 1, "k"), given(1, key="k"), given(0, key="k")],
            "before 0 of its",
        ),
        (queues.first_come, [given(3), ("overtook", 0, (3, 1), b"orders")], "and 1, which is before it"),
        (queues.delayed, [sent(1, 0, delay_us=500), given(0, waited_us=400)], "its delay is 500"),
    ],
)
def test_a_broken_history_is_found(checker, happenings, sentence):
    with pytest.raises(Violation, match=sentence):
        checker(history(*happenings))


def test_a_good_history_is_counted():
    good = history(
        ("sending", 9, (1, 0), b""),
        sent(1, 0, "k"),
        given(0, key="k"),
        ("told", 1, (0, 1), message(1)),
        ("settling", 1, (0, 1), message(1)),
        ("back", 0, (0, 1), b"orders"),
        ("acknowledged", 1, (0, 1), message(1)),
        sent(2, 1, "k"),
        given(1, key="k"),
        ("settling", 1, (1, 1), message(2)),
    )
    checkers = (
        queues.nothing_lost,
        queues.nothing_invented,
        queues.settled_once,
        queues.one_holder,
        queues.delayed,
        queues.first_come,
    )
    assert all(checker(good) > 0 for checker in (*checkers, queues.keys_in_order))
