"""A member of a crowd that was held up asks for what it misses before it gives it up."""

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL
from pluribus.layers.spread.crowd import DIGEST_S, Crowd
from pluribus.layers.spread.crowd_words import Meet, Say
from pluribus.layers.spread.tales import GIVE_UP_S
from pluribus.stack.events import JoinGroup
from tests.layers.alone import GROUP, Alone

ME, OTHER, ORIGIN = 1, 2, 3


def says(alone: Alone, number: int) -> None:
    word = Say(ORIGIN, number, 0, True)
    alone.layer.up(Frame(sender=OTHER, to=ME, group=GROUP, first=number, count=1, headers=[word]))


def with_a_gap() -> Alone:
    alone = Alone(Crowd(), ME)
    alone.layer.start()
    alone.layer.event_down(JoinGroup(GROUP, "group"))
    alone.layer.up(Frame(sender=OTHER, to=ME, headers=[Meet([(OTHER, ("m2", 0), 0)])]))
    alone.wait(6.0)  # no longer new here
    says(alone, 0)
    says(alone, 2)
    return alone


def stand_still(alone: Alone, seconds: float) -> None:
    clock = alone.medium.clock
    clock._now += seconds
    due = sorted(entry[:2] for entry in clock._heap if entry[0] <= clock.now())
    timers = {entry[:2]: entry[2] for entry in clock._heap}
    clock._heap = [entry for entry in clock._heap if entry[0] > clock.now()]
    for key in due:
        callback = timers[key].callback
        if callback is not None:
            callback()


def test_what_was_missing_before_a_pause_is_not_lost_by_it():
    alone = with_a_gap()
    stand_still(alone, GIVE_UP_S + 2.0)
    assert alone.layer._tales.lost == 0, "others had no time to send it"
    says(alone, 1)
    assert [frame.first for frame in alone.up if frame.to == ALL] == [0, 1, 2]


def test_what_nobody_sends_after_it_is_given_up():
    alone = with_a_gap()
    stand_still(alone, GIVE_UP_S + 2.0)
    alone.wait(GIVE_UP_S + 2 * DIGEST_S)
    assert alone.layer._tales.lost == 1
    assert [frame.first for frame in alone.up if frame.to == ALL] == [0, 2]
