"""Batches: what was gathered is what arrives, whatever it was; what is no batch is refused."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pluribus
from pluribus.core.errors import BadBody, MalformedFrame
from pluribus.core.limits import BATCH_MESSAGES_MAX, LONG_BYTES_LOOPBACK, LONG_MESSAGE_BYTES, TOPICS_PER_BATCH_MAX
from pluribus.pubsub.batch import (
    PLAIN,
    Arrived,
    Batch,
    EventExtra,
    Gathering,
    Part,
    checked_headers,
    decode_batch,
    encode_batch,
)
from pluribus.pubsub.event import NO_HEADERS
from pluribus.wire.bodies import BYTES, TEXT, encode_body
from tests.harness import only

ME = 77
LARGEST = 60_000


class Tick(msgspec.Struct, frozen=True):
    symbol: str
    price: float


pluribus.register(Tick, "tests.pubsub.Tick")

bodies = (
    st.binary(max_size=20)
    | st.text(max_size=10)
    | st.builds(Tick, st.text(max_size=4), st.floats(0, 1e6))
    | st.dictionaries(st.text(max_size=3), st.integers(0, 100), max_size=3)
)
extras = st.just(PLAIN) | st.builds(
    EventExtra,
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 9), max_size=2),
    st.none() | st.tuples(st.integers(1, 9), st.integers(0, 9)),
    st.booleans(),
)
published = st.lists(st.tuples(st.sampled_from(["a", "a/b", "c/d/e"]), bodies, extras), min_size=1, max_size=30)


def gathered(events, gathering, numbers=None):
    found = []
    for place, (topic, body, extra) in enumerate(events):
        kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
        assert gathering.fits(topic, len(encoded))
        number = None if numbers is None else numbers[place]
        found.append(gathering.add(topic, kind, encoded, 1.5, extra, number, type(body)))
    return found


def arrived(data):
    return [event for section in Arrived(decode_batch(data)).sections() for event in section.events()]


@given(published, st.integers(0, 3))
def test_what_was_published_arrives(events, batches_before):
    gathering = Gathering(ME, LARGEST)
    for _ in range(batches_before):
        gathered(events[:2], gathering)
        gathering.close()
    ids = gathered(events, gathering)
    found = arrived(encode_batch(only(gathering.close())))
    assert [(e.topic, e.body, e.id, e.sender, e.time) for e in found] == [
        (topic, body, id, ME, 1.5) for (topic, body, _), id in zip(events, ids, strict=True)
    ]
    assert [(dict(e.headers), e.parent) for e in found] == [(x.headers, x.parent) for _, _, x in events]
    first = min(batches_before * 2, batches_before * len(events))
    assert [number for _, number in ids] == list(range(first, first + len(events)))
    assert gathering.empty


long_bodies = st.sampled_from([255, 256, 1_000]).map(bytes)


@given(st.sampled_from(["a", "a/b", "ä/ß" * 40]), bodies | long_bodies, published)
def test_an_event_alone_makes_the_batch_that_gathering_makes(topic, body, before):
    kind, encoded = (BYTES, body) if type(body) is bytes else encode_body(body)
    one, other = Gathering(ME, LARGEST, first=5), Gathering(ME, LARGEST, first=5)
    for gathering in (one, other):
        gathered(before, gathering)
        gathering.close()
    alone = one.single(topic, kind, encoded, 2.5)
    found = other.add(topic, kind, encoded, 2.5)
    batch = only(other.close())
    assert arrived(encode_batch(alone)) == arrived(encode_batch(batch)) and found == (ME, alone.first)
    assert len(alone) == len(encode_batch(alone)) - len(msgspec.msgpack.encode(alone.size))
    assert batch.topics != [topic] or encode_batch(alone) == encode_batch(batch)
    assert one.empty and one.add("next", BYTES, b"x", 2.5) == other.add("next", BYTES, b"x", 2.5)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), bodies | long_bodies, extras), min_size=1, max_size=30))
def test_a_batch_knows_what_it_weighs_before_it_is_encoded(events):
    gathering = Gathering(ME, LARGEST)
    gathered(events, gathering)
    batch = only(gathering.close())
    without_its_weight = len(encode_batch(batch)) - len(msgspec.msgpack.encode(batch.size))
    assert len(batch) == batch.size == without_its_weight


@given(
    st.lists(st.sampled_from([0, 100, 300, 16_384, 40_000]), min_size=1, max_size=40),
    st.integers(0, 1 << 33),
    st.sampled_from([LARGEST, LONG_BYTES_LOOPBACK]),
)
def test_a_few_long_events_of_one_topic_are_several_batches_that_fit_a_frame_each(sizes, first, long_bytes):
    gathering = Gathering(ME, LARGEST, first, long_bytes)
    sent = []
    for number, size in enumerate(sizes):
        body = number.to_bytes(2, "big") + bytes(size)
        if not gathering.fits("a", len(body), BYTES):
            break
        quick = next(gathering.ids, None) if sent and len(body) <= gathering.alike else None
        if quick is None:
            assert gathering.add("a", BYTES, body, 1.5, PLAIN, None, bytes) == (ME, first + number)
        else:
            assert quick == (ME, first + number)
            gathering.pending.append(body)
        sent.append(body)
    several = sum(map(len, sent)) > LARGEST
    if several:
        assert not gathering.fits("b", 1, BYTES) and not gathering.fits("a", 1, TEXT)
        assert not gathering.fits("a", 1, BYTES, EventExtra({"x": 1}))
    batches = gathering.close()
    long = long_bytes if sum(map(len, sent)) >= LONG_MESSAGE_BYTES * len(sent) else LARGEST
    assert (len(batches) > 1) >= (several and long == LARGEST)
    for batch in batches:
        encoded = encode_batch(batch)
        assert len(encoded) <= long
        assert len(batch) == len(encoded) - len(msgspec.msgpack.encode(batch.size))
    found = [event for batch in batches for event in arrived(encode_batch(batch))]
    assert [(event.topic, event.body, event.id) for event in found] == [
        ("a", body, (ME, first + number)) for number, body in enumerate(sent)
    ]
    assert gathering.empty and gathering.add("b", BYTES, b"", 2.0) == (ME, first + len(sent))


def test_an_event_larger_than_a_frame_stays_alone():
    gathering = Gathering(ME, LARGEST)
    gathering.add("a", BYTES, bytes(LARGEST), 0.0)
    assert next(gathering.ids, None) is None and not gathering.fits("a", 1, BYTES)
    assert len(only(gathering.close())) > LARGEST
    gathering.add("a", BYTES, b"short", 0.0)
    assert not gathering.fits("a", LARGEST, BYTES) and gathering.fits("a", 1, BYTES)


@given(published, st.data())
def test_some_of_a_part_are_the_same_events_as_all_of_it(events, data):
    gathering = Gathering(ME, LARGEST)
    gathered(events, gathering)
    encoded = encode_batch(only(gathering.close()))
    sections = zip(*(Arrived(decode_batch(encoded)).sections() for _ in range(2)), strict=True)
    for one, other in sections:
        wanted = bytes(data.draw(st.lists(st.integers(0, 1), min_size=one.part.count, max_size=one.part.count)))
        assert one.picked(wanted) == [event for event, take in zip(other.events(), wanted, strict=True) if take]
        for place, event in enumerate(other.events()):
            ((alone,),) = [section.events() for section in Arrived(one.single(place)).sections()]
            assert alone == event


@given(published)
def test_numbers_of_their_own_are_kept(events):
    numbers = [3 * place + 1 for place in range(len(events))]
    gathering = Gathering(ME, LARGEST)
    assert gathered(events, gathering, numbers) == [(ME, number) for number in numbers]
    assert [event.id[1] for event in arrived(encode_batch(only(gathering.close())))] == numbers


def test_plain_events_share_their_empty_headers():
    gathering = Gathering(ME, LARGEST)
    gathered([("a", b"x", PLAIN)], gathering)
    (event,) = arrived(encode_batch(only(gathering.close())))
    assert event.headers is NO_HEADERS


def test_a_batch_stays_below_its_size_and_its_number_of_topics():
    for body in (b"", b"x" * 100):
        gathering = Gathering(ME, LARGEST)
        count = 0
        while gathering.fits("stocks/ibm", len(body)):
            gathering.add("stocks/ibm", BYTES, body, 0.0)
            count += 1
        assert count < BATCH_MESSAGES_MAX
        assert len(encode_batch(only(gathering.close()))) <= LARGEST
    gathering = Gathering(ME, LARGEST)
    for number in range(TOPICS_PER_BATCH_MAX):
        gathering.add(f"t/{number}", BYTES, b"", 0.0)
    assert not gathering.fits("another", 1) and gathering.fits("t/7", 1)


def test_topics_of_the_last_batch_are_there_for_the_next():
    gathering = Gathering(ME, LARGEST)
    for _ in range(3):
        for topic in ("a", "b", "c"):
            gathering.add(topic, BYTES, b"", 0.0)
        gathering.close()
    assert list(gathering.places) == ["a", "b", "c"]
    gathering.add("c", BYTES, b"", 0.0)
    assert [event.topic for event in arrived(encode_batch(only(gathering.close())))] == ["c"]
    assert not gathering.places


@pytest.mark.parametrize(
    "batch",
    [
        Batch(ME, 0, 0.0, ["a"], [Part(BYTES, 1, 1, msgspec.Raw(b"\x90"))]),
        Batch(ME, 0, 0.0, ["a"], [Part(BYTES, 2, b"\0", msgspec.Raw(b"\x90"))]),
        Batch(ME, 0, 0.0, ["a"], [Part(BYTES, 1, b"\1", msgspec.Raw(b"\x90"))]),
        Batch(ME, 0, 0.0, ["a"], [Part(BYTES, 1, 0, msgspec.Raw(b"\x90"))], [1, 2]),
        Batch(ME, 0, 0.0, ["a"], []),
        Batch(ME, 0, 0.0, [], [Part(BYTES, 1, 0, msgspec.Raw(b"\x90"))]),
        Batch(0, 0, 0.0, ["a"], [Part(BYTES, 1, 0, msgspec.Raw(b"\x90"))]),
        "nothing of the kind",
    ],
)
def test_what_is_no_batch_is_refused(batch):
    with pytest.raises(MalformedFrame):
        decode_batch(encode_batch(batch))


@pytest.mark.parametrize("bodies", [b"\x90", b"\x91\xc0", b"\xc4\x01x"])
def test_bodies_that_are_not_what_the_part_says_are_refused(bodies):
    batch = Batch(ME, 0, 0.0, ["a"], [Part(TEXT, 2, 0, msgspec.Raw(bodies))])
    (section,) = Arrived(decode_batch(encode_batch(batch))).sections()
    with pytest.raises(MalformedFrame):
        section.events()
    with pytest.raises(MalformedFrame):
        section.picked(b"\0\1")


@given(st.binary(max_size=60))
def test_noise_is_refused(noise):
    try:
        decode_batch(noise)
    except MalformedFrame:
        return


@pytest.mark.parametrize("headers", [{"": 1}, {7: 1}, {"x" * 200: 1}, {"x": object()}, {str(n): 1 for n in range(65)}])
def test_headers_that_cannot_travel_are_refused(headers):
    with pytest.raises(BadBody):
        checked_headers(headers)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3_000)), min_size=1, max_size=200), st.integers(0, 9))
@example([("a", 100)] * 200, 0)
def test_a_publisher_in_a_hurry_fills_a_batch_as_a_careful_one_does(events, first):
    """``ids`` has a place only where the batch has room for a body that is no longer than ``alike``."""
    gathering = Gathering(ME, LARGEST, first)
    sent = []
    for topic, size in events:
        body = bytes([len(sent) % 256]) * size
        known = gathering.solo == topic or (gathering.solo is None and topic in gathering.places)
        identity = next(gathering.ids, None) if known and size <= gathering.alike else None
        if identity is not None:
            gathering.pending.append(body)
            if gathering.solo is None:
                gathering.of.append(gathering.places[topic])
        elif gathering.fits(topic, size):
            identity = gathering.add(topic, BYTES, body, 1.5, PLAIN, None, bytes)
        else:
            break
        assert identity == (ME, first + len(sent))
        sent.append((topic, body, identity))
    data = encode_batch(only(gathering.close()))
    assert len(data) <= LARGEST
    assert [(event.topic, event.body, event.id) for event in arrived(data)] == sent


@given(published.filter(lambda events: len(events) > 1), st.data())
def test_a_batch_that_never_left_the_process_reads_like_one_that_did(events, data):
    gathering = Gathering(ME, LARGEST)
    gathered(events, gathering)
    batch = only(gathering.close())
    for here, there in zip(
        Arrived(batch).sections(), Arrived(decode_batch(encode_batch(batch))).sections(), strict=True
    ):
        place = data.draw(st.integers(0, here.part.count - 1))
        assert encode_batch(here.single(place)) == encode_batch(there.single(place))
        wanted = bytes(data.draw(st.lists(st.booleans(), min_size=here.part.count, max_size=here.part.count)))
        assert here.picked(wanted) == there.picked(wanted)
        assert here.events() == there.events()


@pytest.mark.parametrize("time", [float("nan"), float("inf"), 1e18, -1e18])
def test_a_batch_of_a_time_that_no_calendar_has_is_refused(time: float):
    part = Part(BYTES, 1, 0, msgspec.Raw(msgspec.msgpack.encode([b"x"])))
    with pytest.raises(MalformedFrame, match="calendar"):
        decode_batch(encode_batch(Batch(ME, 0, time, ["a"], [part])))
