"""The window, case by case; ``test_window_stateful.py`` compares it with a naive oracle under every disorder."""

import pytest

from pluribus.core.errors import BadStack
from pluribus.core.frame import Frame
from pluribus.core.ids import number_of
from pluribus.core.limits import SILENCE_S
from pluribus.layers import window as window_module
from pluribus.layers.window import (
    FRAME_CHARGE_BYTES,
    INITIAL_BYTES,
    OVERSHOOT_BYTES_MAX,
    PROBE_S,
    Ack,
    Probe,
    Sent,
    Window,
)
from pluribus.stack.specification import build
from tests.harness import Medium
from tests.layers.talkers import GROUP, Talker, is_presence, met

SMALL = "transport | presence | window(bytes_max=65536) | groups"
BODY = bytes(1_000)


def pair(stack: str = SMALL) -> tuple[Medium, Talker, Talker]:
    medium = Medium()
    a, b = Talker(medium, "a", stack, own=False), Talker(medium, "b", stack)
    met(medium, a, b)
    return medium, a, b


def fill(medium: Medium, sender: Talker, most: int = 10_000) -> int:
    """Send until the window is full; how many were admitted."""
    for count in range(most):
        admitted = sender.send(BODY)
        if admitted is None or count % 20 == 19:
            sender.turn()
            medium.deliver()
        if admitted is None:
            return count
    raise AssertionError("the window never filled")


# --- credit ---------------------------------------------------------------------------------------------------------


def test_a_receiver_that_does_not_read_stops_the_sender_and_reading_lets_it_go_on():
    medium, a, b = pair()
    admitted = fill(medium, a)
    assert a.window.stalls == 1
    assert b.unread_bytes(a.me) <= INITIAL_BYTES + OVERSHOOT_BYTES_MAX
    b.read()
    medium.deliver()
    again = fill(medium, a)
    assert 0 < again < admitted, "from now on the window counts, not what was free at the beginning"
    b.read()
    assert b.bodies == [BODY] * (admitted + again)
    a.stack.validate()
    b.stack.validate()


def test_the_slowest_receiver_sets_the_pace():
    medium = Medium()
    a, b, c = (Talker(medium, name, SMALL, own=False) for name in "abc")
    met(medium, a, b, c)
    fill(medium, a)
    b.read()
    medium.deliver()
    assert a.send(BODY) is None, "c has not read"
    c.read()
    medium.deliver()
    assert a.send(BODY) is not None


def test_a_slow_receiver_that_leaves_holds_nobody_up():
    medium = Medium()
    a, b, c = (Talker(medium, name, SMALL, own=False) for name in "abc")
    met(medium, a, b, c)
    fill(medium, a)
    b.read()
    c.leave()
    medium.deliver()
    assert a.send(BODY) is not None


def test_a_slow_receiver_that_falls_silent_holds_nobody_up():
    medium, a, b = pair()
    fill(medium, a)
    b.crash()
    medium.run(SILENCE_S + 3)
    assert a.send(BODY) is not None
    a.stack.validate()


def test_nobody_else_in_the_group_means_no_limit_and_no_datagram():
    medium = Medium()
    a = Talker(medium, "a", SMALL, own=False)
    for _ in range(1_000):
        assert a.send(BODY) is not None
    a.turn()
    assert not [data for data, _, _ in medium.waiting if not is_presence(a)(data)]


def test_the_window_is_what_the_socket_holds_divided_by_the_streams():
    medium = Medium()
    a, b = (Talker(medium, name) for name in "ab")
    b.engine.buffer_bytes = 256 << 10
    met(medium, a, b)
    assert a.send(BODY) is not None
    a.turn()
    medium.deliver()
    cost = len(BODY) + FRAME_CHARGE_BYTES
    # One stream is active at b; unread is what a sent.
    limits = a.window._outgoing[(number_of(GROUP), 0)].limits
    assert limits[b.me] == cost - cost + (256 << 10)


def test_small_frames_are_charged_what_the_kernel_charges_for_them():
    medium, a, b = pair()
    frames = 0
    while a.send(b"") is not None:
        a.turn()
        medium.deliver()
        frames += 1
    # What was free at the beginning, and not a frame more than the one that reached beyond it.
    assert INITIAL_BYTES <= frames * FRAME_CHARGE_BYTES < INITIAL_BYTES + FRAME_CHARGE_BYTES
    assert b.unread_bytes(a.me) == frames * FRAME_CHARGE_BYTES


def test_an_acknowledgement_that_was_overtaken_takes_nothing_back():
    medium, a, b = pair()
    acks = []
    for _ in range(2):
        fill(medium, a)
        b.read()
        acks.append([entry for entry in medium.waiting if not is_presence(b)(entry[0])])
        medium.deliver()
    assert acks[0]
    medium.waiting = acks[0]
    medium.deliver()
    assert a.send(BODY) is not None


def test_a_lost_acknowledgement_is_asked_for():
    medium, a, b = pair()
    fill(medium, a)
    b.read()
    medium.lose = lambda data, source, target: source == ("b", 0) and not is_presence(b)(data)
    medium.run(3 * PROBE_S)
    assert a.send(BODY) is None, "every acknowledgement and every answer is lost"
    medium.lose = lambda data, source, target: False
    medium.run(1.5 * PROBE_S)
    assert a.send(BODY) is not None


def test_a_sender_whose_every_frame_was_lost_goes_on():
    medium, a, b = pair()
    medium.lose = lambda data, source, target: not is_presence(a)(data)
    fill(medium, a)
    medium.lose = lambda data, source, target: False
    medium.run(1.5 * PROBE_S)
    assert a.send(b"heard") is not None
    a.turn()
    medium.deliver()
    b.read()
    assert b.bodies == [b"heard"]


def test_acknowledgements_of_many_streams_fit_the_path():
    medium = Medium()
    a, b = (Talker(medium, name, SMALL, path_bytes=576) for name in "ab")
    met(medium, a, b)
    channels = [(a.dispatch.join(f"g{n}"), b.dispatch.join(f"g{n}"))[0] for n in range(30)]
    medium.deliver()
    datagrams = []
    for channel in channels:
        header = Sent(0, 1)
        frame = Frame(sender=a.me, group=channel.number, count=1, size=1, headers=[header], bodies=[b"x"])
        datagrams.append((a.stack.node.codec.encode(frame), a.engine.address))
    b.engine.receive(datagrams)  # the harness's engine refuses what does not fit
    acks = [b.stack.node.codec.decode(data).headers[0] for data, _, _ in medium.waiting]
    assert sum(len(ack.streams) for ack in acks if isinstance(ack, Ack)) == 30


# --- delivery -------------------------------------------------------------------------------------------------------


def test_a_member_hears_itself_at_the_end_of_the_stimulus_unless_it_does_not_want_to():
    medium = Medium()
    a, b = Talker(medium, "a"), Talker(medium, "b", own=False)
    met(medium, a, b)
    a.send(b"mine")
    b.send(b"yours")
    assert not a.channel.inbox
    a.turn()
    medium.deliver()
    a.read()
    b.read()
    assert sorted(a.bodies) == [b"mine", b"yours"]
    assert b.bodies == [b"mine"]


def test_its_own_unread_messages_hold_a_member_up_like_anybodys():
    medium = Medium()
    a = Talker(medium, "a", SMALL)
    fill(medium, a)
    a.read()
    assert a.send(BODY) is not None


def test_a_gap_is_counted_and_passed_over():
    medium, a, b = pair()
    for number in range(10):
        a.send(b"%d" % number)
        a.turn()
    data = [entry for entry in medium.waiting if not is_presence(a)(entry[0])]
    medium.waiting = [entry for at, entry in enumerate(data) if at not in (3, 4, 7)]
    medium.deliver()
    b.read()
    assert b.bodies == [b"%d" % number for number in range(10) if number not in (3, 4, 7)]
    assert b.window.lost == 3


def test_what_comes_late_or_twice_is_not_delivered():
    medium, a, b = pair()
    for number in range(3):
        a.send(b"%d" % number)
        a.turn()
    first, second, third = medium.waiting
    medium.waiting = [first, third, second, first, third]
    medium.deliver()
    b.read()
    assert b.bodies == [b"0", b"2"]
    assert b.window.late == 3


def test_messages_to_one_member_reach_nobody_else_and_have_numbers_of_their_own():
    medium = Medium()
    a, b, c = (Talker(medium, name) for name in "abc")
    met(medium, a, b, c)
    numbers = [a.send(b"all"), a.send(b"to b", to=b.me), a.send(b"to c", to=c.me), a.send(b"to a", to=a.me)]
    a.turn()
    medium.deliver()
    for talker in (a, b, c):
        talker.read()
        assert sorted(talker.bodies) == sorted([b"all", b"to " + talker.name.encode()])
    assert len(set(numbers)) == 4


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_sender_that_ignores_its_limit_is_not_delivered_beyond_it():
    _, a, b = pair()
    codec, group, bodies = a.stack.node.codec, number_of(GROUP), [bytes(50_000)]
    for number in range(100):
        header = Sent(number * 50_768, 9)
        frame = Frame(sender=a.me, group=group, first=number, count=1, size=50_000, headers=[header], bodies=bodies)
        b.engine.receive([(codec.encode(frame), a.engine.address)])
        b.stack.validate()
    assert b.unread_bytes(a.me) <= 65_536 + INITIAL_BYTES + OVERSHOOT_BYTES_MAX
    assert b.stats("window")["over"] > 80


def test_groups_that_a_member_is_not_in_leave_no_trace():
    medium, a, b = pair()
    codec = a.stack.node.codec
    for group in range(1, 200):
        data = Frame(sender=a.me, group=group, count=1, size=1, headers=[Sent(0, 1)], bodies=[b"x"])
        probe = Frame(sender=a.me, to=b.me, headers=[Probe(group, 0, 5, 1)])
        b.engine.receive([(codec.encode(frame), a.engine.address) for frame in (data, probe)])
    assert b.stats("window")["streams_in"] == 0
    assert b.stats("groups")["unwanted"] == 199
    assert not medium.waiting, "nobody is granted anything"


def test_streams_and_departed_streams_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(window_module, "STREAMS_MAX", 3)
    monkeypatch.setattr(window_module, "DEPARTED_STREAMS_MAX", 2)
    medium = Medium()
    talkers = [Talker(medium, name) for name in "abcdef"]
    met(medium, *talkers)
    for talker in talkers[1:]:
        talker.send(b"hello from " + talker.name.encode())
    talkers[0].turn()
    medium.deliver()
    first = talkers[0]
    assert first.stats("window")["streams_in"] == 3
    assert first.stats("window")["ignored"] == 2
    first.leave()
    first.stack.validate()
    assert len(first.window._departed) == 2


def test_a_window_that_is_too_small_to_work_is_refused():
    with pytest.raises(BadStack, match="is too small"):
        build("window(bytes_max=100)", {"window": Window})
