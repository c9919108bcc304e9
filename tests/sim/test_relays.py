"""Senders from outside under faults: a sample of the campaign, the mutants that it must find, what its checkers call
wrong."""

import pytest

from pluribus.core.errors import Violation
from pluribus.group.relay.words import RELAYED_FIRST
from pluribus.sim.checkers.relays import relayed_everywhere, relayed_once, relayed_without_gaps
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import relays
from tests.mutants.hunt import assert_found, sample

ONCE_FAILED = (1019,)
"""Members were further than the sender knew when a view began, and its relay waited for what it had been told of."""

ANN, BOB, EVE = 1, 2, 9


def test_a_sample_of_seeds_breaks_no_promise():
    found = sample("relays", relays.FOUND, *ONCE_FAILED)
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", relays.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = relays.FOUND[mutant]
    assert_found(mutant, seed, sentence, "relays")


def happened(*what: Happening) -> History:
    history = History()
    for happening in what:
        history.add(happening)
    return history


def message(at: float, member: int, what: str, number: int) -> Happening:
    return Happening(at, member, what, "news", (EVE, RELAYED_FIRST + number), b"%d" % number)


def view(at: float, member: int, number: int, *members: int) -> Happening:
    return Happening(at, member, "view", "news", (number, 0), members=members)


SENT = [message(0.1 * number, EVE, "send", number) for number in range(3)]


def test_a_message_that_comes_twice_or_late_is_found():
    fine = [message(1, ANN, "deliver", 0), message(1, ANN, "deliver", 1)]
    assert relayed_once(happened(*SENT, *fine)) == 2
    with pytest.raises(Violation, match="of the same sender"):
        relayed_once(happened(*SENT, *fine, message(2, ANN, "deliver", 1)))
    left = [view(1.5, ANN, 2), message(2, ANN, "deliver", 1)]
    assert relayed_once(happened(*SENT, *fine, *left)) == 3
    with pytest.raises(Violation, match="not sent so"):
        relayed_once(happened(*fine))


def test_a_gap_in_a_view_is_found_and_one_between_views_is_none():
    history = [*SENT, view(0, ANN, 1, ANN), message(1, ANN, "deliver", 0)]
    with pytest.raises(Violation, match="in view 1"):
        relayed_without_gaps(happened(*history, message(1, ANN, "deliver", 2)))
    assert relayed_without_gaps(happened(*history, view(1, ANN, 2, ANN), message(1, ANN, "deliver", 2))) == 2


def test_what_is_said_to_be_everywhere_and_is_not_is_found():
    views = [view(0, member, 1, ANN, BOB) for member in (ANN, BOB, EVE)]
    settled = Happening(9, 0, "settled", members=(ANN, BOB))
    heard = [*views, *SENT, message(1, ANN, "deliver", 0), message(2, EVE, "stable", 0)]
    with pytest.raises(Violation, match="never delivered"):
        relayed_everywhere(happened(*heard, settled))
    assert relayed_everywhere(happened(*heard, message(3, BOB, "deliver", 0), settled)) == 2
    assert relayed_everywhere(happened(*heard, view(3, BOB, 2, ANN), settled)) == 1, "who left is not asked"
