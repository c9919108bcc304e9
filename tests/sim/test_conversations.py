"""Conversations under every fault: a sample of the campaign, the mutants that it finds, and what its checkers catch."""

import pytest

from pluribus.conversations.history import PATIENCE_S, Node
from pluribus.conversations.history import History as Forest
from pluribus.core.errors import Violation
from pluribus.sim.checkers.conversations import (
    answered_in_order,
    as_said,
    as_wished,
    nothing_lost,
    packed,
    same_tree,
    shown,
)
from pluribus.sim.machinery.history import Happening, History
from tests.conversations.hall import entry
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


def forest(*messages) -> Node:
    found = Forest()
    for message in messages:
        found.add(message, 0.0)
    return found.tree()


def given(member: int, number: int, parent: tuple[int, int] | None = None, orphan: bool = False) -> Happening:
    return Happening(1.0, member, "deliver", "x", (1, number), parent=parent, orphan=orphan)


def test_trees_that_differ_are_found():
    assert same_tree(history(tree(1, (1, 0), (1, 1)), tree(2, (1, 0), (1, 1)))) > 0
    with pytest.raises(Violation, match="different trees"):
        same_tree(history(tree(1, (1, 0), (1, 1)), tree(2, (1, 1), (1, 0))))
    assert same_tree(history(tree(1, (1, 0)), tree(2, (1, 1), (1, 0), late=True))) > 0
    with pytest.raises(Violation, match="does not know 1 messages"):
        same_tree(history(tree(1, (1, 0)), tree(2, late=True)))


def test_trees_of_the_same_messages_that_look_different_are_found():
    messages = (entry(1, 0), entry(1, 1, (1, 0)), entry(1, 2, (1, 1)))
    told = [one for member in (1, 2) for one in shown(9.0, member, "x", forest(*messages))]
    assert same_tree(history(*told)) > 0
    for wrong in (entry(1, 2, (1, 0)), entry(1, 2, (1, 1), "y"), entry(1, 2)):
        others = shown(9.0, 3, "x", forest(*messages[:2], wrong))
        assert others[0].body == told[0].body, "from top to bottom it is the same"
        with pytest.raises(Violation, match="at different depths, or with different words"):
            same_tree(history(*told, *others))
    light = shown(9.0, 3, "x", forest(*messages[:2], entry(1, 2, (1, 1), None)), late=True)
    assert same_tree(history(*told, *light)) > 0, "it has no words to show"
    with pytest.raises(Violation, match="at different depths"):
        same_tree(history(*told, *shown(9.0, 3, "x", forest(*messages[:2], entry(1, 2, (1, 0), None)), late=True)))
    with pytest.raises(Violation, match="different trees"):
        same_tree(history(tree(1, (1, 0), (1, 1)), tree(2, (1, 1), (1, 0), late=True)))


def test_of_a_forger_with_too_many_gaps_the_lowest_messages_are_in_every_tree():
    forged = [(7, 3 * number) for number in range(1_025)]
    told = [Happening(1.0, 1, "deliver", "x", message) for message in forged]
    assert nothing_lost(history(*told, tree(1, *forged[:-1]), tree(2, *forged[:-1]))) == 2 * 1_025
    with pytest.raises(Violation, match="is not in the tree"):
        nothing_lost(history(*told, tree(1, *forged[1:]), tree(2, *forged[1:])))
    with pytest.raises(Violation, match="is not in the tree"):
        nothing_lost(history(*told[:9], tree(1, *forged[:8])))
    with pytest.raises(Violation, match="different trees"):
        same_tree(history(tree(1, *forged[:-1]), tree(2, *forged[1:])))
    assert same_tree(history(tree(1, *forged[1:]), tree(2, *forged[:-1], late=True))) > 0, "it knows of a lower one"
    with pytest.raises(Violation, match="does not know 1 messages"):
        same_tree(history(tree(1, *forged[:-1]), tree(2, *forged[1:], late=True)))


def test_an_answer_that_was_not_waited_with_and_one_to_another_message_are_found():
    sent = Happening(1.0, 1, "send", "x", (1, 1), b"yes", parent=(1, 0))
    for at, right in ((1.0 + PATIENCE_S, True), (0.5 * PATIENCE_S, False)):
        alone = Happening(at, 5, "deliver", "x", (1, 1), b"yes", parent=(1, 0), orphan=True)
        if right:
            assert answered_in_order(history(sent, alone)) == 1
        else:
            with pytest.raises(Violation, match="as an orphan, sooner than 20 s"):
                answered_in_order(history(sent, alone))
    trying = Happening(1.0, 1, "trying", "x", body=b"yes", parent=(1, 0))
    first = Happening(0.5, 1, "send", "x", (1, 0), b"what?")
    assert as_said(history(first, trying, Happening(2.0, 5, "deliver", "x", (1, 1), b"yes", parent=(1, 0)))) == 1
    with pytest.raises(Violation, match="which was not said so"):
        as_said(history(first, trying, Happening(2.0, 5, "deliver", "x", (1, 1), b"yes", parent=(1, 7))))


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
