"""Packed batches as Arrow tables: whatever way events were packed, the rows are those of the events one by one."""

import datetime
from random import Random

import msgspec
import pytest

pytest.importorskip("pyspark.sql")

from pluribus.core.errors import BadInput
from pluribus.pipeline.columns import name_of_kind
from pluribus.pipeline.options import Settings
from pluribus.pubsub.durable.batch import StoredBatch, pack
from pluribus.wire.bodies import BYTES, DATA, TEXT

FIELDS = "price double, symbol string, tags array<string>"
encode = msgspec.msgpack.encode


def batches_of(random: Random, kinds: list) -> list[StoredBatch]:
    """A log of one topic, in batches of different sizes, sessions and kinds, some without their neighbours."""
    found, offset = [], 7
    for session, kind in enumerate(kinds, 100):
        count = random.randrange(1, 6)
        rows = [{"price": n / 2, "symbol": f"s{n}", "more": n, "tags": ["x"] * n} for n in range(count)]
        rows[0].pop("tags")
        bodies = [encode(row) for row in rows]
        headers = [{"n": n} if n % 2 else None for n in range(count)] if random.random() < 0.5 else []
        times = [1_000_000 * offset + n for n in range(count)]
        batch = StoredBatch(pack("t", session, 5, 1, kind, times, bodies, headers), offset)
        found.append(batch.chosen([count - 1]) if random.random() < 0.3 else batch)
        offset += count
    return found


def shape_of(**options):
    settings = Settings({"url": "client://127.0.0.1:1/x", "topic": "t", **options})
    return settings.shape(settings.schema())


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_the_events_one_by_one(seed):
    random = Random(seed)
    batches = batches_of(random, random.choices([DATA, "some.Type", BYTES], k=random.randrange(1, 7)))
    rows = shape_of().table(batches).to_pylist()
    expected = []
    for batch in batches:
        ends = batch.ends.tolist()
        for at, (offset, number) in enumerate(zip(batch.offsets.tolist(), batch.sequences.tolist(), strict=True)):
            row = {"topic": "t", "offset": offset, "id": {"session": batch.head.session, "number": number}, "sender": 1}
            seconds = batch.times.tolist()[at] / 1e6
            row["time"] = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
            said = batch.extra.headers[at] if batch.extra.headers else None
            row |= {"parent": None, "headers": [("n", str(said["n"]))] if said else None}
            row |= {"kind": name_of_kind(batch.kind), "body": bytes(batch.bodies[ends[at] : ends[at + 1]])}
            expected.append(row)
    assert rows == expected
    typed = shape_of(fields=FIELDS, columns="offset,price,symbol,tags").table(batches).to_pylist()
    plain = [msgspec.msgpack.decode(row["body"]) for row in expected]
    assert typed == [
        {"offset": row["offset"], "price": body["price"], "symbol": body["symbol"], "tags": body.get("tags")}
        for row, body in zip(expected, plain, strict=True)
    ]


def test_one_poisonous_event_costs_no_other():
    bodies = [encode({"price": 1}), b"\xc1", encode({"price": "high"}), encode("no"), encode({}), b""]
    batches = [
        StoredBatch(pack("t", 1, 1, 1, BYTES, [0] * len(bodies), bodies), 0),
        StoredBatch(pack("t", 2, 1, 1, TEXT, [0], [encode("text")]), 6),
        StoredBatch(pack("t", 3, 1, 1, DATA, [0], [encode({"price": 2.5})]), 7),
    ]
    aside = shape_of(fields="price double", poison="aside").table(batches).to_pylist()
    assert [row["price"] for row in aside] == [1.0, None, None, None, None, None, None, 2.5]
    assert [row["reason"] is None for row in aside] == [True, False, False, False, True, False, False, True]
    assert [row["body"] for row in aside] == [None, *bodies[1:4], None, b"", encode("text"), None]
    skipped = shape_of(fields="price double", poison="skip").table(batches).to_pylist()
    assert [row["offset"] for row in skipped] == [0, 4, 7]
    assert shape_of(fields="price double", poison="skip").table(batches[1:2]) is None
    with pytest.raises(BadInput, match="event 1 of 't' is poison"):
        shape_of(fields="price double").table(batches)
