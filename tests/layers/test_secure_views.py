"""Secure under agreed views: keys follow the members, and nobody reads what is not for it."""

import logging

import pytest

from pluribus.core.frame import Frame
from pluribus.core.ids import MemberId
from pluribus.core.limits import HELD_BYTES_MAX
from pluribus.layers.secure.headers import PAIR, Sealed
from tests.harness import Medium, Member
from tests.layers.sealed import OTHER, Sealer, recorded, sealed_frames


def together(medium: Medium, *members: Sealer) -> None:
    medium.run(3)
    for member in members:
        assert sorted(member.channel.view.members) == sorted(other.me for other in members)
        ring = member.secure._rings.current
        assert ring is not None and ring.members == {other.me for other in members}
        member.stack.validate()


def three() -> tuple[Medium, Sealer, Sealer, Sealer]:
    medium = Medium()
    a, b, c = (Sealer(medium, name) for name in "abc")
    together(medium, a, b, c)
    return medium, a, b, c


def test_members_with_the_secret_are_in_one_view_and_share_its_key():
    medium, a, b, c = three()
    assert len({member.secure._rings.current.key for member in (a, b, c)}) == 1  # type: ignore[union-attr]
    copies = recorded(medium)
    a.send(b"to all of us")
    medium.run(1)
    assert a.read() == b.read() == c.read() == [b"to all of us"]
    assert not any(b"to all of us" in data for data in copies)
    assert not any(word in data for data in copies for word in (b"the group", b"fifo"))


def test_every_frame_on_the_medium_is_sealed():
    medium = Medium()
    copies = recorded(medium)
    members = [Sealer(medium, name) for name in "abc"]
    together(medium, *members)
    members[0].send(b"text")
    medium.run(1)
    assert len(list(sealed_frames(members[0], copies))) == len(copies) > 50


def test_who_left_cannot_read_what_is_said_after_it():
    medium, a, b, c = three()
    key_with_c = a.secure._rings.current.key  # type: ignore[union-attr]
    c.dispatch.leave(c.channel)
    medium.run(1)
    c.stack.stop()
    del medium.engines[("c", 0)]
    together(medium, a, b)
    assert a.secure._rings.current.key != key_with_c  # type: ignore[union-attr]
    copies = recorded(medium)
    a.send(b"c is gone")
    medium.run(1)
    assert b.read() == [b"c is gone"]
    messages = [(frame, sealed) for frame, sealed in sealed_frames(a, copies) if sealed.key > PAIR]
    assert messages
    for frame, sealed in messages:
        assert sealed.key not in c.secure._rings.by_name
        seats = [ring.seat(frame.sender) for ring in c.secure._rings.by_name.values()]
        assert seats and all(c.secure._open(frame, sealed, *seat) is None for seat in seats if seat is not None)


def test_who_was_shut_out_cannot_read_what_is_said_without_it():
    medium, a, b, c = three()
    medium.lose = lambda data, source, target: ("c", 0) in (source, target)
    medium.run(5)
    assert len(a.channel.view) == len(b.channel.view) == 2
    copies = recorded(medium)
    a.send(b"without c")
    medium.run(1)
    assert b.read() == [b"without c"]
    for _, sealed in sealed_frames(a, copies):
        if sealed.key > PAIR:
            assert sealed.key not in c.secure._rings.by_name


def test_who_comes_later_has_no_older_key():
    medium = Medium()
    a, b = Sealer(medium, "a"), Sealer(medium, "b")
    together(medium, a, b)
    copies = recorded(medium)
    a.send(b"before c")
    medium.run(1)
    old = [sealed.key for _, sealed in sealed_frames(a, copies) if sealed.key > PAIR]
    c = Sealer(medium, "c")
    together(medium, a, b, c)
    assert old and not set(old) & c.secure._rings.by_name.keys()
    assert b.read() == [b"before c"] and c.read() == []


def test_a_repair_is_sealed_for_the_one_who_misses_it():
    medium, a, b, c = three()
    lost: list[bytes] = []

    def lose(data: bytes, source: object, target: object) -> bool:
        for _, sealed in sealed_frames(a, [data]):
            if sealed.key > PAIR and target == ("b", 0) and not lost:
                lost.append(data)
                return True
        return False

    medium.lose = lose
    a.send(b"lost on its way to b")
    medium.run(2)
    assert lost
    assert b.read() == c.read() == [b"lost on its way to b"]
    assert b.stats("reliable")["repaired"] >= 1


@pytest.mark.parametrize("other", [OTHER, None], ids=["another secret", "no secret"])
def test_who_has_not_the_secret_is_in_no_view(other: object, caplog: pytest.LogCaptureFixture):
    medium = Medium()
    a, b = Sealer(medium, "a"), Sealer(medium, "b")
    with caplog.at_level(logging.WARNING):
        stranger: Member
        if other is None:
            stranger = Member(medium, "c", "transport | detector | reliable | membership | groups").start()
        else:
            stranger = Sealer(medium, "c", OTHER)
        medium.run(5)
    together(medium, a, b)
    assert stranger.stats("membership")["members"] == 1
    for inside in (a, b):
        assert f"{MemberId(inside.me)} refused {MemberId(stranger.me)}" in caplog.text
        assert f"{MemberId(stranger.me)} was refused by {MemberId(inside.me)}" in caplog.text
        assert inside.stats("transport")["faulty"] == stranger.stats("transport")["faulty"] == 0


def test_compression_is_above_the_seal_and_does_not_blunt_it():
    medium = Medium()
    stack = "transport | fragment | secure | compress(threshold=100) | detector | reliable | membership | groups"
    a, b = (Sealer(medium, name, stack=stack) for name in "ab")
    together(medium, a, b)
    copies = recorded(medium)
    a.send(b"again and again " * 1_000)
    medium.run(1)
    assert b.read() == [b"again and again " * 1_000]
    assert a.stats("compress")["packed"] >= 1
    assert max(map(len, copies)) < 2_000
    assert any(sealed.key > PAIR for _, sealed in sealed_frames(a, copies)), "messages stay under the key of the view"


def test_frames_of_a_key_that_nobody_has_are_bounded_in_bytes():
    medium = Medium()
    member = Sealer(medium, "a")
    sealed = bytes(1 << 20)
    for counter in range(1, 40):
        frame = Frame(sender=7, headers=[Sealed(1 << 62, counter)], bodies=[sealed])
        member.engine.receive([(member.stack.node.codec.encode(frame), ("x", 1))])
        member.stack.validate()
    assert member.secure.unopened == 39 - HELD_BYTES_MAX // len(sealed) + 1


def test_a_stack_without_views_is_sealed_with_the_bus_key():
    medium = Medium()
    a, b = (Sealer(medium, name, stack="transport | secure | presence | window | groups") for name in "ab")
    medium.run(3)
    assert len(a.channel.view) == 2
    copies = recorded(medium)
    a.send(b"best effort")
    medium.run(1)
    assert b.read() == [b"best effort"]
    assert not any(b"best effort" in data for data in copies)
