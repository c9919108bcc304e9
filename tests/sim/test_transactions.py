"""Transactions in the simulator: a sample of the campaign, mutants, and the checkers on broken histories."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import transactions
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import transactions as mutants
from tests.mutants.hunt import assert_found, sample

encode = msgspec.msgpack.encode


def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("transactions", mutants.FOUND, 100, 101)
    assert all(count > 5 for count in found["checkers"].values())


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "transactions")


def history(*happenings):
    made = History()
    for at, (what, number, body) in enumerate(happenings):
        made.add(Happening(float(at), 0, what, "kept", number, body))
    return made


def token(number):
    return ("token", (number, 0), b"")


def left(number, moved):
    return ("left", (0, 1), encode((number, moved)))


def receipt(id, *moved):
    return ("receipt", (0, 1), encode((id, moved)))


def committed(id):
    return ("committed", (id, 0), b"")


@pytest.mark.parametrize(
    ("checker", "happenings", "sentence"),
    [
        (transactions.nothing_halved, [token(1), token(2), left(1, 0)], r"\[2\] are lost"),
        (transactions.nothing_halved, [token(1), left(1, 0), left(1, 1)], r"\[1\] are there twice"),
        (transactions.nothing_halved, [token(1), left(1, 1), committed(7)], "0 receipts of 1"),
        (transactions.nothing_halved, [token(1), left(1, 0), committed(7), receipt(7, (1, 0))], "as often as"),
        (transactions.one_after_another, [receipt(7, (1, 0)), receipt(8, (1, 0))], "both moved token 1"),
        (
            transactions.one_after_another,
            [receipt(7, (1, 0), (2, 1)), receipt(8, (1, 1), (2, 0))],
            "there is no order",
        ),
        (transactions.seen_when_committed, [("refused", (7, 0), b""), receipt(7, (1, 0))], "its receipt is there"),
    ],
)
def test_the_checker_finds_it(checker, happenings, sentence):
    with pytest.raises(Violation, match=sentence):
        checker(history(*happenings))


def test_checkers_count_what_is_well():
    well = history(token(1), left(1, 2), committed(7), committed(8), receipt(7, (1, 0)), receipt(8, (1, 1)))
    assert transactions.nothing_halved(well) == 1
    assert transactions.one_after_another(well) == transactions.seen_when_committed(well) == 2
