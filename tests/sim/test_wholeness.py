"""What the checkers of wholeness refuse, and that their mutants are found."""

import pytest

from pluribus import sim
from pluribus.core.errors import Violation
from pluribus.runtime.bus import VIEWS
from pluribus.sim.checkers.orders import answers
from pluribus.sim.checkers.wholeness import alike_in_the_end, all_is_read, without_gaps
from pluribus.sim.machinery.chaos import restore_primary
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import wholeness
from tests.mutants.hunt import assert_found

A, B = 1, 2
SETTLED = Happening(9.0, 0, "settled", members=(A, B))


def history(*happenings: Happening) -> History:
    found = History()
    found.happenings = list(happenings)
    return found


def view(member: int, number: int, *members: int, promises: str = "fifo") -> Happening:
    return Happening(1.0, member, "view", "g", (number, A), members=members, promises=promises)


def sent(sender: int, number: int) -> Happening:
    return Happening(2.0, sender, "send", "g", (sender, number))


def got(member: int, sender: int, number: int, what: str = "deliver") -> Happening:
    return Happening(3.0, member, what, "g", (sender, number))


def test_nothing_is_left_out_in_the_middle_of_a_stream():
    sends = [sent(A, number) for number in (0, 1, 5)]
    assert without_gaps(history(view(B, 1, A, B), *sends, got(B, A, 1), got(B, A, 5))) == 2
    with pytest.raises(Violation, match="without 1 before it"):
        without_gaps(history(view(B, 1, A, B), *sends, got(B, A, 0), got(B, A, 5)))
    uncertain = Happening(4.0, A, "uncertain", "g", (A, 1))
    assert without_gaps(history(view(B, 1, A, B), *sends, got(B, A, 0), got(B, A, 5), uncertain)) == 2


def test_who_stays_in_the_last_view_has_the_same_and_in_total_order_in_the_same_order():
    def ended(promises: str, *theirs: int) -> History:
        views = [view(member, 1, A, B, promises=promises) for member in (A, B)]
        return history(*views, got(A, A, 0), got(A, A, 1), *[got(B, A, number) for number in theirs], SETTLED)

    assert alike_in_the_end(ended("fifo", 0, 1)) == alike_in_the_end(ended("semantic", 1, 0)) == 4
    for broken in (ended("fifo", 0), ended("total", 1, 0)):
        with pytest.raises(Violation, match="and not with the same"):
            alike_in_the_end(broken)


def test_the_last_words_of_who_leaves_are_heard_by_who_stays():
    views = [view(A, 1, A, B), view(B, 1, A, B)]
    left = [view(A, 2, B), view(B, 2, B)]
    assert alike_in_the_end(history(*views, got(A, A, 0), got(B, A, 0), got(B, A, 1), *left)) == 1
    with pytest.raises(Violation, match="who stayed, has not delivered"):
        alike_in_the_end(history(*views, got(A, A, 0), *left))


def test_a_reader_gets_what_comes_up():
    came = [view(A, 1, A, B), got(A, B, 0), got(A, B, 1)]
    assert all_is_read(history(*came, got(A, B, 0, "read"), got(A, B, 1, "read"), SETTLED)) == 2
    with pytest.raises(Violation, match="was next"):
        all_is_read(history(*came, got(A, B, 1, "read"), SETTLED))
    with pytest.raises(Violation, match="never got"):
        all_is_read(history(*came, got(A, B, 0, "read"), SETTLED))
    leave = Happening(4.0, A, "leave", "g")
    assert all_is_read(history(*came, leave, got(A, B, 2), view(A, 2, B), view(A, 3, A, B), SETTLED)) == 0


def test_no_message_comes_after_its_answer_in_a_later_view_either():
    answer = Happening(3.0, B, "deliver", "g", (B, 0), parent=(A, 0))
    with pytest.raises(Violation, match="after an answer to it"):
        answers(history(view(B, 1, A, B), answer, view(B, 2, A, B), got(B, A, 0)))


def test_a_primary_is_not_restored_where_enough_of_it_are_there():
    async def story() -> None:
        async with sim.world(members=3, seed=1, stack=VIEWS) as world:
            for group in [await bus.group("x") for bus in world.buses]:
                await group.wait_for(3)
            restore_primary(world)
            world.crash(0)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(world.buses[0]), "primary", False)
                with pytest.raises(Violation, match="none has followed it"):
                    restore_primary(world)

    sim.run(story())


@pytest.mark.parametrize("mutant", wholeness.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = wholeness.FOUND[mutant]
    assert_found(mutant, seed, sentence)
