"""Numbers that no member would say cost a member neither its time nor its memory."""

from pluribus.core.frame import Frame
from pluribus.layers.spread import Spread
from pluribus.layers.spread.lists import Listed
from pluribus.layers.spread.words import Closed, Done, Down, Holding, Missing
from pluribus.stack.events import Install, Suspected
from tests.layers.alone import GROUP, Alone

ME, PROXY, THIRD = 1, 2, 3
MEMBERS = (PROXY, ME, THIRD)
STAMP, FAR = 9, 1 << 62
ALONG = Listed(GROUP, STAMP, MEMBERS).identity


def member() -> Alone:
    alone = Alone(Spread("tree"), ME)
    alone.layer.event_down(Install(STAMP, MEMBERS, {GROUP: MEMBERS}, {}))
    return alone


def comes_down(alone: Alone, number: int) -> None:
    down = Down(ALONG, 0, 1, number, PROXY, 0, 2, 0, 1, 0, 0, [])
    alone.layer.up(Frame(sender=PROXY, to=ME, group=GROUP, count=1, headers=[down]))


def asked_for(alone: Alone) -> list[list[int]]:
    return [frame.headers[-1].numbers for frame in alone.down if isinstance(frame.headers[-1], Missing)]


def test_what_is_missing_before_a_message_from_very_far_ahead_is_asked_for_a_little_at_a_time():
    alone = member()
    comes_down(alone, 1)
    comes_down(alone, FAR)
    alone.wait(0.1)
    assert asked_for(alone)
    assert all(numbers[0] == 0 and numbers[1] == 2 and len(numbers) <= 64 for numbers in asked_for(alone))
    comes_down(alone, 0)
    assert len(alone.up) == 2


def test_an_heir_asks_for_what_somebody_says_it_has_a_little_at_a_time():
    alone = member()
    comes_down(alone, 0)
    alone.layer.event_up(Suspected(PROXY, "proxy"))
    alone.layer.up(Frame(sender=THIRD, to=ME, headers=[Holding(ALONG, 0, 1, 0, FAR, [], False)]))
    alone.wait(1.0)
    assert asked_for(alone)
    assert all(numbers[0] == 1 and len(numbers) <= 512 for numbers in asked_for(alone))


def test_an_heir_does_not_go_through_what_is_said_to_be_everywhere():
    alone = member()
    comes_down(alone, 0)
    alone.layer.up(Frame(sender=PROXY, to=ME, headers=[Done(ALONG, 0, 1, FAR, 0, 0, 1)]))
    alone.layer.event_up(Suspected(PROXY, "proxy"))
    alone.layer.up(Frame(sender=THIRD, to=ME, headers=[Holding(ALONG, 0, 1, 0, 1, [], False)]))
    alone.wait(1.0)
    assert any(isinstance(frame.headers[-1], Closed) for frame in alone.down)
