"""What C does of packing is what Python does of it, and None where that is another case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus._speed import packing
from pluribus._speed.quick import COMPILED
from pluribus.core.errors import MalformedFrame
from pluribus.core.limits import DURABLE_BATCH_BYTES_MAX
from pluribus.pubsub.durable import batch as batches
from pluribus.pubsub.durable.batch import EVEN as EVEN_FLAG
from pluribus.pubsub.durable.batch import ONE_TIME, outline_of, pack

EVEN = st.integers(0, 8).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9))
BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=30) | EVEN
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
KINDS = st.integers(0, 5) | st.text(min_size=1, max_size=9)
TOPICS = st.text(min_size=1, max_size=20)


def packed_in_python(*given_):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "pack_plain", lambda *_: None)
        return pack(*given_)


@given(TOPICS, NUMBERS, st.integers(1, 1 << 40), NUMBERS, KINDS, NUMBERS, BODIES)
def test_a_batch_is_the_same_bytes(topic, session, first, sender, kind, time, bodies):
    wanted = packed_in_python(topic, session, first, sender, kind, time, bodies)
    assert pack(topic, session, first, sender, kind, time, bodies) == wanted
    found = packing.pack_plain(topic, session, first, sender, kind, time, bodies)
    assert found == (wanted if COMPILED and isinstance(kind, int) else None)


def test_what_is_not_usual_is_for_the_caller():
    usual = ("t", 1, 1, 1, 0, 7, [b"a"])
    assert packing.pack_plain(*usual) == (pack(*usual) if COMPILED else None)
    odd = [(0, "t" * 70_000), (0, "\ud800"), (1, 1 << 64), (4, "Type"), (4, -1), (4, 1 << 16), (5, "now")]
    odd += [(6, []), (6, (b"a",)), (6, [memoryview(b"a")]), (6, [bytes(4 << 20)])]
    for place, value in odd:
        assert packing.pack_plain(*usual[:place], value, *usual[place + 1 :]) is None


def test_the_limit_is_that_of_batches():
    head = len(pack("t", 1, 1, 1, 0, 7, [b"a"])) - 1
    largest = [bytes(DURABLE_BATCH_BYTES_MAX - head)]
    assert (packing.pack_plain("t", 1, 1, 1, 0, 7, largest) is not None) == COMPILED
    assert packing.pack_plain("t", 1, 1, 1, 0, 7, [largest[0] + b"a"]) is None


@given(TOPICS, NUMBERS, st.integers(1, 1 << 40), KINDS, st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_an_outline_is_the_same(topic, session, first, kind, times, data):
    headers = [{"n": 1}] * len(times) if data.draw(st.booleans()) else []
    command = bytearray(pack(topic, session, first, 9, kind, times, [b"body"] * len(times), headers))
    if data.draw(st.booleans()):
        command[data.draw(st.integers(0, len(command) - 1))] ^= data.draw(st.integers(1, 255))
    found = packing.outline_plain(bytes(command))
    try:
        wanted = outline_of(bytes(command))
    except MalformedFrame:
        wanted = None
    assert found in (None, wanted)
    usual = wanted is not None and command[2] & ~EVEN_FLAG == ONE_TIME
    assert not COMPILED or (found is not None) == usual


@given(st.binary(max_size=100))
def test_what_is_no_batch_has_no_outline(data):
    assert packing.outline_plain(data) is None
    assert packing.outline_plain(b"\xc1\x01" + data) is None


PAIRS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "long/topic"]), st.binary(max_size=3) | st.integers()), max_size=5
)


@given(PAIRS | st.lists(st.tuples(st.just("a"), st.binary(max_size=3)), max_size=5))
def test_pairs_of_one_topic(pairs):
    alike = bool(pairs) and len({topic for topic, _ in pairs}) == 1 and all(type(body) is bytes for _, body in pairs)
    bodies = [body for _, body in pairs]
    wanted = (pairs[0][0], bodies, sum(map(len, bodies))) if alike else None
    assert packing.of_one_topic(pairs) == wanted
    assert packing.of_one_topic([(str(bytes(topic, "utf8"), "utf8"), body) for topic, body in pairs]) == wanted


def test_odd_pairs_are_not_of_one_topic():
    for pairs in ([["t", b"a"]], [("t", b"a", 1)], [(1, b"a")], [("t", b"a"), 5]):
        if COMPILED:
            assert packing.of_one_topic(pairs) is None
