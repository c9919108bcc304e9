"""Transport: whatever arrives, the node goes on; what was wrong is counted, and logged once a peer."""

import logging

import pytest

from pluribus.core.frame import Frame
from pluribus.core.limits import LOGGED_PEERS_MAX, STRANGERS_MAX
from pluribus.layers import transport as transport_module
from pluribus.layers.presence import Hello
from pluribus.layers.transport import Transport
from pluribus.stack.events import Addresses
from pluribus.stack.layer import Layer
from pluribus.wire.codec import Codec
from tests.harness import Medium, Member


class Top(Layer):
    """keeps what arrives, and fails when it is told to"""

    name = "top"

    def __init__(self) -> None:
        self.got: list[Frame] = []

    def up(self, frame: Frame) -> None:
        if frame.group == 666:
            raise KeyError("a bug of this layer")
        self.got.append(frame)


def bare(medium: Medium, name: str = "a") -> tuple[Member, Transport, Top]:
    member = Member(medium, name, layers=[Transport(), Top()]).start()
    return member, member.layer(Transport), member.layer(Top)


def frame_of(member: Member, **fields: int) -> bytes:
    return member.stack.node.codec.encode(Frame(**{"sender": 5, **fields}))


def test_malformed_datagrams_are_counted_and_logged_once_a_peer(caplog: pytest.LogCaptureFixture):
    medium = Medium()
    member, transport, top = bare(medium)
    good = frame_of(member)
    foreign = Codec("another bus").encode(Frame(sender=5))
    with caplog.at_level(logging.WARNING):
        member.engine.receive([(b"junk", ("x", 1)), (good, ("x", 1)), (foreign, ("x", 1)), (b"", ("y", 1))])
    assert transport.malformed == 3
    assert member.stats("transport")["malformed"] == 3
    assert len(top.got) == 1, "a good frame beside bad ones arrives"
    assert [record.args[2] for record in caplog.records] == [("x", 1), ("y", 1)]  # type: ignore[index]
    assert "not a Pluribus datagram" in caplog.text


def test_the_log_of_peers_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(transport_module, "LOGGED_PEERS_MAX", 3)
    assert LOGGED_PEERS_MAX > 3
    member, transport, _ = bare(Medium())
    with caplog.at_level(logging.WARNING):
        for port in range(10):
            member.engine.receive([(b"junk", ("x", port))])
    assert transport.malformed == 10
    assert len(caplog.records) == 3


def test_a_layer_that_fails_on_a_frame_is_reported_as_faulty_and_the_node_goes_on(caplog: pytest.LogCaptureFixture):
    member, transport, top = bare(Medium())
    bad, good = frame_of(member, group=666), frame_of(member, group=1)
    with caplog.at_level(logging.WARNING):
        member.engine.receive([(bad, ("x", 1)), (good, ("x", 1)), (bad, ("x", 1)), (good, ("x", 1))])
    assert transport.faulty == 2
    assert transport.malformed == 0
    assert len(top.got) == 2
    assert len(caplog.records) == 1, "said once a peer"
    assert "a bug of this layer" in caplog.text, "with the traceback of the layer's bug"


def test_frames_of_this_member_and_for_others_stop_here():
    member, _, top = bare(Medium())
    me = member.me
    frames = [frame_of(member, sender=me), frame_of(member, to=9), frame_of(member, to=me), frame_of(member, to=0)]
    member.engine.receive([(frame, ("x", 1)) for frame in frames])
    assert [frame.to for frame in top.got] == [me, 0]


def test_frames_of_one_stimulus_leave_together():
    medium = Medium()
    a, _, top = bare(medium, "a")
    bare(medium, "b")
    calls: list[int] = []
    a.engine.send_all = lambda datagrams: calls.append(len(datagrams))  # type: ignore[method-assign]

    def five() -> None:
        for number in range(5):
            top.pass_down(Frame(sender=a.me, first=number))

    a.stack.run(five)
    assert calls == [5]
    a.stack.validate()


def test_a_stranger_is_answered_where_it_was_heard_and_a_member_where_it_says():
    medium = Medium()
    a, transport, top = bare(medium, "a")
    a.engine.receive([(frame_of(a, sender=5), ("heard", 1))])
    a.stack.run(lambda: top.pass_down(Frame(sender=a.me, to=5)))
    assert medium.waiting.pop()[2] == ("heard", 1)
    a.stack.run(lambda: top.tell_down(Addresses({5: ("told", 2)})))
    assert list(a.engine.peers) == [("told", 2)]
    a.stack.run(lambda: top.pass_down(Frame(sender=a.me, to=5)))
    assert medium.waiting.pop()[2] == ("told", 2)
    a.stack.run(lambda: top.pass_down(Frame(sender=a.me, to=77)))
    assert not medium.waiting
    assert transport.unknown_destination == 1


def test_a_flood_of_strangers_pushes_no_member_out():
    medium = Medium()
    a, _, top = bare(medium, "a")
    a.stack.run(lambda: top.tell_down(Addresses({5: ("told", 2)})))
    for sender in range(100, 100 + 2 * STRANGERS_MAX):
        a.engine.receive([(frame_of(a, sender=sender), ("stranger", 1))])
    a.stack.validate()
    a.stack.run(lambda: top.pass_down(Frame(sender=a.me, to=5)))
    assert medium.waiting.pop()[2] == ("told", 2)


def test_a_frame_with_absurd_numbers_does_not_reach_the_layers():
    member = Member(Medium(), "a").start()
    codec = member.stack.node.codec
    frame = Frame(sender=5, count=1, headers=[Hello(1, "x", ("x", 1), "", [], False)])
    for field, value in (("size", 1 << 62), ("first", 1 << 63), ("count", 9_000)):
        absurd = frame.copy()
        setattr(absurd, field, value)
        member.engine.receive([(codec.encode(absurd), ("x", 1))])
    assert member.stats("transport")["malformed"] == 3
    assert member.stats("transport")["faulty"] == 0
