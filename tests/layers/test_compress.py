"""Compress: frames arrive as they were, smaller on the way; nobody makes a member allocate more than it agreed to."""

import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadStack
from pluribus.core.frame import Frame
from pluribus.core.limits import FRAME_BYTES_MAX
from pluribus.layers import compress as compress_module
from pluribus.layers.compress import Compress, Packed
from pluribus.layers.transport import Transport
from pluribus.stack.layer import Layer
from pluribus.stack.stack import fingerprint
from pluribus.wire.bodies import decode_bodies
from tests.harness import Medium, Member


class Top(Layer):
    """keeps what arrives"""

    name = "top"

    def __init__(self) -> None:
        self.got: list[Frame] = []

    def up(self, frame: Frame) -> None:
        self.got.append(frame)


def pair(threshold: int = 1_024) -> tuple[Medium, Member, Member]:
    medium = Medium()
    layers = [[Transport(), Compress(threshold), Top()] for _ in "ab"]
    a, b = (Member(medium, name, layers=built).start() for name, built in zip("ab", layers, strict=True))
    return medium, a, b


def send(sender: Member, bodies: list[bytes], **fields: int) -> Frame:
    size = sum(map(len, bodies))
    frame = Frame(sender=sender.me, count=len(bodies), size=size, bodies=bodies, **fields)  # type: ignore[arg-type]
    sender.stack.run(lambda: sender.layer(Top).pass_down(frame))
    return frame


def got(receiver: Member) -> list[list[bytes]]:
    return [decode_bodies(frame.kind, frame.bodies, frame.count) for frame in receiver.layer(Top).got]


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.binary(max_size=200), st.integers(1, 3_000).map(lambda n: b"ab" * n)), max_size=20),
    st.sampled_from([0, 100, 1_024]),
)
def test_every_batch_arrives_as_it_was(bodies: list[bytes], threshold: int):
    medium, a, b = pair(threshold)
    sent = send(a, bodies, group=7, first=11)
    medium.deliver()
    assert got(b) == [bodies]
    frame = b.layer(Top).got[0]
    assert (frame.sender, frame.group, frame.first, frame.count, frame.size) == (a.me, 7, 11, sent.count, sent.size)


def test_what_shrinks_travels_smaller():
    medium, a, b = pair()
    send(a, [b"the same again and again" * 100] * 10)
    assert sum(len(data) for data, _, _ in medium.waiting) < 2_000
    medium.deliver()
    assert a.stats("compress")["packed"] == 1
    assert a.stats("compress")["saved_bytes"] > 20_000
    assert len(got(b)[0]) == 10


def test_what_does_not_shrink_goes_as_it_is_and_is_not_tried_for_a_while():
    medium, a, b = pair()
    chance = Random(1)
    for _ in range(100):
        send(a, [chance.randbytes(5_000)])
    medium.deliver()
    assert len(got(b)) == 100
    stats = a.stats("compress")
    assert stats["packed"] == 0 and stats["tried"] < 10
    for _ in range(200):
        send(a, [b"text " * 1_000])
    assert a.stats("compress")["packed"] >= 100, "and then it is tried again"


def test_small_frames_are_not_touched():
    _, a, _ = pair()
    send(a, [b"a" * 1_024])
    assert a.stats("compress")["tried"] == 0


def test_group_and_count_stay_visible_below():
    medium, a, b = pair()
    send(a, [b"a" * 5_000] * 3, group=7)
    frame = b.stack.node.codec.decode(medium.waiting[0][0])
    assert (frame.group, frame.count) == (7, 1)


def bomb(size: int, announced: int) -> Frame:
    return Frame(sender=5, headers=[Packed(announced)], bodies=[zlib.compress(bytes(size), 9)])


@pytest.mark.parametrize(
    "frame",
    [
        bomb(100_000, 10),
        bomb(100_000, 99_999),
        bomb(100_000, 100_001),
        bomb(100_000, 100_000),
        bomb(60_000_000, FRAME_BYTES_MAX),
        Frame(sender=5, headers=[Packed(10)], bodies=[b"junk"]),
        Frame(sender=5, headers=[Packed(10)], bodies=[]),
        Frame(sender=5, headers=[Packed(10)], bodies=[zlib.compress(b"0123456789") + b"more"]),
    ],
    ids=["bomb", "one less", "one more", "no frame", "large bomb", "junk", "nothing", "more behind it"],
)
def test_what_is_not_what_it_says_is_refused(frame: Frame):
    _, _, b = pair()
    b.engine.receive([(b.stack.node.codec.encode(frame), ("x", 1))])
    assert b.stats("compress")["refused"] == 1
    assert b.stats("transport")["faulty"] == 0 and not b.layer(Top).got


def test_a_bomb_never_grows_beyond_what_was_announced(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    real = zlib.decompressobj

    class Watching:
        def __init__(self) -> None:
            self._real = real()

        def decompress(self, data: bytes, most: int) -> bytes:
            asked.append(most)
            return self._real.decompress(data, most)

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

    _, _, b = pair()
    data = b.stack.node.codec.encode(bomb(60_000_000, 5_000))
    monkeypatch.setattr(compress_module.zlib, "decompressobj", Watching)
    b.engine.receive([(data, ("x", 1))])
    assert asked == [5_001]


def test_an_announced_size_over_the_limit_is_no_frame_at_all():
    _, _, b = pair()
    b.engine.receive([(b.stack.node.codec.encode(bomb(10, FRAME_BYTES_MAX + 1)), ("x", 1))])
    assert b.stats("transport")["malformed"] == 1


@pytest.mark.parametrize("inner", [Frame(sender=6), Frame(sender=5, to=9), Frame(sender=5, headers=[Packed(5)])])
def test_a_frame_in_a_frame_must_be_its_sender_s_own(inner: Frame):
    _, _, b = pair()
    codec = b.stack.node.codec
    plain = codec.encode(inner)
    outer = Frame(sender=5, headers=[Packed(len(plain))], bodies=[zlib.compress(plain)])
    b.engine.receive([(codec.encode(outer), ("x", 1))])
    assert b.stats("compress")["refused"] == 1 and not b.layer(Top).got


def test_the_threshold_is_part_of_the_stack():
    assert fingerprint([Transport(), Compress(100)]) != fingerprint([Transport(), Compress(200)])
    assert str(Compress(100)) == "compress(threshold=100)"
    with pytest.raises(BadStack, match="0 or more"):
        Compress(-1)
