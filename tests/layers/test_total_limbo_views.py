"""What is delivered on the way from one primary to the next comes behind the view of its group that it belongs to."""

from pluribus.core.frame import Frame
from pluribus.layers.total import Total
from pluribus.layers.total.words import Entry, Order
from pluribus.stack.events import Blocked, CollectHeld, Event, Members, Places, ViewChanged
from tests.layers.alone import GROUP, Alone

SEQUENCER, ME, NEW = 11, 12, 13
SAFE = GROUP + 1


def members(*who: int, stamp: int, **starts: int) -> Members:
    begins = {SEQUENCER: starts["sequencer"], ME: 0, NEW: 0} if starts else {}
    return Members(GROUP, who, {}, agreed=True, promises="total", stamp=stamp, starts=begins)


def message(sender: int) -> Frame:
    return Frame(sender=sender, group=GROUP, first=0, count=1, size=1)


def test_a_view_that_waits_is_shown_before_its_messages_also_on_the_way_out_of_limbo():
    alone = Alone(Total(), ME)
    story: list[Frame | Event] = []
    alone.layer.pass_up = alone.layer.tell_up = story.append
    alone.layer.event_up(ViewChanged(1, SEQUENCER, (SEQUENCER, ME, NEW), primary=True))
    alone.layer.event_up(members(SEQUENCER, ME, stamp=10))
    alone.layer.event_up(Blocked(True))  # nothing is delivered while the view of the bus changes
    alone.layer.up(message(SEQUENCER))
    alone.layer.event_up(members(SEQUENCER, ME, NEW, stamp=11, sequencer=1))
    alone.layer.up(message(NEW))
    entries = [Entry(GROUP, SEQUENCER, 0, 1, 10), Entry(GROUP, NEW, 0, 1, 11)]
    alone.layer.up(Frame(sender=SEQUENCER, group=0, count=1, headers=[Order(entries)]))
    story.clear()
    # Others who were in the view come from elsewhere, so it does not simply go on: what all hold is delivered.
    alone.layer.event_up(ViewChanged(2, ME, (ME, 14), primary=True, after=(1, SEQUENCER), limbo=(2, 2)))
    shown = [what.sender if isinstance(what, Frame) else what.stamp for what in story if hasattr(what, "group")]
    assert shown == [SEQUENCER, 11, NEW]


def test_a_later_message_of_another_group_makes_nothing_safe():
    alone = Alone(Total(), ME)
    alone.enter(1, (SEQUENCER, ME), "total safe", SAFE)
    alone.layer.event_up(Members(GROUP, (SEQUENCER, ME), {}, agreed=True, promises="total"))
    alone.layer.up(Frame(sender=SEQUENCER, group=SAFE, first=0, count=1, size=1))
    alone.layer.up(message(SEQUENCER))
    entries = [Entry(SAFE, SEQUENCER, 0, 1, 0), Entry(GROUP, SEQUENCER, 0, 1, 0)]
    alone.layer.up(Frame(sender=SEQUENCER, group=0, count=1, headers=[Order(entries)]))
    assert not alone.up, "the first is not safe, and the second comes behind it"
    # Somebody who is not in the safe group goes with us, and has delivered the second.
    alone.layer.event_up(ViewChanged(2, ME, (ME, 14), primary=False, delivered=(2, 0)))
    assert [frame.group for frame in alone.up] == [GROUP]
    alone.layer.event_up(ViewChanged(3, ME, (ME, 14), primary=True, after=(1, SEQUENCER), limbo=(0, 1)))
    assert [frame.group for frame in alone.up] == [GROUP, SAFE], "but everybody has it"


def test_who_waits_for_a_message_of_another_group_keeps_no_safe_one_back():
    alone = Alone(Total(), ME)
    alone.enter(1, (SEQUENCER, ME), "total safe", SAFE)
    alone.layer.event_up(Members(GROUP, (SEQUENCER, ME), {}, agreed=True, promises="total"))
    alone.layer.up(Frame(sender=SEQUENCER, group=SAFE, first=0, count=1, size=1))
    entries = [Entry(GROUP, SEQUENCER, 0, 1, 0), Entry(SAFE, SEQUENCER, 0, 1, 0), Entry(SAFE, SEQUENCER, 1, 1, 0)]
    alone.layer.up(Frame(sender=SEQUENCER, group=0, count=1, headers=[Order(entries)]))
    held: list[Places] = []
    alone.layer.event_up(CollectHeld(held))
    assert held == [(0, 2), (0, 0)]
    alone.layer.event_up(ViewChanged(2, ME, (ME, 14), primary=True, after=(1, SEQUENCER), limbo=(0, 2)))
    assert [frame.group for frame in alone.up] == [SAFE]
