"""A member that was held up delivers nothing in total order before most of its view have answered it."""

from pluribus.core.frame import Frame
from pluribus.layers.total import Total
from pluribus.layers.total.doubt import REPEAT_S
from pluribus.layers.total.words import Entry, Order, StillIn, YesStill
from pluribus.stack.events import Blocked
from pluribus.stack.waking import Waking
from tests.layers.alone import GROUP, Alone

ME, OTHER, THIRD = 11, 12, 13
LATE_S = 0.65


def member(me: int = ME, members: tuple[int, ...] = (ME, OTHER, THIRD)) -> Alone:
    """In a primary of which it is the eldest, and in a totally ordered group with all."""
    alone = Alone(Total(), me)
    alone.layer.node.waking = Waking(alone.medium.clock.elapsed)
    alone.layer.node.waking.watch(LATE_S)
    alone.layer.stimulus = lambda call: (call(), alone.layer.settle())
    alone.enter(5, members, "total")
    alone.up.clear()
    alone.down.clear()
    return alone


def receive(alone: Alone, number: int = 0, sequencer: int = ME) -> None:
    """A message, and its place in the order: one stimulus."""
    alone.layer.up(Frame(sender=OTHER, group=GROUP, first=number, count=1))
    entry = Entry(GROUP, OTHER, number, 1, 0)
    alone.layer.up(Frame(sender=sequencer, first=number, count=1, headers=[Order([entry])]))
    alone.layer.settle()


def delivered(alone: Alone) -> list[int]:
    return [frame.first for frame in alone.up if frame.group == GROUP]


def said(alone: Alone, kind: type) -> list:
    return [header for frame in alone.down for header in frame.headers if isinstance(header, kind)]


def answer(alone: Alone, sender: int, question: int) -> None:
    alone.layer.up(Frame(sender=sender, to=ME, headers=[YesStill(question)]))
    alone.layer.settle()


def test_who_is_in_time_asks_nobody():
    alone = member()
    alone.wait(LATE_S)
    receive(alone)
    assert delivered(alone) == [0] and said(alone, StillIn) == []


def test_who_is_late_delivers_when_most_have_answered():
    alone = member()
    alone.wait(LATE_S + 0.01)
    receive(alone)
    (asked,) = said(alone, StillIn)
    assert delivered(alone) == [] and asked.view == (5, ME)
    answer(alone, OTHER, asked.question + 1)
    answer(alone, 99, asked.question)
    assert delivered(alone) == [], "another question, and no member"
    answer(alone, THIRD, asked.question)
    assert delivered(alone) == [0]
    receive(alone, 1)
    assert delivered(alone) == [0, 1] and alone.layer.stats()["doubts"] == 1


def test_whoever_looks_first_everybody_learns_of_it():
    alone = member()
    alone.wait(LATE_S + 0.01)
    alone.layer.node.waking.look()  # the detector's beat was due, too
    receive(alone)
    assert delivered(alone) == [] and len(said(alone, StillIn)) == 1


def test_a_question_is_repeated_until_it_is_answered():
    alone = member()
    alone.wait(LATE_S + 0.01)
    receive(alone)
    alone.wait(2.5 * REPEAT_S)
    assert len({asked.question for asked in said(alone, StillIn)}) == 1 and len(said(alone, StillIn)) == 3
    answer(alone, OTHER, said(alone, StillIn)[0].question)
    assert delivered(alone) == [0]
    alone.wait(LATE_S / 2)
    assert len(said(alone, StillIn)) == 3


def test_who_sleeps_again_asks_again_and_old_answers_do_not_count():
    alone = member()
    alone.wait(LATE_S + 0.01)
    receive(alone)
    first = said(alone, StillIn)[-1].question
    alone.medium.clock._now += LATE_S + 0.01  # nothing was done meanwhile
    receive(alone, 1)
    assert said(alone, StillIn)[-1].question == first + 1
    answer(alone, OTHER, first)
    assert delivered(alone) == []
    answer(alone, OTHER, first + 1)
    assert delivered(alone) == [0, 1]


def test_an_answer_that_waited_while_the_member_slept_again_is_of_no_use():
    alone = member()
    alone.wait(LATE_S + 0.01)
    receive(alone)
    alone.medium.clock._now += LATE_S + 0.01
    answer(alone, OTHER, said(alone, StillIn)[0].question)
    assert delivered(alone) == []


def test_the_eldest_of_two_needs_nobody_and_the_other_needs_it():
    eldest = member(ME, (ME, OTHER))
    eldest.wait(LATE_S + 0.01)
    receive(eldest)
    assert delivered(eldest) == [0], "the other could not go on without it"
    younger = member(THIRD, (ME, THIRD))
    younger.wait(LATE_S + 0.01)
    younger.layer.up(Frame(sender=ME, group=GROUP, first=0, count=1))
    younger.layer.up(Frame(sender=ME, first=0, count=1, headers=[Order([Entry(GROUP, ME, 0, 1, 0)])]))
    assert delivered(younger) == []


def test_who_is_asked_answers_unless_it_is_elsewhere_or_on_its_way():
    alone = member()
    ask = Frame(sender=OTHER, headers=[StillIn(3, (5, ME))])
    alone.layer.up(ask.copy())
    assert [(frame.to, frame.headers) for frame in alone.down] == [(OTHER, [YesStill(3)])]
    alone.down.clear()
    alone.layer.up(Frame(sender=OTHER, headers=[StillIn(3, (4, ME))]))
    alone.layer.up(Frame(sender=99, headers=[StillIn(3, (5, ME))]))
    alone.layer.event_up(Blocked(True))
    alone.layer.up(ask.copy())
    assert alone.down == [], "another view, a stranger, a change under way"


def test_a_doubt_goes_on_in_the_next_view():
    alone = member()
    alone.wait(LATE_S + 0.01)
    receive(alone)
    alone.enter(6, (ME, OTHER, THIRD), "total")
    alone.up.clear()
    alone.layer.up(Frame(sender=OTHER, group=GROUP, first=1, count=1))
    alone.layer.up(Frame(sender=ME, first=0, count=1, headers=[Order([Entry(GROUP, OTHER, 1, 1, 0)])]))
    asked = said(alone, StillIn)[-1]
    assert delivered(alone) == [] and asked.view == (6, ME)
    answer(alone, THIRD, asked.question)
    assert delivered(alone) == [1]
