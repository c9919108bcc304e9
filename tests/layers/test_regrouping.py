"""Showing a group's view may bring the bus to its next view: what waited behind it is settled by that."""

from collections import deque

from pluribus.layers.membership import Membership
from pluribus.layers.membership.regrouping import Change
from pluribus.layers.membership.words import Ends, Invite, NewRosters, Proposal, Roster
from pluribus.layers.reliable import Reliable
from pluribus.stack.events import CollectEnds, Event, GroupBlocked, GroupReached, Install, ReachGroup, Regroup
from tests.layers.alone import GROUP, Alone

ME = 12


def roster(*members: int) -> Roster:
    return Roster(GROUP, "group", "fifo", list(members))


def two_changes() -> tuple[Alone, deque[Change]]:
    """This member comes to a group, alone, and somebody else after it."""
    alone = Alone(Membership(), ME)
    alone.layer.start()
    waiting = deque([Change(1, [], roster(ME)), Change(2, [ME], roster(ME, 13))])
    alone.layer._changing[GROUP] = waiting
    alone.layer._announced[(1, GROUP)] = {ME: 0}
    return alone, waiting


def ends(alone: Alone) -> list[int]:
    return [word.number for frame in alone.down for word in frame.headers if isinstance(word, Ends)]


def answer(alone: Alone, event: Event) -> None:
    alone.told_down.append(event)
    if isinstance(event, CollectEnds):
        event.into.update(dict.fromkeys(event.groups, 0))


def test_the_next_change_begins_when_one_is_shown():
    alone, waiting = two_changes()
    alone.layer.tell_down = lambda event: answer(alone, event)
    alone.layer._progress(waiting[0])
    assert ends(alone) == [2] and alone.layer._changing[GROUP][0].told
    alone.layer._begin([waiting[0]])
    assert ends(alone) == [2], "told once"


def test_nothing_of_the_old_view_begins_in_the_next_one():
    alone, waiting = two_changes()
    alone.told_up.clear()

    def enter(event: Event) -> None:
        answer(alone, event)
        if isinstance(event, Regroup):
            alone.layer._view = Proposal((9, ME), [ME], ["me"], None, [], [])
            alone.layer._begin_view(alone.layer._view)

    alone.layer.tell_down = enter
    alone.layer._progress(waiting[0])
    assert ends(alone) == [] and not alone.layer._changing and not alone.layer._announced
    assert GroupBlocked(GROUP, False) in alone.told_up


def test_two_groups_that_close_each_other_are_closed_once():
    """While streams are cut, what is passed up for one group may close another."""
    alone = Alone(Reliable(), ME)
    told: list[int] = []

    def hear(event: Event) -> None:
        if isinstance(event, GroupReached):
            told.append(event.group)
            alone.layer._pursue_cut()

    alone.layer.tell_up = hear
    alone.layer._cut = {}
    alone.layer._closing = {1: {}, 2: {}, 3: {}}
    alone.layer._pursue_cut()
    assert sorted(told) == [1, 2, 3]
    alone.layer.event_down(ReachGroup(4, {}))
    assert sorted(told) == [1, 2, 3, 4]


def test_a_change_that_the_eldest_ordered_while_this_member_was_entering_begins_when_it_has():
    """The eldest was in the view first, and its word came with the frames that waited for the view."""
    eldest = 11
    alone = Alone(Membership(), ME)
    alone.layer.start()
    next_view = Proposal((9, eldest), [eldest, ME], ["eldest", "me"], None, [roster(ME)], [])

    def early(event: Event) -> None:
        answer(alone, event)
        if isinstance(event, Install) and event.members == (eldest, ME):
            alone.layer._new_rosters(eldest, NewRosters(1, [roster(ME, eldest)]))

    alone.layer.tell_down = early
    alone.layer._invited(eldest, Invite(next_view.ballot))
    alone.layer._proposal, alone.layer._agreed = next_view, True
    alone.layer._enter()
    assert ends(alone) == [1] and alone.layer._changing[GROUP][0].told
