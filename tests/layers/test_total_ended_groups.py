"""The order of a group's last messages may come after its end: nobody waits for a view that is over."""

from pluribus.core.frame import Frame
from pluribus.layers.total import Total
from pluribus.layers.total.layer import BURIED_MAX
from pluribus.layers.total.words import Entry, Order
from pluribus.stack.events import Members, ViewChanged
from tests.layers.alone import GROUP, Alone

SEQUENCER, ME = 11, 12
OTHER = 8


def entry(group: int, first: int, stamp: int) -> Entry:
    return Entry(group, SEQUENCER, first, 1, stamp)


def order(*entries: Entry) -> Frame:
    return Frame(sender=SEQUENCER, group=0, count=1, headers=[Order(list(entries))])


def members(group: int, *who: int, stamp: int) -> Members:
    return Members(group, who, {}, agreed=True, promises="total", stamp=stamp)


def member_of(stamp: int) -> Alone:
    alone = Alone(Total(), ME)
    alone.layer.event_up(ViewChanged(1, SEQUENCER, (SEQUENCER, ME), primary=True))
    alone.layer.event_up(members(GROUP, SEQUENCER, ME, stamp=stamp))
    alone.layer.up(Frame(sender=SEQUENCER, group=GROUP, first=0, count=1, size=1))
    return alone


def test_what_was_ordered_after_its_group_ended_holds_up_nobody():
    alone = member_of(stamp=10)
    alone.layer.event_up(members(OTHER, SEQUENCER, stamp=11))
    alone.layer.event_up(members(OTHER, stamp=12))
    alone.layer.up(order(entry(OTHER, 0, 11), entry(GROUP, 0, 10)))
    assert [frame.group for frame in alone.up] == [GROUP]


def test_what_was_ordered_before_its_group_is_known_waits_for_it():
    alone = member_of(stamp=10)
    alone.layer.up(order(entry(OTHER, 0, 11), entry(GROUP, 0, 10)))
    assert alone.up == []
    alone.layer.event_up(members(OTHER, SEQUENCER, stamp=11))
    assert [frame.group for frame in alone.up] == [GROUP]


def test_ended_groups_are_bounded_and_forgotten_with_the_view():
    alone = member_of(stamp=10)
    for number in range(BURIED_MAX + 50):
        alone.layer.event_up(members(100 + number, SEQUENCER, stamp=11 + 2 * number))
        alone.layer.event_up(members(100 + number, stamp=12 + 2 * number))
    assert len(alone.layer._stamps) == BURIED_MAX + 1
    alone.layer.event_up(ViewChanged(2, SEQUENCER, (SEQUENCER, ME), primary=True, continues=True))
    assert set(alone.layer._stamps) == {GROUP}
