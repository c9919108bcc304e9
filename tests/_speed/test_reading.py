"""What there is to read, in Python and, where that was compiled, in C. Both answer alike."""

import gc
import weakref
from collections import deque

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pluribus._speed import reading as python
from pluribus.core.frame import Frame, Message, Relayed
from pluribus.core.ids import MemberId
from pluribus.wire.bodies import BYTES, TEXT
from tests._speed.both_ends import compiled

both = pytest.mark.parametrize(
    "kind", [pytest.param(python, id="python"), *([pytest.param(compiled, id="c")] if compiled else [])]
)
A, B = MemberId(7), MemberId(8)


class Other(Frame):
    """Frames that look otherwise are handled otherwise."""


def reader(kind, *frames: Frame):
    class Reads(kind.Reading):
        __slots__ = ("__dict__", "__weakref__")

    made = Reads()
    made.inbox, made.state = deque(frames), None
    made._taken, made._taken_bytes, made._people = {}, 0, {7: A, 8: B}
    made._plain = BYTES
    made._frame_bytes, made._busy_bytes, made._idle_bytes = 100, 1_000, 300
    return made


def lone(body: bytes = b"hello", **fields) -> Frame:
    usual = {"sender": 7, "group": 3, "first": 5, "count": 1, "size": len(body), "bodies": [body]}
    return Frame(**{"headers": [], **usual, **fields})


@both
def test_a_lone_message_of_bytes_is_taken(kind):
    encoded = msgspec.Raw(msgspec.msgpack.encode([b"again"]))
    reads = reader(kind, lone(), lone(first=6, bodies=encoded), lone(sender=8))
    assert reads.take_lone() == Message(b"hello", A, (A, 5))
    taken = reads.take_lone()
    assert taken == Message(b"again", A, (A, 6)) and taken.sender is A and taken.parent is None
    assert reads.take_lone().sender is B
    assert not reads.inbox
    assert reads._taken == {(7, 3, 0): (2, 10), (8, 3, 0): (1, 5)}
    assert reads._taken_bytes == 15 + 3 * 100
    with pytest.raises(IndexError):
        reads.take_lone()


@both
@pytest.mark.parametrize(
    "frame",
    [
        lone(count=2, bodies=[b"a", b"b"]),
        lone(bodies=[b"a", b"b"]),
        lone(bodies=[]),
        lone(bodies=msgspec.Raw(b"\x91\xc1")),
        lone(bodies=msgspec.Raw(msgspec.msgpack.encode(["text"]))),
        lone(kind=TEXT),
        lone(kind="typed"),
        lone(headers=[Relayed(1, 2, 3)]),
        lone(sender=9),
        Other(sender=7, count=1, size=1, bodies=[b"x"]),
    ],
)
def test_whatever_is_otherwise_stays_where_it_is(kind, frame):
    reads = reader(kind, frame)
    assert reads.take_lone() is None
    assert list(reads.inbox) == [frame] and not reads._taken and reads._taken_bytes == 0
    reads = reader(kind, lone())
    reads.state = object()
    assert reads.take_lone() is None


@both
@settings(max_examples=50)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 5, 255, 256, 65_535, 65_536]), max_size=8),
    more=st.sampled_from([0, 0, 0, 14, 15, 16]),
    encoded=st.booleans(),
)
@example(sizes=[5], more=65_534, encoded=True)
@example(sizes=[5], more=65_535, encoded=True)
@example(sizes=[5], more=65_536, encoded=False)
def test_the_messages_of_a_frame_come_one_after_another(kind, sizes, more, encoded):
    bodies = [bytes([place % 251]) * size for place, size in enumerate([*sizes, *[1] * more])]
    there = msgspec.Raw(msgspec.msgpack.encode(bodies)) if encoded else bodies
    size = sum(map(len, bodies))
    reads = reader(kind, lone(count=len(bodies), size=size, bodies=there))
    found = list(reads.take_plain())
    assert found == [Message(body, A, (A, 5 + place)) for place, body in enumerate(bodies)]
    assert not reads.inbox and reads._taken == {(7, 3, 0): (1, size)}


@both
@given(change=st.tuples(st.integers(0, 40), st.integers(0, 255)), cut=st.integers(0, 3))
def test_bodies_that_are_not_what_the_frame_says_are_left_to_the_long_way(kind, change, cut):
    """By the same answer as the decoder's."""
    whole = bytearray(msgspec.msgpack.encode([b"one", b"", b"another", b"x" * 20]))
    at, value = change
    whole[at % len(whole)] = value
    torn = bytes(whole[: len(whole) - cut])
    reads = reader(kind, lone(count=4, bodies=msgspec.Raw(torn)))
    try:
        bodies = msgspec.msgpack.decode(torn, type=list[bytes])
    except msgspec.MsgspecError:
        bodies = []
    found = reads.take_plain()
    if len(bodies) == 4:
        assert [message.body for message in found] == bodies
    else:
        assert found is None and reads.inbox


@both
@given(taken=st.integers(0, 1_200), waiting=st.booleans())
def test_senders_hear_of_much_sooner_when_nothing_waits(kind, taken, waiting):
    reads = reader(kind, *([lone()] if waiting else []))
    reads._taken_bytes = taken
    assert reads.must_report is (taken >= (1_000 if waiting else 300))


@both
def test_it_goes_when_nobody_needs_it(kind):
    reads = reader(kind, lone())
    reads.state = reads
    gone = weakref.ref(reads)
    del reads
    gc.collect()
    assert gone() is None
