"""The checkers of causal and semantic order: each catches the history that breaks its promise, and passes it mended."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.delivery import fifo
from pluribus.sim.checkers.orders import among, causal, groups_of, semantic
from pluribus.sim.machinery.history import Happening, History

A, B, C = 11, 22, 33


def history(order: str, *happenings: dict) -> History:
    made = History()
    for at, happening in enumerate([*views(1, order), *happenings]):
        made.add(Happening(float(at), **happening))
    return made


def views(number: int, order: str, *members: int) -> list[dict]:
    members = members or (A, B, C)
    return [happening for member in members for happening in view(member, number, order, members)]


def view(member: int, number: int, order: str, members: tuple[int, ...]) -> list[dict]:
    return [
        {"member": member, "what": "bus", "id": (number, A), "members": members},
        {"member": member, "what": "view", "group": "g", "id": (number, A), "members": members, "promises": order},
    ]


def sent(member: int, number: int, parent=None) -> dict:
    return {"member": member, "what": "send", "group": "g", "id": (member, number), "parent": parent}


def got(member: int, sender: int, number: int, parent=None, orphan=False) -> dict:
    message = {"group": "g", "id": (sender, number), "parent": parent, "orphan": orphan}
    return {"member": member, "what": "deliver", **message}


CAUSE_AND_EFFECT = (sent(A, 0), got(A, A, 0), got(B, A, 0), sent(B, 0), got(B, B, 0))


def test_a_cause_is_delivered_before_its_effect():
    good = history("causal", *CAUSE_AND_EFFECT, got(C, A, 0), got(C, B, 0))
    assert causal(good) == 2
    with pytest.raises(Violation, match="which its sender had delivered"):
        causal(history("causal", *CAUSE_AND_EFFECT, got(C, B, 0), got(C, A, 0)))
    with pytest.raises(Violation, match="which its sender had delivered"):
        causal(history("causal", *CAUSE_AND_EFFECT, got(C, B, 0)))


def test_causes_are_those_of_groups_that_were_promised_them_and_of_the_same_view():
    assert causal(history("fifo", *CAUSE_AND_EFFECT, got(C, B, 0))) == 0
    assert causal(history("causal", *CAUSE_AND_EFFECT, *views(2, "causal"), got(C, B, 0))) == 1, "B itself was checked"
    independent = (sent(A, 0), got(A, A, 0), sent(B, 0), got(B, B, 0), got(C, B, 0), got(C, A, 0))
    assert causal(history("causal", *independent)) == 0


ANSWERED = (sent(A, 0), got(A, A, 0), got(B, A, 0), sent(B, 0, (A, 0)))


def test_a_parent_is_delivered_before_its_answer():
    good = history("semantic", *ANSWERED, got(C, A, 0), got(C, B, 0, (A, 0)))
    assert semantic(good) == 1
    assert semantic(history("fifo", *ANSWERED, got(C, B, 0, (A, 0)))) == 0
    for late in ((got(C, B, 0, (A, 0)), got(C, A, 0)), (got(C, B, 0, (A, 0)),)):
        with pytest.raises(Violation, match="before its parent"):
            semantic(history("semantic", *ANSWERED, *late))
    with pytest.raises(Violation, match="before its parent"):
        semantic(history("semantic", sent(B, 0, (A, 9)), got(C, B, 0, (A, 9))))


def test_who_was_not_there_gets_the_answer_alone():
    assert semantic(history("semantic", *ANSWERED, *views(2, "semantic"), got(C, B, 0, (A, 0)))) == 1


def test_orphans_are_marked_and_nobody_else():
    lost = (sent(B, 0, (A, 9)), got(C, B, 0, (A, 9), True))
    assert semantic(history("semantic", *lost)) == 1
    with pytest.raises(Violation, match="as an orphan, after its parent"):
        semantic(history("semantic", *ANSWERED, got(C, A, 0), got(C, B, 0, (A, 0), True)))
    with pytest.raises(Violation, match="after an answer to it"):
        semantic(history("semantic", *ANSWERED, got(C, B, 0, (A, 0), True), got(C, A, 0)))
    with pytest.raises(Violation, match="which it is not"):
        semantic(history("semantic", *ANSWERED, got(C, B, 0, None)))


def test_who_left_the_group_and_came_back_is_new_to_it():
    gone = {"member": C, "what": "view", "group": "g", "id": (2, A), "members": (A, B), "promises": "semantic"}
    back = view(C, 3, "semantic", (A, B, C))
    assert semantic(history("semantic", *ANSWERED, got(C, A, 0), gone, *back, got(C, B, 0, (A, 0), True))) == 1


def test_a_checker_is_kept_to_its_groups():
    disordered = (sent(A, 0), sent(A, 1), got(B, A, 1), got(B, A, 0))
    check = among(fifo, "fifo", "causal")
    assert check(history("semantic", *disordered)) == 0
    with pytest.raises(Violation, match="of the same sender"):
        check(history("causal", *disordered))
    assert groups_of(history("total safe"), "safe") == {"g"}
    assert groups_of(history("total safe"), "fifo") == frozenset()
