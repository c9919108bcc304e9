"""What a member sends on one stream: batches fit the path, keep the order, and close where they must."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pluribus.core.errors import TooLarge
from pluribus.core.frame import Frame
from pluribus.core.limits import (
    BATCH_MESSAGES_MAX,
    BODY_OVERHEAD_BYTES,
    FEW_MESSAGES,
    FRAME_OVERHEAD_BYTES,
    LONG_BYTES_LOOPBACK,
    LONG_MESSAGE_BYTES,
    PATH_BYTES_LOOPBACK,
    SEGMENTS_MAX,
)
from pluribus.group.outgoing import Outgoing
from pluribus.layers.window import Sent
from pluribus.wire.bodies import BYTES, TEXT, decode_bodies, encode_body
from pluribus.wire.codec import Codec

CODEC = Codec("demo", (Sent,))


def outgoing(path_bytes: int = 1_472, first: int = 0, long_bytes: int = 0) -> tuple[Outgoing, list[Frame]]:
    frames: list[Frame] = []
    return Outgoing(7, 8, 9, first, path_bytes, frames.append, long_bytes), frames


@given(
    st.lists(st.integers(0, 900), max_size=300),
    st.sampled_from([576 + 900, 1_472, 8_192, PATH_BYTES_LOOPBACK]),
    st.integers(0, 1 << 40),
)
@example([100] * 300, 1_472, 0)
@example([0] * 20_000, PATH_BYTES_LOOPBACK, 0)
@example([955] * 3, 1_472, 0)
@example([0] * BATCH_MESSAGES_MAX + [1], PATH_BYTES_LOOPBACK, 0)
def test_a_batch_is_cut_into_frames_that_fit_and_keep_the_order(sizes: list[int], path_bytes: int, first: int):
    out, frames = outgoing(path_bytes, first)
    bodies = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    numbers = [out.add(BYTES, body) for body in bodies]
    out.close()
    assert numbers == list(range(first, first + len(bodies)))
    assert [body for frame in frames for body in frame.bodies] == bodies
    expected = first
    for frame in frames:
        assert (frame.sender, frame.group, frame.to, frame.first) == (7, 8, 9, expected)
        assert 1 <= frame.count == len(frame.bodies) <= BATCH_MESSAGES_MAX
        assert frame.size == sum(map(len, frame.bodies))
        expected += frame.count
        frame.headers.append(Sent(1 << 62, 1 << 62))
        assert len(CODEC.encode(frame)) <= path_bytes
    assert out.first == expected
    assert out.pending == [] and out.size == 0


@given(st.lists(st.integers(0, 900), min_size=1, max_size=300))
def test_no_frame_could_have_taken_the_next_message_too(sizes: list[int]):
    """Greedy: fewer frames are not possible without reordering."""
    path = 1_472
    out, frames = outgoing(path)
    for size in sizes:
        out.add(BYTES, bytes(size))
    out.close()

    def weight(bodies: list[bytes]) -> int:
        return sum(len(body) + BODY_OVERHEAD_BYTES for body in bodies)

    for frame, following in pairwise(frames):
        assert weight(frame.bodies) <= path - FRAME_OVERHEAD_BYTES
        assert weight([*frame.bodies, following.bodies[0]]) > path - FRAME_OVERHEAD_BYTES


def test_a_body_of_another_kind_does_not_join_the_batch():
    out, frames = outgoing()
    kind, text = encode_body("text")
    assert out.fits(BYTES, 1)
    out.add(BYTES, b"x")
    assert out.fits(BYTES, 1) and not out.fits(kind, len(text))
    out.close()
    assert out.fits(kind, len(text))
    out.add(kind, text)
    out.close()
    assert [(frame.kind, frame.first, frame.count) for frame in frames] == [(BYTES, 0, 1), (TEXT, 1, 1)]
    assert decode_bodies(frames[1].kind, msgspec.Raw(bytes(frames[1].bodies)), 1) == ["text"]


def test_an_empty_batch_takes_any_body_while_the_window_is_open_at_all():
    out, _ = outgoing()
    out.granted(1)
    assert out.fits(BYTES, 900)
    out.granted(0)
    assert not out.fits(BYTES, 0)
    out.granted(-5)
    assert not out.fits(BYTES, 0)


@pytest.mark.parametrize("path_bytes", [576, 1_472, 8_192, PATH_BYTES_LOOPBACK])
def test_a_batch_is_no_longer_than_what_two_segmented_calls_take(path_bytes: int):
    """The window charges by the frame, after a batch was admitted: so many frames may reach beyond it."""
    out, frames = outgoing(path_bytes)
    while out.fits(BYTES, 20):
        out.add(BYTES, bytes(20))
    out.close()
    assert len(frames) <= 2 * SEGMENTS_MAX
    assert sum(len(CODEC.encode(frame)) for frame in frames) <= PATH_BYTES_LOOPBACK + len(frames) * 100


def test_a_body_that_fits_no_datagram_is_refused_with_the_size_that_does():
    out, _ = outgoing(1_472)
    most = 1_472 - FRAME_OVERHEAD_BYTES - BODY_OVERHEAD_BYTES
    out.check(most)
    with pytest.raises(
        TooLarge, match=rf"a body of {most + 1:,} bytes does not fit a datagram of this path \({most:,} "
    ):
        out.check(most + 1)


def test_closing_an_empty_batch_sends_nothing():
    out, frames = outgoing()
    out.close()
    assert frames == []


@given(st.lists(st.integers(0, 30_000), min_size=1, max_size=120), st.integers(1, 400_000))
@example([100] * 100, 300_000)
@example([8_192] * 40, 300_000)
@example([1, 2, 3, 20_000, 20_000, 1], 50_000)
def test_a_sender_in_a_hurry_fills_a_batch_as_far_as_a_careful_one(sizes: list[int], room_bytes: int):
    """``ids`` has a place exactly as long as ``fits`` says so of bodies that are no longer than ``alike``."""
    out, frames = outgoing(PATH_BYTES_LOOPBACK, 5)
    out.granted(room_bytes)
    sent = 0
    for size in sizes:
        body = bytes(size)
        if size <= out.alike:
            identity = next(out.ids, None)
            if identity is not None:
                assert out.fits(BYTES, size), "a place that is not there"
                assert identity == (7, 5 + sent)
                out.pending.append(body)
                sent += 1
                continue
        if not out.fits(BYTES, size):
            break
        assert out.add(BYTES, body) == 5 + sent
        sent += 1
    gathered = len(out.pending)
    assert out.size == sum(len(body) + BODY_OVERHEAD_BYTES for body in out.pending)
    assert out.size <= max(room_bytes, len(out.pending[0]) + BODY_OVERHEAD_BYTES)
    assert out.size <= PATH_BYTES_LOOPBACK or gathered <= FEW_MESSAGES
    out.close()
    assert sum(frame.count for frame in frames) == gathered == sent


def test_a_few_long_messages_gather_beyond_a_frame_and_many_short_ones_do_not():
    out, frames = outgoing(PATH_BYTES_LOOPBACK)
    for size, gathers in ((16_384, 29), (100, 566)):
        out.granted(1 << 20)
        taken = 0
        while out.fits(BYTES, size):
            out.add(BYTES, bytes(size))
            taken += 1
        assert taken == gathers
        out.close()
    assert [frame.count for frame in frames] == [*[3] * 9, 2, 566]


@pytest.mark.parametrize(
    ("size", "counts"), [(16_384, [29]), (4_096, [116]), (LONG_MESSAGE_BYTES, [256]), (900, [65] * 3 + [61])]
)
def test_a_few_long_messages_share_a_frame_where_the_engine_carries_it(size: int, counts: list[int]):
    out, frames = outgoing(PATH_BYTES_LOOPBACK, long_bytes=LONG_BYTES_LOOPBACK)
    out.granted(1 << 20)
    while out.fits(BYTES, size):
        out.add(BYTES, bytes(size))
    out.close()
    assert [frame.count for frame in frames][: len(counts)] == counts
    longest = max(len(CODEC.encode(frame)) for frame in frames)
    assert longest <= (LONG_BYTES_LOOPBACK if size >= LONG_MESSAGE_BYTES else PATH_BYTES_LOOPBACK)


def test_before_a_window_is_known_a_batch_is_a_frame():
    out, _ = outgoing(PATH_BYTES_LOOPBACK)
    while out.fits(BYTES, 8_192):
        out.add(BYTES, bytes(8_192))
    assert out.size <= PATH_BYTES_LOOPBACK
