"""The codec: what it encodes it decodes, and whatever else it is given is refused with a reason, cheaply."""

import time
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadStack, MalformedFrame
from pluribus.core.frame import Frame, Header
from pluribus.core.limits import BATCH_MESSAGES_MAX, HEADERS_PER_FRAME_MAX, NAME_CHARS_MAX
from pluribus.layers.presence import Bye, Hello, Refusal
from pluribus.layers.window import Ack, Granted, Probe, Sent
from pluribus.wire.codec import MAJOR, MINOR, VERSION, Codec

HEADERS = (Hello, Bye, Refusal, Sent, Ack, Probe)
CODEC = Codec("demo", HEADERS)

numbers = st.integers(0, (1 << 63) - 1)
positions = st.integers(0, 1 << 62)
names = st.text(max_size=NAME_CHARS_MAX)
headers = st.lists(
    st.one_of(
        st.builds(
            Hello,
            numbers,
            names,
            st.tuples(st.text(max_size=255), st.integers(0, 65_535)),
            st.text(max_size=64),
            st.lists(numbers, max_size=20),
            st.booleans(),
        ),
        st.builds(Bye),
        st.builds(Refusal, st.text(max_size=200)),
        st.builds(Sent, positions, numbers),
        st.builds(Ack, st.lists(st.builds(Granted, numbers, numbers, numbers, numbers, numbers), max_size=20)),
        st.builds(Probe, numbers, numbers, positions, numbers),
    ),
    max_size=HEADERS_PER_FRAME_MAX,
)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    bodies = draw(st.lists(st.binary(max_size=300), max_size=40))
    return Frame(
        sender=draw(st.integers(1, (1 << 63) - 1)),
        to=draw(numbers),
        group=draw(numbers),
        first=draw(positions),
        count=len(bodies),
        size=sum(map(len, bodies)),
        kind=draw(st.one_of(numbers, names)),
        headers=draw(headers),
        bodies=bodies,
    )


@given(frames())
def test_a_frame_survives_the_way(frame: Frame):
    decoded = CODEC.decode(CODEC.encode(frame))
    assert msgspec.msgpack.decode(decoded.bodies) == frame.bodies
    for field in Frame.__struct_fields__:
        if field != "bodies":
            assert getattr(decoded, field) == getattr(frame, field), field
    assert CODEC.encode(decoded) == CODEC.encode(frame), "what was decoded may be sent on as it is"


@given(st.binary(max_size=200))
@example(b"")
@example(CODEC.encode(Frame(sender=1))[:7])
@example(CODEC.encode(Frame(sender=1))[:7] + b"\xc1")
@example(CODEC.encode(Frame(sender=1))[:7] + b"\x91" * 180)
def test_any_bytes_are_a_frame_or_malformed(data: bytes):
    for candidate in (data, CODEC.encode(Frame(sender=1))[:7] + data):
        try:
            CODEC.decode(candidate)
        except MalformedFrame:
            continue


@given(frames(), st.data())
def test_a_damaged_frame_is_a_frame_or_malformed(frame: Frame, data: st.DataObject):
    encoded = bytearray(CODEC.encode(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    for candidate in (bytes(encoded), bytes(cut)):
        try:
            decoded = CODEC.decode(candidate)
        except MalformedFrame:
            continue
        assert decoded.size <= len(candidate) and decoded.count <= len(candidate)


def refusal(codec: Codec, data: bytes) -> str:
    with pytest.raises(MalformedFrame) as caught:
        codec.decode(data)
    return str(caught.value)


def test_a_frame_of_another_bus_is_refused_for_that_reason():
    assert refusal(CODEC, Codec("other", HEADERS).encode(Frame(sender=1))) == "a datagram of another bus"


def test_something_else_entirely_is_refused_for_that_reason():
    for data in (b"", b"\x00" * 100, b"GET / HTTP/1.1\r\n", CODEC.encode(Frame(sender=1))[:6]):
        assert refusal(CODEC, data) == "not a Pluribus datagram"


def test_another_major_is_refused_with_both_versions_and_the_remedy():
    data = bytearray(CODEC.encode(Frame(sender=1)))
    data[1] = (MAJOR + 1) * 16 + 3
    reason = refusal(CODEC, bytes(data))
    assert f"{MAJOR + 1}.3" in reason and f"{MAJOR}.x" in reason
    assert "install the same major release" in reason


def later_minor(frame: Frame, *added: Any) -> bytes:
    """As a member with a later minor of this major would send it: more fields at the end of the frame."""
    CODEC.encode(frame)
    fields = [getattr(frame, name) for name in Frame.__struct_fields__]
    fields[0] = VERSION + 1
    return msgspec.msgpack.encode([*fields, *added])


@pytest.mark.parametrize("added", [(), (5,), ("text", {"deep": [1, 2, 3]}), (None, b"\x00" * 1_000, 1.5, [])])
def test_a_later_minor_with_more_fields_is_understood(added: tuple[Any, ...]):
    frame = Frame(sender=7, group=3, first=5, count=1, size=2, headers=[Sent(10, 1)], bodies=[b"hi"])
    decoded = CODEC.decode(later_minor(frame, *added))
    assert decoded.version == VERSION + 1 and MINOR == VERSION & 15
    assert (decoded.sender, decoded.group, decoded.first, decoded.headers) == (7, 3, 5, [Sent(10, 1)])
    assert msgspec.msgpack.decode(decoded.bodies) == [b"hi"]


def test_a_header_of_a_later_minor_with_more_fields_is_understood():
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(Sent(10, 1)))
    frame = Frame(sender=7, headers=[[*sent, "new", [1]]])
    assert CODEC.decode(later_minor(frame)).headers == [Sent(10, 1)]


def test_a_header_of_no_layer_of_this_stack_is_refused():
    data = CODEC.encode(Frame(sender=1, headers=[Sent(0, 1)]))
    assert "Invalid value" in refusal(Codec("demo", (Bye,)), data)
    assert CODEC.decode(data).headers == [Sent(0, 1)]


class Twin(Header, tag=10):
    offset: int


class Nameless(Header, tag="text"):
    pass


def test_two_headers_with_one_tag_do_not_fit_in_a_stack():
    with pytest.raises(BadStack, match="Sent and Twin share tag 10: change one"):
        Codec("demo", (Sent, Twin))
    with pytest.raises(BadStack, match="Nameless has no integer tag"):
        Codec("demo", (Nameless,))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sender", 0),
        ("sender", 1 << 63),
        ("to", -1),
        ("first", (1 << 62) + 1),
        ("count", BATCH_MESSAGES_MAX + 1),
        ("count", 200),
        ("size", 200),
        ("size", (1 << 63) - 1),
        ("kind", "x" * (NAME_CHARS_MAX + 1)),
        ("kind", None),
        ("headers", [Bye()] * (HEADERS_PER_FRAME_MAX + 1)),
        ("headers", 5),
        ("headers", [[1]]),
        ("headers", [Hello(1, "x" * (NAME_CHARS_MAX + 1), ("", 0), "", [], False)]),
        ("headers", [Hello(1, "", ("", 65_536), "", [], False)]),
        ("headers", [Hello(1, "", ("x" * 256, 1), "", [], False)]),
    ],
)
def test_a_field_out_of_its_range_is_refused(field: str, value: Any):
    frame = Frame(sender=1)
    setattr(frame, field, value)
    assert refusal(CODEC, CODEC.encode(frame))


FOUR_GIGABYTES = b"\xff\xff\xff\xff"
LYING_SIZES = {
    "bin32 for the bodies": b"\xc6" + FOUR_GIGABYTES,
    "str32 for the bodies": b"\xdb" + FOUR_GIGABYTES,
    "array32 for the bodies": b"\xdd" + FOUR_GIGABYTES,
    "map32 for the bodies": b"\xdf" + FOUR_GIGABYTES,
    "ext32 for the bodies": b"\xc9" + FOUR_GIGABYTES,
}


@pytest.mark.parametrize("lie", LYING_SIZES)
@pytest.mark.parametrize("place", ["kind", "headers", "bodies"])
def test_an_announced_size_is_checked_before_anything_is_allocated(lie: str, place: str):
    """4 GiB in about 20 bytes: refused at once, and next to nothing is allocated on the way."""
    head = CODEC.encode(Frame(sender=1))[:7] + b"\x01" + b"\x00" * 5  # sender, to, group, first, count, size
    filled = {"kind": b"", "headers": b"\x00", "bodies": b"\x00\x90"}[place]
    data = head + filled + LYING_SIZES[lie] + b"\x00" * 3
    tracemalloc.start()
    try:
        started = time.perf_counter()
        assert refusal(CODEC, data)
        assert time.perf_counter() - started < 0.5
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


@settings(max_examples=50)
@given(st.integers(2, 100_000))
def test_deep_nesting_is_refused_not_followed(depth: int):
    prefix = CODEC.encode(Frame(sender=1))[:7] + b"\x01" + b"\x00" * 6 + b"\x90"
    data = prefix + b"\x91" * depth + b"\x00"
    try:
        decoded = CODEC.decode(data)
    except MalformedFrame:
        return
    assert bytes(decoded.bodies) == data[len(prefix) :]
