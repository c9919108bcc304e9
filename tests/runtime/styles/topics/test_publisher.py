"""What a publisher puts into batches: every event once, in order, with its own number, body and headers."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import TooLarge
from pluribus.core.limits import DURABLE_EVENT_BYTES_MAX
from pluribus.pubsub.durable.batch import StoredBatch, checked
from pluribus.pubsub.durable.commands import DONE, Outcome
from pluribus.runtime.styles.topics.publisher import BATCH_BYTES, BATCH_EVENTS, Publisher
from pluribus.wire.bodies import BYTES, TEXT, encode_body

SESSION, SENDER = 77, 5

bodies = st.binary(max_size=3)
step = st.one_of(
    st.tuples(st.just("many"), st.lists(bodies, min_size=1, max_size=6)),
    st.tuples(st.just("many"), st.builds(lambda body, count: [body] * count, bodies, st.integers(1, 5))),
    st.tuples(st.just("one"), bodies),
    st.tuples(st.just("text"), st.text(max_size=3)),
    st.tuples(st.just("headers"), bodies),
    st.just(("turn", None)),
)


async def published(steps):
    """What was published, and what a keeper finds in the batches that it is put."""
    put, ids, expected = [], [], []

    def ask_now(request, answered):
        put.extend(request.batches)
        answered([Outcome(DONE, 0) for _ in request.batches], None)
        return True

    publisher = Publisher("a", SENDER, lambda: SESSION, None, ask_now, lambda: 1.5, lambda: None)
    for what, given_ in steps:
        if what == "many":
            some, waiting = publisher.add_bytes(given_, sum(map(len, given_)))
            ids += some
            expected += [(body, None) for body in given_]
            assert waiting[-1] is publisher.confirmed()
        elif what == "turn":
            await asyncio.sleep(0)
        else:
            kind, encoded = encode_body(given_) if what == "text" else (BYTES, given_)
            ids.append(publisher.add(kind, encoded, {"n": 1} if what == "headers" else None))
            expected.append((given_, {"n": 1} if what == "headers" else None))
    await publisher.flush()
    assert publisher.waiting_bytes == 0 and publisher.idle
    found = []
    for packed in put:
        head = checked(packed)
        batch = StoredBatch(packed, 0)
        headers = batch.extra.headers or [None] * len(batch)
        numbers = [(head.session, head.first + place) for place in range(len(batch))]
        found += zip(numbers, batch.decoded(), headers, strict=True)
    return ids, expected, found, put


@given(st.lists(step, max_size=12))
def test_every_event_is_there_once_in_order(steps):
    ids, expected, found, _ = asyncio.run(published(steps))
    assert [id for id, _, _ in found] == ids == [(SESSION, 1 + place) for place in range(len(expected))]
    assert [(body, headers) for _, body, headers in found] == expected


def test_a_batch_ends_where_it_is_full():
    steps = [("many", [b"x"] * (BATCH_EVENTS + 5)), ("one", b"y"), ("many", [bytes(BATCH_BYTES // 2)] * 3)]
    ids, expected, found, put = asyncio.run(published(steps))
    assert len(ids) == len(found) == len(expected)
    assert [body for _, body, _ in found] == [body for body, _ in expected]
    sizes = [len(StoredBatch(packed, 0)) for packed in put]
    assert len(sizes) > 3 and max(sizes) <= BATCH_EVENTS and max(map(len, put)) < 2 * BATCH_BYTES


def test_one_that_is_too_large_keeps_none_of_the_others():
    async def main():
        publisher = Publisher("a", SENDER, lambda: SESSION, None, lambda *_: True, lambda: 1.5, lambda: None)
        with pytest.raises(TooLarge, match="store it elsewhere"):
            publisher.add_bytes([b"x", bytes(DURABLE_EVENT_BYTES_MAX)], DURABLE_EVENT_BYTES_MAX + 1)
        assert publisher.idle and publisher.waiting_bytes == 0
        assert publisher.add(TEXT, b"\xa1a") == (SESSION, 1)

    asyncio.run(main())
