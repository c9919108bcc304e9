"""Conversations under every fault: a sample of the campaign, the mutants that it finds, and what its checkers catch."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.conversations import answered_in_order, as_wished, nothing_lost, packed, same_tree
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import conversations as mutants
from tests.mutants.hunt import assert_found, sample

ONCE_FAILED = (7_146, 7_198)
"""A member left a room, came back, and numbered its requests from 1 again: nobody answered them."""


def test_a_sample_of_seeds_breaks_no_promise():
    found = sample("conversations", mutants.FOUND, 22, *ONCE_FAILED)
    assert all(count > 10 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_campaign_finds_the_mutant(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "conversations")


def history(*happenings: Happening) -> History:
    found = History()
    found.happenings = list(happenings)
    return found


def tree(member: int, *messages: tuple[int, int], late: bool = False) -> Happening:
    return Happening(9.0, member, "tree", "x", body=packed(list(messages)), late=late)


def given(member: int, number: int, parent: tuple[int, int] | None = None, orphan: bool = False) -> Happening:
    return Happening(1.0, member, "deliver", "x", (1, number), parent=parent, orphan=orphan)


def test_trees_that_differ_are_found():
    assert same_tree(history(tree(1, (1, 0), (1, 1)), tree(2, (1, 0), (1, 1)))) > 0
    with pytest.raises(Violation, match="different trees"):
        same_tree(history(tree(1, (1, 0), (1, 1)), tree(2, (1, 1), (1, 0))))
    assert same_tree(history(tree(1, (1, 0)), tree(2, (1, 1), (1, 0), late=True))) > 0
    with pytest.raises(Violation, match="does not know 1 messages"):
        same_tree(history(tree(1, (1, 0)), tree(2, late=True)))


def test_messages_of_a_forger_with_too_many_gaps_give_way_and_trees_are_alike_all_the_same():
    forged = [(7, 3 * number) for number in range(1_025)]
    told = [Happening(1.0, 1, "deliver", "x", message) for message in forged]
    assert nothing_lost(history(*told, tree(1, *forged[:-1]), tree(2, *forged[:-1]))) == 0
    with pytest.raises(Violation, match="is not in the tree"):
        nothing_lost(history(*told[:9], tree(1, *forged[:8])))
    with pytest.raises(Violation, match="different trees"):
        same_tree(history(tree(1, *forged[:-1]), tree(2, *forged[1:])))


def test_answers_out_of_order_and_messages_given_twice_are_found():
    assert answered_in_order(history(given(5, 0), given(5, 1, (1, 0)), given(5, 2, (1, 9), orphan=True))) == 3
    for wrong, sentence in (
        ((given(5, 1, (1, 0)),), "before its parent"),
        ((given(5, 0), given(5, 0)), "a second time"),
        ((given(5, 0), given(5, 1, (1, 0), orphan=True)), "as an orphan, after its parent"),
    ):
        with pytest.raises(Violation, match=sentence):
            answered_in_order(history(*wrong))


def test_what_is_lost_and_who_is_forgotten_are_found():
    assert nothing_lost(history(given(5, 0), tree(5, (1, 0)))) == 1
    with pytest.raises(Violation, match="is not in the tree"):
        nothing_lost(history(given(5, 0), tree(5)))
    opened = Happening(2.0, 5, "opened", "x")
    assert nothing_lost(history(given(5, 0), opened, tree(5))) == 0
    left, settled = Happening(2.0, 5, "leave", "x", body=b"ann"), Happening(9.0, 0, "settled", members=(5,))
    with pytest.raises(Violation, match="ann left"):
        as_wished(history(left, Happening(3.0, 6, "members", "x", body=b"ann bob"), settled))
    joined = Happening(2.0, 5, "join", "x", body=b"ann")
    with pytest.raises(Violation, match="ann joined"):
        as_wished(history(left, joined, Happening(3.0, 6, "members", "x", body=b"bob"), settled))
    assert as_wished(history(left, Happening(3.0, 6, "members", "x", body=b"ann bob"))) == 0, "it crashed afterwards"
