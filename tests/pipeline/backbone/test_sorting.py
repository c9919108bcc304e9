"""Packed batches judged, tallied and copied: as an oracle does it that looks at each event."""

from collections import Counter
from datetime import UTC, datetime
from random import Random

import msgspec
import pytest

pytest.importorskip("pyspark.sql")

import pyarrow as pa

from pluribus.pipeline.backbone import sorting
from pluribus.pipeline.backbone.parts import Rule, Silver
from pluribus.pipeline.backbone.sorting import Copier, Sorter, Tallier, counted
from pluribus.pubsub.durable.batch import StoredBatch, pack
from pluribus.wire.bodies import BYTES, DATA
from tests.pubsub.durable.test_copies import events_of

DAY_US = 86_400_000_000
NOW_US = 20_000 * DAY_US + 3_600_000_000
TABLES = (
    Silver(
        "numbers",
        "n/#",
        "n bigint",
        unique=["n"],
        rules=[Rule("even", "n = 2 * FLOOR(n / 2)", "drop"), Rule("small", "n < 50")],
    ),
    Silver("others", "o", "s string"),
)


def rows_of(batches):
    """As the intake has them: topic, offset, packed, table."""
    tables = ["others" if batch.topic == "o" else "numbers" for batch in batches]
    columns = [[batch.topic for batch in batches], [batch.offset for batch in batches], [one.data for one in batches]]
    return pa.RecordBatch.from_arrays(
        [*map(pa.array, columns), pa.array(tables)], ["topic", "offset", "packed", "table"]
    )


def some_batches(random):
    """Batches of three topics; and of each event topic, offset, time and body."""
    offsets, batches, events = Counter(), [], []
    for _ in range(random.choice([3, 40])):
        topic = random.choice(["n/a", "n/b", "o"])
        count = random.choice([1, 2, 30])
        times = [NOW_US + random.randrange(-2 * DAY_US, DAY_US) for _ in range(count)]
        values = [random.choice([{"n": random.randrange(60)}, {"s": "x"}, 7]) for _ in range(count)]
        bodies = [msgspec.msgpack.encode(value) for value in values]
        kind = random.choice([DATA, DATA, BYTES])
        headers = [{"rule": "mine", "kept": "yes"} if random.random() < 0.2 else None for _ in range(count)]
        packed = pack(topic, 5, offsets[topic] + 1, 3, kind, times, bodies, headers)
        batches.append(StoredBatch(packed, offsets[topic]))
        events += [(topic, offsets[topic] + at, *pair) for at, pair in enumerate(zip(times, values, strict=True))]
        offsets[topic] += count
    return batches, events


def verdict(topic, time_us, value, watermark_us):
    if type(value) is not dict or (topic != "o" and type(value.get("n", 0)) is not int):
        return "dead", "body"
    if topic != "o" and time_us < watermark_us:
        return "late", None
    n = value.get("n")
    if topic != "o" and (n is None or n % 2):
        return "dropped", "even"
    return ("dead", "small") if topic != "o" and n >= 50 else ("good", None)


@pytest.mark.parametrize("seed", range(12))
def test_verdicts_counts_and_copies_are_those_of_an_oracle(seed, monkeypatch):
    monkeypatch.setattr(sorting, "EVENTS_A_LOOK", 50)
    monkeypatch.setattr(sorting, "EVENTS_MOST", 20)
    monkeypatch.setattr(sorting, "BYTES_A_YIELD", 200)
    random = Random(seed)
    batches, events = some_batches(random)
    watermark_us = NOW_US - DAY_US // 2
    sorter = Sorter(TABLES, {"numbers": watermark_us}, NOW_US / 1e6)
    given = [rows_of(batches[:2]), rows_of(batches[2:])]
    found = pa.Table.from_batches(list(sorter.sort(iter(given))))
    is_tally = pa.compute.is_valid(found["tallies"])
    told = counted(found.filter(is_tally)["tallies"].to_pylist())
    rows = found.filter(pa.compute.invert(is_tally))

    wanted = {(topic, at): verdict(topic, time_us, value, watermark_us) for topic, at, time_us, value in events}
    assert tally_of(told) == oracle(events, wanted)
    # Of the numbers, those with the same key but the first are duplicates.
    keyed = [one for one in rows.to_pylist() if one["table"] == "numbers"]
    keys = [(one["topic"], at, key) for one in keyed for at, key in zip(one["offsets"], one["keys"], strict=True)]
    values = {(topic, at): value for topic, at, _, value in events}
    assert {(topic, at): msgspec.msgpack.decode(key) for topic, at, key in keys} == {
        place: [values[place]["n"]] for place, told in wanted.items() if told[0] == "good" and place[0] != "o"
    }
    assert all(one["keys"] is None for one in rows.to_pylist() if one["table"] == "others")
    seen, again = set(), {}
    for topic, at, key in keys:
        if key in seen:
            again.setdefault(topic, []).append(at)
            wanted[(topic, at)] = ("duplicate", None)
        seen.add(key)
    some = rows.select(["table", "topic", "offset", "packed", "verdicts", "broken"]).to_batches()
    told = [row for one in Tallier(again).tally(iter(some)) for row in one.column(0).to_pylist()]
    assert tally_of(counted(told)) == oracle(events, wanted)

    copied = [StoredBatch(row, 0) for one in Copier("c/", "d/", again).copy(iter(some)) for row in one[0].to_pylist()]
    for topic in ("n/a", "n/b", "o"):
        raw = {event[0][1] - 1: event for batch in batches if batch.topic == topic for event in events_of(batch)}
        clean = [event for batch in copied if batch.topic == f"c/{topic}" for event in events_of(batch)]
        assert clean == [raw[at] for (name, at), (said, _) in wanted.items() if name == topic and said == "good"]
        dead = [event for batch in copied if batch.topic == f"d/{topic}" for event in events_of(batch)]
        places = [at for (name, at), (said, _) in wanted.items() if name == topic and said == "dead"]
        assert [(event[0], event[2], event[6]) for event in dead] == [
            (raw[at][0], raw[at][2], raw[at][6]) for at in places
        ]
        for event, at in zip(dead, places, strict=True):
            headers, rule = event[4], wanted[(topic, at)][1]
            assert (headers["rule"], headers["offset"]) == (rule, str(at)) and headers["table"] and headers["reason"]
            assert headers.get("kept") == (raw[at][4] or {}).get("kept")
            assert event[3] == (BYTES if rule == "body" else raw[at][3])


def tally_of(told):
    found = {}
    for one in told:
        key = tuple(one[name] for name in ("table", "topic", "day", "verdict", "rule"))
        rows, least, most, newest = found.get(key, (0, 1 << 62, -1, -1))
        found[key] = (
            rows + one["rows"], min(least, one["least"]), max(most, one["most"]), max(newest, one["newest"])
        )  # fmt: skip
    return found


def oracle(events, wanted):
    return tally_of(
        {
            "table": "others" if topic == "o" else "numbers",
            "topic": topic,
            "day": f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%d}",
            "verdict": wanted[(topic, at)][0],
            "rule": wanted[(topic, at)][1],
            "rows": 1,
            "least": at,
            "most": at,
            "newest": time_us,
        }
        for topic, at, time_us, _ in events
    )
