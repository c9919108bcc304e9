"""Dispatch: frames find the channel of their group, and what channels gathered goes down when the turn ends."""

from contextlib import suppress
from random import Random

import pytest

from pluribus.core.errors import BadInput, TooLarge
from pluribus.core.events import Event, Gone
from pluribus.core.frame import Frame
from pluribus.core.ids import ALL, number_of
from pluribus.core.ports import Ports
from pluribus.group.dispatch import Dispatch
from pluribus.layers.window import Sent
from pluribus.stack.events import Confirmed, Credit, JoinGroup, LeaveGroup, Members, ViewChanged
from pluribus.stack.layer import Node
from tests.harness import FakeEngine, ManualClock, Medium, Member
from tests.layers.talkers import Talker, met

ME, OTHER = 1, 2


def test_joining_twice_gives_the_same_channel():
    member = Member(Medium(), "a").start()
    dispatch: Dispatch = member.layer(Dispatch)
    assert dispatch.join("x") is dispatch.join("x")
    assert dispatch.join("x") is not dispatch.join("y")
    with pytest.raises(BadInput, match="the group '' is not a name"):
        dispatch.join("")


def test_a_channel_has_a_view_with_its_member_at_once():
    member = Member(Medium(), "a").start()
    assert member.layer(Dispatch).join("x").view.members == (member.me,)


def test_what_is_sent_in_one_turn_leaves_in_one_datagram():
    medium = Medium()
    a, b = Talker(medium, "a"), Talker(medium, "b")
    met(medium, a, b)
    for number in range(100):
        a.send(b"%d" % number)
    assert not medium.waiting
    a.turn()
    assert len(medium.waiting) == 1
    medium.deliver()
    b.read()
    assert b.bodies == [b"%d" % number for number in range(100)]


def test_frames_of_groups_that_nobody_here_is_in_are_counted():
    medium = Medium()
    a, b = Talker(medium, "a"), Talker(medium, "b")
    met(medium, a, b)
    frame = Frame(sender=a.me, group=number_of("other"), count=1, size=1, headers=[Sent(0, 1)], bodies=[b"x"])
    b.engine.receive([(a.stack.node.codec.encode(frame), a.engine.address)])
    assert b.stats("groups")["unwanted"] == 1
    assert not b.channel.inbox


def test_leaving_sends_what_waits_and_gives_up_what_was_not_read():
    medium = Medium()
    a, b = Talker(medium, "a"), Talker(medium, "b")
    met(medium, a, b)
    b.send(b"unread")
    b.turn()
    medium.deliver()
    a.send(b"last words")
    a.leave()
    medium.deliver()
    b.read()
    assert b"last words" in b.bodies
    assert a.channel.closed and not a.channel.inbox
    assert len(b.channel.view) == 1
    a.leave()  # twice is harmless
    assert a.stats("groups")["channels"] == 0


def test_a_group_too_many_is_not_half_joined():
    member = Member(Medium(), "a", path_bytes=576).start()
    dispatch: Dispatch = member.layer(Dispatch)
    joined = 0
    with suppress(TooLarge):
        while joined < 1_000:
            dispatch.join(f"g{joined}")
            joined += 1
    assert len(dispatch.channels) == joined
    with pytest.raises(TooLarge):
        dispatch.join("again")
    assert len(dispatch.channels) == joined
    member.stack.validate()


def test_whoever_asks_hears_of_members_that_go():
    medium = Medium()
    a, b = Talker(medium, "a"), Talker(medium, "b")
    met(medium, a, b)
    told: list[Event] = []
    a.dispatch.on_event = told.append
    b.stack.stop()
    medium.deliver()
    assert Gone(b.me, "it left", "b") in told
    assert not any(isinstance(event, Credit) for event in told), "that is the channels' own"


def test_a_group_that_is_joined_again_waits_until_its_leaving_was_noticed():
    told: list[Event] = []
    dispatch = alone(Dispatch(), told)
    group = number_of("x")
    first = dispatch.join("x")
    dispatch.event_up(Members(group, (ME, OTHER), {}, agreed=True))
    dispatch.leave(first)
    second = dispatch.join("x")
    assert second is not first and dispatch.join("x") is second
    dispatch.event_up(Members(group, (ME,), {}, agreed=True))  # another member went, and ours is not noticed yet
    assert second.view.members == () and [type(event) for event in told] == [JoinGroup, LeaveGroup]
    dispatch.event_up(Members(group, (), {}, agreed=True))
    assert [type(event) for event in told] == [JoinGroup, LeaveGroup, JoinGroup]
    dispatch.event_up(Members(group, (OTHER, ME), {}, agreed=True))
    assert second.view.members == (OTHER, ME)


@pytest.mark.parametrize("leaving", [False, True])
def test_who_waits_is_not_told_that_a_member_has_what_was_sent_while_it_was_away(leaving: bool):
    dispatch = alone(Dispatch(), [])
    group, heard = number_of("x"), list[bool]()
    channel = dispatch.join("x")
    dispatch.event_up(Members(group, (ME, OTHER), {}, agreed=True))
    dispatch.confirm((group, ALL), 1, heard.append)
    if leaving:
        dispatch.leave(channel)
    dispatch.event_up(ViewChanged(9, 1, (ME, OTHER), primary=True, sides=((ME,), (OTHER,))))
    dispatch.event_up(Confirmed(group, ALL, 1))
    assert heard == [False]


def alone(dispatch: Dispatch, told: list[Event]) -> Dispatch:
    """With nothing below it but a list."""
    dispatch.node = Node(ME, "me", "demo")
    dispatch.ports = Ports(clock=ManualClock(), random=Random(1), engine=FakeEngine(Medium(), ("me", 0)))
    dispatch.tell_down = told.append
    dispatch.pass_down = lambda frame: None
    dispatch.stimulus = lambda work: work()
    return dispatch
