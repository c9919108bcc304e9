"""Groups without agreed views: a sample of the campaign, the mutants that it finds, and what a newcomer sees of it."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import BadInput, Violation
from pluribus.layers.window import Window
from pluribus.sim.checkers.orders import unmarked
from pluribus.sim.machinery.campaign import campaign
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.scenarios.adhoc import answers, hears_itself
from tests.harness import new_bus, on_a_loop
from tests.mutants.hunt import hunt
from tests.mutants.orders import Impatient, Oblivious, OffByOne


class Forgetful(Window):
    """Does not notice that a frame is late: duplicates and overtaken frames are delivered."""

    def _receive(self, frame, sent):
        late, again = self.late, frame.copy()
        super()._receive(frame, sent)
        if self.late > late:
            self.pass_up(again)


FOUND = {
    Impatient: "after an answer to it",
    Oblivious: "as an orphan, after its parent",
    Forgetful: "second time",
    OffByOne: "without its parent",
}


def test_a_sample_of_seeds_breaks_no_promise():
    found = campaign("adhoc", range(500, 506))
    assert found["failures"] == []
    assert all(count > 100 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.__name__)
def test_a_short_campaign_finds_the_mutant(mutant):
    found = hunt(mutant, range(20), scenario="adhoc")
    assert found is not None and FOUND[mutant] in found.failure, found


@on_a_loop
async def test_an_adhoc_bus_offers_fifo_and_semantic_order_and_agrees_on_nothing():
    url = new_bus()
    async with pluribus.connect(url, name="a", stack="adhoc") as a, pluribus.connect(url, name="b", stack="adhoc") as b:
        assert a.orders == ("none", "fifo", "semantic")
        for order in ("causal", "total"):
            with pytest.raises(BadInput, match="not offered by the stack of this bus: use none or fifo or semantic"):
                await a.group("x", order=order)
        one, other = await asyncio.gather(a.group("talk", order="semantic"), b.group("talk", order="semantic"))
        await one.wait_for(2)
        await other.wait_for(2)
        assert not one.view.agreed and not a.primary
        question = await one.send("who is there?")
        heard = await other.receive(5)
        assert heard.id == question
        await other.send("I am", parent=heard.id)
        assert [(await one.receive(5)).body for _ in range(2)] == ["who is there?", "I am"]


def history(*happenings: Happening) -> History:
    found = History()
    found.happenings = list(happenings)
    return found


def got(member: int, number: int, parent: tuple[int, int] | None = None, orphan: bool = False) -> Happening:
    return Happening(2.0, member, "deliver", "talk", (1, number), parent=parent, orphan=orphan)


def test_an_answer_before_its_question_is_found_unless_it_is_marked_or_the_member_is_new():
    assert answers(history(got(5, 0), got(5, 1, (1, 0)))) == 2
    assert answers(history(got(5, 1, (1, 0)))) == 1, "the question may be lost"
    assert answers(history(got(5, 1, (1, 0), orphan=True), got(5, 0))) == 2
    with pytest.raises(Violation, match="after an answer to it"):
        answers(history(got(5, 1, (1, 0)), got(5, 0)))
    with pytest.raises(Violation, match="as an orphan, after its parent"):
        answers(history(got(5, 0), got(5, 1, (1, 0), orphan=True)))
    left = Happening(2.0, 5, "view", "talk")
    assert answers(history(got(5, 1, (1, 0)), left, got(5, 0))) == 2


def test_an_answer_without_its_question_is_marked_unless_the_question_is_older_than_what_was_heard():
    assert unmarked(history(got(5, 3), got(5, 4, (1, 2)), got(5, 6, (1, 5), orphan=True), got(5, 7, (1, 4)))) == 2
    assert unmarked(history(got(5, 4, (2, 9)))) == 1, "nothing of that sender was heard"
    with pytest.raises(Violation, match="without its parent"):
        unmarked(history(got(5, 3), got(5, 6, (1, 5))))
    left = Happening(2.0, 5, "view", "talk")
    assert unmarked(history(got(5, 3), left, got(5, 6, (1, 5)))) == 1


def test_who_is_up_hears_itself_unless_it_left():
    sent, settled = Happening(1.0, 1, "send", "talk", (1, 0)), Happening(9.0, 0, "settled", members=(1,))
    assert hears_itself(history(sent, got(1, 0), settled)) == 1
    assert hears_itself(history(sent, Happening(2.0, 1, "view", "talk"), settled)) == 0
    with pytest.raises(Violation, match="never delivered its own"):
        hears_itself(history(sent, settled))
