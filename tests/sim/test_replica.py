"""A bounded sample of the replica campaign, and its mutants."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.replicas import Fold, answered, digest, folded, once, one_sequence, same_in_the_end
from pluribus.sim.machinery.campaign import campaign
from pluribus.sim.machinery.history import Happening, History
from tests.mutants.hunt import assert_found
from tests.mutants.replicas import FOUND

ONCE_FAILED = (2, 17, 46, 92, 113, 182, 183, 185, 193, 281, 1_065)
"""Each found a mistake: a command that waited for ever behind another kind, an old state that was taken for the latest,
an answer from the table of an earlier life, a group that was taken for joined while it was still shown as it had been
left, a life that began with what the one before had held, an order that bound those who only passed it, a call whose
command came back with the state of others."""


def test_a_sample_of_seeds_breaks_no_promise():
    found = campaign("replica", ONCE_FAILED)
    assert (found["failures"], found["reasons"]) == ([], {})
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = FOUND[mutant]
    assert_found(mutant, seed, sentence, "replica")


def history(*happenings: tuple[int, str, tuple[int, int], bytes]) -> History:
    found = History()
    for at, (member, what, place, body) in enumerate(happenings):
        found.add(Happening(float(at), member, what, "map", place, body))
    return found


class Joined(Fold):
    def __init__(self) -> None:
        self.state = b""

    def apply(self, index: int, command: bytes) -> bytes:
        self.state += command
        return b""

    def snapshot(self) -> bytes:
        return self.state


ONE = [(1, "apply", (7, index), b"%d" % index) for index in range(4)]


def test_commands_are_applied_in_one_sequence():
    given = (2, "state", (7, 2), digest(b"01"))
    fine = history(*ONE, given, *[(2, "apply", (7, index), b"%d" % index) for index in (2, 3)])
    assert one_sequence(fine) == 6
    for wrong in ((2, "apply", (7, 3), b"3"), (2, "apply", (7, 1), b"1")):
        with pytest.raises(Violation, match="where 2 was next"):
            one_sequence(history(*ONE, given, wrong))
    with pytest.raises(Violation, match="another command than others"):
        one_sequence(history(*ONE, given, (2, "apply", (7, 2), b"x")))


def test_nobody_begins_anew_beside_a_state():
    beside = Happening(9.0, 2, "began", "map", (8, 0), members=(1, 2))
    found = history(*ONE)
    found.add(beside)
    with pytest.raises(Violation, match="began anew"):
        one_sequence(found)
    alone = history(*ONE, (1, "gone", (0, 0), b""))
    alone.add(beside)
    assert one_sequence(alone) == 4


def test_states_are_folded_from_commands():
    fine = history(*ONE, (2, "state", (7, 2), digest(b"01")), (1, "after", (7, 4), digest(b"0123")))
    assert folded(Joined)(fine) == 2
    with pytest.raises(Violation, match="another state at index 2"):
        folded(Joined)(history(*ONE, (2, "state", (7, 2), digest(b"012"))))


def test_a_command_is_applied_once():
    assert once(lambda command: command)(history(*ONE)) == 4
    with pytest.raises(Violation, match="applied at index 1 and again at 9"):
        once(lambda command: command)(history(*ONE, (1, "apply", (7, 9), b"1")))


def test_all_end_alike_and_everything_is_answered():
    end = (1, "end", (7, 4), b"\x91\x01")
    assert same_in_the_end(history(end, (2, "end", (7, 4), b"\x91\x01"))) == 2
    with pytest.raises(Violation, match="different states"):
        same_in_the_end(history(end, (2, "end", (7, 4), b"\x91\x02")))
    settled = (0, "settled", (0, 0), b"")
    assert answered(history(settled, (1, "call", (1, 1), b""), (1, "answer", (1, 1), b""))) == 1
    with pytest.raises(Violation, match="never answered"):
        answered(history(settled, (1, "call", (1, 1), b"")))
