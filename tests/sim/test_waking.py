"""Members that stood still: a bounded sample of the campaign, its mutants, and its checker on histories by hand."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.totals import as_those_who_went_on
from pluribus.sim.machinery.history import Happening, History
from tests.mutants.hunt import assert_found, sample
from tests.mutants.waking import FOUND


def test_a_sample_of_seeds_breaks_no_promise():
    found = sample("waking", FOUND)
    assert found["checkers"]["as_those_who_went_on"] > 0 and found["faults"]["pause"] > 0


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant: type):
    seed, sentence = FOUND[mutant]
    assert_found(mutant, seed, sentence, "waking")


FIRST, NEXT = (5, 1), (6, 2)


def left_behind(*delivered: int) -> History:
    """Of three, one is left behind in the first view, where the others delivered messages 0, 1 and 2 of one of them."""
    history = History()

    def add(member: int, what: str, id: tuple[int, int], group: str = "", **more: object) -> None:
        history.add(Happening(float(len(history)), member, what, group, id, **more))  # type: ignore[arg-type]

    for member in (1, 2, 3):
        add(member, "bus", FIRST, members=(1, 2, 3), chain=(9, 1))
        add(member, "view", FIRST, "red", members=(1, 2, 3), promises="total")
    for number in delivered:
        add(1, "deliver", (3, number), "red")
    for member in (2, 3):
        for number in range(3):
            add(member, "deliver", (3, number), "red")
        add(member, "bus", NEXT, members=(2, 3), chain=(9, 2))
        add(member, "view", NEXT, "red", members=(2, 3), promises="total")
    return history


@pytest.mark.parametrize("delivered", [(), (0,), (0, 1, 2)])
def test_who_was_left_behind_has_delivered_a_beginning(delivered: tuple[int, ...]):
    assert as_those_who_went_on(left_behind(*delivered)) == 3 + len(delivered)


@pytest.mark.parametrize("delivered", [(1,), (0, 2), (0, 1, 2, 3)])
def test_who_was_left_behind_and_delivered_anything_else_is_found(delivered: tuple[int, ...]):
    with pytest.raises(Violation, match="who went on, did not"):
        as_those_who_went_on(left_behind(*delivered))
