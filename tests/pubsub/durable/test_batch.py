"""Packed batches: what goes in comes out, whole, cut or chosen; what is no batch is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import MalformedFrame, TooLarge
from pluribus.pubsub.durable.batch import StoredBatch, checked, head_of, is_batch, latest_of, pack
from pluribus.wire.bodies import DATA, TEXT

EVEN = st.integers(0, 8).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9))
BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=30) | EVEN


@given(BODIES, st.text(min_size=1, max_size=20), st.integers(1, 1 << 40), st.integers(0, 1 << 50), st.integers(0, 2))
def test_what_is_packed_is_unpacked(bodies, topic, first, time, step):
    times = [time + step * n for n in range(len(bodies))]
    packed = pack(topic, 5, first, 9, 0, times, bodies)
    found = StoredBatch(packed, 100)
    assert is_batch(packed) and checked(packed) == found.head
    assert (found.topic, found.head.session, found.head.sender, found.kind) == (topic, 5, 9, 0)
    assert found.decoded() == bodies
    assert found.times.tolist() == times
    assert latest_of(packed, found.head) == max(times)
    assert found.offsets.tolist() == list(range(100, 100 + len(bodies)))
    assert found.sequences.tolist() == list(range(first, first + len(bodies)))
    assert found.end == 100 + len(bodies)


@given(st.integers(1, 50), st.integers(1, 100))
def test_what_is_alike_is_packed_once(events, size):
    packed = [pack("t", 1, 1, 1, 0, 7, [bytes(size)] * count) for count in (events, 2 * events)]
    assert len(packed[1]) - len(packed[0]) == events * size
    assert packed[0] == pack("t", 1, 1, 1, 0, [7] * events, [bytes(size)] * events)


def test_few_bytes_are_not_many_events():
    packed = bytearray(pack("t", 1, 1, 1, 0, 7, [b"abc"] * 4))
    for events in (5, 0, 1 << 20):
        packed[4:8] = events.to_bytes(4, "little")
        with pytest.raises(MalformedFrame):
            checked(bytes(packed))
    assert len(pack("t", 1, 1, 1, 0, 7, [b""] * 1_000)) > 4_000


@given(BODIES, st.data())
def test_a_cut_keeps_offsets_and_identities(bodies, data):
    start = data.draw(st.integers(100, 100 + len(bodies) - 1))
    stop = data.draw(st.integers(start + 1, 100 + len(bodies)))
    headers = [{"n": n} if n % 2 else None for n in range(len(bodies))]
    whole = StoredBatch(pack("t", 5, 11, 9, 0, range(len(bodies)), bodies, headers), 100)
    found = whole.cut(start, stop)
    assert found.decoded() == bodies[start - 100 : stop - 100]
    assert found.offsets.tolist() == list(range(start, stop))
    assert found.sequences.tolist() == list(range(start - 89, stop - 89))
    assert found.times.tolist() == list(range(start - 100, stop - 100))
    if any(headers[start - 100 : stop - 100]):
        assert found.extra.headers == headers[start - 100 : stop - 100]
    again = found.cut(stop - 1, stop)
    assert again.offsets.tolist() == [stop - 1] and again.decoded() == [bodies[stop - 101]]


def test_bodies_of_every_kind():
    encode = msgspec.msgpack.encode
    assert StoredBatch(pack("t", 1, 1, 1, TEXT, [0, 0], [encode("a"), encode("b")]), 0).decoded() == ["a", "b"]
    assert StoredBatch(pack("t", 1, 1, 1, DATA, [0], [encode({"x": 1})]), 0).decoded() == [{"x": 1}]
    unknown = StoredBatch(pack("t", 1, 1, 1, "Unheard", [0], [encode({"x": 1})]), 0)
    assert unknown.kind == "Unheard" and unknown.decoded()[0].kind == "Unheard"


def test_without_bodies_the_envelope_is_left():
    found = StoredBatch(pack("t", 1, 1, 1, 0, [3, 4], [b"abc", b"d"]), 0).chosen([1], bodies=False)
    assert found.decoded() == [b""] and found.times.tolist() == [4] and found.offsets.tolist() == [1]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_batch_are_refused(data):
    with pytest.raises(MalformedFrame):
        checked(b"\xc1" + data)


@given(BODIES, st.data())
def test_a_damaged_batch_is_refused_or_can_be_read(bodies, data):
    packed = bytearray(pack("t", 1, 1, 1, 0, range(len(bodies)), bodies))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        head = checked(bytes(packed))
    except MalformedFrame:
        return
    assert len(StoredBatch(bytes(packed), 0).ends) == head.events + 1


def test_a_batch_has_a_limit():
    with pytest.raises(TooLarge, match="the limit is 3,145,728"):
        pack("t", 1, 1, 1, 0, [0], [bytes(4 << 20)])
    assert head_of(pack("t", 1, 1, 1, 0, [0], [bytes(3_000_000)])).events == 1
