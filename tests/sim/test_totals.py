"""What the checkers of uncertain sends and of exclusion refuse, and how histories are put in order."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.totals import excluded, reported
from pluribus.sim.checkers.views import changed_in_flight
from pluribus.sim.machinery.history import Happening, History

A, B, C = 1, 2, 3


def history(*happenings: Happening) -> History:
    found = History()
    found.happenings = list(happenings)
    return found


def sent(member: int, number: int, at: float = 1.0) -> Happening:
    return Happening(at, member, "send", "g", (member, number))


def got(member: int, sender: int, number: int, at: float = 2.0) -> Happening:
    return Happening(at, member, "deliver", "g", (sender, number))


def uncertain(member: int, number: int) -> Happening:
    return Happening(3.0, member, "uncertain", "g", (member, number))


PROMISED = Happening(0.0, A, "view", "g", members=(A, B), promises="total")
LEFT = Happening(4.0, A, "view", "g", members=(B,), promises="total")
SETTLED = Happening(9.0, 0, "settled", members=(A, B))


def test_who_is_up_knows_what_became_of_its_messages():
    assert reported(history(PROMISED, sent(A, 0), got(A, A, 0), sent(A, 1), uncertain(A, 1), SETTLED)) == 2
    assert reported(history(PROMISED, sent(C, 0), SETTLED)) == 0, "who is not up needs no word"
    with pytest.raises(Violation, match="never learned what became of its"):
        reported(history(PROMISED, sent(A, 0), got(B, A, 0), SETTLED))
    with pytest.raises(Violation, match="and was told it is uncertain"):
        reported(history(PROMISED, sent(A, 0), got(A, A, 0), uncertain(A, 0), SETTLED))


def test_who_leaves_the_group_does_not_wait_for_the_answer():
    assert reported(history(PROMISED, sent(A, 0), LEFT, SETTLED)) == 1
    with pytest.raises(Violation, match="never learned"):
        reported(history(PROMISED, LEFT, sent(A, 0, at=5.0), SETTLED))


def primary(member: int, epoch: int, *members: int, lineage: int = 7) -> Happening:
    return Happening(float(epoch), member, "bus", "", (epoch, 1), members=members, chain=(lineage, epoch))


def told(member: int, epoch: int) -> Happening:
    return Happening(float(epoch), member, "excluded", "", (epoch, 1))


BOTH = (primary(A, 1, A, B), primary(B, 1, A, B))
WITHOUT = (*BOTH, primary(A, 2, A))


def test_who_missed_a_primary_is_told_and_nobody_else():
    again = (primary(A, 3, A, B), primary(B, 3, A, B))
    assert excluded(history(*WITHOUT, *again, told(B, 3))) == 3
    with pytest.raises(Violation, match="came from primary 1 to 3 and was not told"):
        excluded(history(*WITHOUT, *again))
    with pytest.raises(Violation, match="came from primary 2 to 3 and was told"):
        excluded(history(*WITHOUT, *again, told(B, 3), told(A, 3)))


def test_a_time_without_any_primary_excludes_nobody():
    apart = [Happening(2.0, member, "bus", "", (2, member), members=(member,)) for member in (A, B)]
    assert excluded(history(*BOTH, *apart, primary(A, 3, A, B), primary(B, 3, A, B))) == 2


def test_who_comes_from_another_chain_is_not_compared():
    other = primary(B, 1, B, lineage=8)
    assert excluded(history(primary(A, 1, A), other, primary(A, 2, A, B), primary(B, 2, A, B), told(B, 2))) == 1


def test_sends_stand_before_their_own_delivery():
    late = history(got(A, A, 0), got(B, A, 0), sent(A, 0), sent(A, 1), got(A, A, 1))
    late.sends_first()
    assert [(h.what, h.member, h.id[1]) for h in late.happenings] == [
        ("send", A, 0),
        ("deliver", A, 0),
        ("deliver", B, 0),
        ("send", A, 1),
        ("deliver", A, 1),
    ]


def test_a_view_counts_as_changed_in_flight_if_a_message_was_sent_before_and_delivered_later():
    view = Happening(5.0, A, "bus", "", (2, 1), members=(A, B))
    assert changed_in_flight(history(sent(A, 0, at=4.0), view, got(B, A, 0, at=6.0))) == 1
    assert changed_in_flight(history(sent(A, 0, at=4.0), got(B, A, 0, at=4.5), view)) == 0
    assert changed_in_flight(history(view, sent(A, 0, at=5.5), got(B, A, 0, at=6.0))) == 0
    assert changed_in_flight(history(sent(A, 0, at=1.0), sent(A, 1, at=4.0), view, got(B, A, 0, at=6.0))) == 1
    assert changed_in_flight(history(view)) == 0
