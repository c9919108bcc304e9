"""Verdicts: each event has one, the first that holds."""

import datetime

import msgspec
import pytest

pytest.importorskip("pyspark.sql")

import pyarrow as pa

from pluribus.core.errors import BadInput
from pluribus.pipeline.backbone.parts import Rule, Silver
from pluribus.pipeline.backbone.verdicts import NEVER_US, Bench

RULES = [
    Rule("rehearsal", "symbol NOT LIKE 'TEST%'", "drop"),
    Rule("a price", "price > 0"),
    Rule("of the floor", "exchange = 'ny' OR price < 10"),
]
NOW_US = 1_789_473_600_000_000


def judged(silver, events, watermark_us=NEVER_US, kind="data", now_s=NOW_US / 1e6):
    columns = {
        "topic": pa.array([topic for topic, _, _ in events]),
        "offset": pa.array(range(len(events))),
        "id": pa.array([{"session": 1, "number": at} for at in range(len(events))]),
        "time": pa.array([NOW_US + us for _, us, _ in events], pa.timestamp("us", "UTC")),
        "kind": pa.array([kind] * len(events)),
        "body": pa.array([msgspec.msgpack.encode(body) for _, _, body in events]),
    }
    found = Bench(silver, watermark_us, now_s).judge(columns, len(events))
    return {name: column.to_pylist() for name, column in found.items()}


def test_the_first_that_holds():
    silver = Silver("t", "s/#", "symbol string, price double", levels={"exchange": 2}, unique=["symbol", "exchange"])
    silver.rules = RULES
    events = [
        ("s/ny/a", 0, {"symbol": "a", "price": 20.0}),
        ("s/ny/a", 0, {"symbol": "TEST", "price": -1.0}),
        ("s/ny/a", 0, {"symbol": "a", "price": -1}),
        ("s/ny/a", 0, {"symbol": "a"}),
        ("s/x/a", 0, {"symbol": "a", "price": 20.0}),
        ("s/x/a", 0, {"symbol": "a", "price": 2.0}),
        ("s/ny/a", -5, {"symbol": "a", "price": 20.0}),
        ("s/ny/a", -5, {"symbol": 7, "price": 20.0}),
        ("s/ny/a", 0, [1, 2]),
    ]
    found = judged(silver, events, NOW_US)
    assert found["verdict"] == ["good", "dropped", "dead", "dead", "dead", "good", "late", "dead", "dead"]
    assert found["rule"] == [None, "rehearsal", "a price", "a price", "of the floor", None, None, "body", "body"]
    assert found["reason"][2] == "price > 0 is not true of price = -1.0"
    assert found["reason"][3] == "price > 0 is not true of price = None"
    assert [key is not None for key in found["key"]] == [verdict == "good" for verdict in found["verdict"]]
    assert found["key"][0] != found["key"][5]


def test_a_rule_that_fails_names_the_event():
    silver = Silver("t", "s", "n bigint", rules=[Rule("small", "n < 3", "fail")])
    assert judged(silver, [("s", 0, {"n": 2})])["verdict"] == ["good"]
    with pytest.raises(BadInput, match=r"event 1 of 's' breaks the rule 'small' \(n < 3\): n = 3"):
        judged(silver, [("s", 0, {"n": 2}), ("s", 0, {"n": 3})])


def test_rules_on_the_envelope_and_bodies_that_were_published_as_bytes():
    soon = datetime.datetime.fromtimestamp(NOW_US / 1e6, datetime.UTC).isoformat()
    silver = Silver("t", "s", "n bigint", rules=[Rule("soon", f"time <= TIMESTAMP '{soon}' AND topic = 's'")])
    found = judged(silver, [("s", 0, {"n": 2.0}), ("s", 1, {"n": 2})], kind="bytes")
    assert found["verdict"] == ["good", "dead"] and found["key"] == [None, None]


def test_now_is_one_moment_for_all_of_a_batch():
    """That of the batch: a task that is done again a minute later judges as before."""
    silver = Silver("t", "s", "n bigint", rules=[Rule("a clock that is right", "time <= NOW()")])
    events = [("s", us, {"n": 1}) for us in (-1, 0, 1, 30_000_000)]
    assert judged(silver, events)["verdict"] == ["good", "good", "dead", "dead"]
    assert judged(silver, events, now_s=NOW_US / 1e6 + 1)["verdict"] == ["good", "good", "good", "dead"]
