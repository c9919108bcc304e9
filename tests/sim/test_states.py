"""A bounded sample of the states campaign, its mutants, and its checkers on histories written by hand."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.states import applied_once, heard, nothing_left_out, same_state
from pluribus.sim.machinery.campaign import campaign
from pluribus.sim.machinery.history import Happening, History
from tests.mutants.hunt import SEEDS_MAX, hunt
from tests.mutants.replicas import Humble, Late, Sure, Twice

ONCE_FAILED = (46, 48, 191)
"""Each found a mistake: a group that was left and joined again was taken for joined while it was still shown as it had
been; a state that was pulled over a slow road stood in front of everything else."""
SEEDS = 40


def test_a_sample_of_seeds_breaks_no_promise():
    found = campaign("states", (*ONCE_FAILED, 4_000))
    assert (found["failures"], found["reasons"]) == ([], {})
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize(("mutant", "seed"), [(Late, 2), (Twice, 2), (Sure, 25)])
def test_mutants_of_state_transfer_are_found_in_every_order(mutant, seed):
    assert hunt(mutant, [seed], "states") or hunt(mutant, range(SEEDS), "states")


def test_of_those_who_were_cut_off_the_one_that_came_farthest_is_followed():
    found = hunt(Humble, [27], "states") or hunt(Humble, range(SEEDS_MAX), "states")
    assert found is not None and "an older state" in found.failure


def history(*happenings: tuple[str, tuple[int, int], list[tuple[int, int]]]) -> History:
    found = History()
    for at, (what, id, body) in enumerate(happenings):
        members = (1,) if what == "view" else ()
        encoded = msgspec.msgpack.encode(body)
        found.add(Happening(float(at), 1, what, "notes", id, encoded, members, promises="total"))
    return found


OPEN = ("open", (0, 0), [])


def test_nothing_is_applied_twice():
    fine = [OPEN, ("restored", (5, 0), [(7, 1)]), ("apply", (7, 2), [])]
    assert applied_once(history(*fine)) == 1
    for wrong in ((7, 1), (7, 2)):
        with pytest.raises(Violation, match="a second time"):
            applied_once(history(*fine, ("apply", wrong, [])))
    with pytest.raises(Violation, match="holds a message twice"):
        applied_once(history(OPEN, ("restored", (5, 0), [(7, 1), (7, 1)])))


def test_nothing_is_left_out_from_the_point_of_the_state_on():
    before = [OPEN, ("view", (4, 0), []), ("deliver", (7, 0), []), ("view", (5, 0), []), ("deliver", (7, 1), [])]
    after = [("deliver", (7, 2), []), ("apply", (7, 2), []), ("end", (0, 0), [])]
    assert nothing_left_out(history(*before, ("restored", (5, 0), [(7, 1)]), *after)) == 2
    with pytest.raises(Violation, match=r"delivered \(7, 1\)"):
        nothing_left_out(history(*before, ("restored", (5, 0), []), *after))
    with pytest.raises(Violation, match=r"delivered \(7, 0\)"):
        nothing_left_out(history(*before, ("founded", (4, 0), []), *after))


def test_ordered_groups_end_alike():
    assert same_state(history(("end", (0, 0), [(7, 1)]), ("end", (0, 0), [(7, 1)]))) == 2
    with pytest.raises(Violation, match="from place 1 on"):
        same_state(history(("end", (0, 0), [(7, 1), (7, 2)]), ("end", (0, 0), [(7, 1), (8, 1)])))


def test_what_is_sent_after_all_faults_is_heard():
    sent = [("settled", (0, 0), []), ("send", (7, 1), [])]
    assert heard(history(*sent, ("end", (0, 0), [(7, 1)]))) == 1
    with pytest.raises(Violation, match="sent after all faults"):
        heard(history(*sent, ("end", (0, 0), [])))
