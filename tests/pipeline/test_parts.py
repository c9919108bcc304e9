"""Rows as packed parts: whatever way they are cut, the events are those of the rows one by one."""

from random import Random

import pytest

pytest.importorskip("pyspark.sql")

import pyarrow as pa
from pyspark.sql import types as T

from pluribus.core.errors import BadInput
from pluribus.pipeline import sink
from pluribus.pipeline.options import Settings
from pluribus.pipeline.sink import Staged, StreamWriter, log_of
from pluribus.pubsub.durable.batch import StoredBatch, checked


def writer(urls: str = "client://127.0.0.1:1/x", **fields) -> StreamWriter:
    schema = T.StructType([T.StructField(name.replace("_", " "), kind()) for name, kind in fields.items()])
    topic = {} if "topic" in fields else {"topic": "t"}
    return StreamWriter(Settings({"url": urls, "writer": "w", **topic}), schema)


def staged(writer: StreamWriter, batches: list, log: int = 0) -> tuple[list[StoredBatch], Staged]:
    said = Staged("a", [0] * writer._logs)
    stages = list(writer._stages(iter(batches), 3, said, log))
    assert [stage.part for stage in stages] == list(range(said.parts[log]))
    for stage in stages:
        checked(stage.packed)
    return [StoredBatch(stage.packed, 0) for stage in stages], said


@pytest.mark.parametrize("seed", range(10))
def test_bytes_are_packed_as_arrow_has_them(seed, monkeypatch):
    monkeypatch.setattr(sink, "PART_ROWS", 7)
    monkeypatch.setattr(sink, "PART_BYTES", 40)
    random = Random(seed)
    bodies = [random.randbytes(random.choice([0, 1, 9, 50])) for _ in range(60)]
    whole = pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], ["body"])
    parts, _ = staged(writer(body=T.BinaryType), [whole.slice(0, 13), whole.slice(13, 0), whole.slice(13)])
    assert [body for part in parts for body in part.decoded()] == bodies
    assert [number for part in parts for number in part.sequences.tolist()] == list(range(1, 61))
    assert all(len(part) <= 7 and (len(part) == 1 or part.head.bodies_bytes <= 40) for part in parts)
    assert {part.topic for part in parts} == {"t"}


def test_rows_of_many_topics_become_dictionaries(monkeypatch):
    monkeypatch.setattr(sink, "PART_ROWS", 2)
    rows = {"topic": ["a", "b", "a", "a"], "n": [1, 2, None, 4], "odd name": ["x", "y", "z", ""]}
    batch = pa.RecordBatch.from_pydict(rows)
    parts, said = staged(writer(topic=T.StringType, n=T.LongType, odd_name=T.StringType), [batch])
    found = [(part.topic, body) for part in parts for body in part.decoded()]
    assert found == [
        ("a", {"n": 1, "odd name": "x"}),
        ("a", {"n": None, "odd name": "z"}),
        ("a", {"n": 4, "odd name": ""}),
        ("b", {"n": 2, "odd name": "y"}),
    ]
    assert said.parts == [3]


def test_a_row_without_a_body_is_refused():
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", None], pa.binary())], ["body"])
    with pytest.raises(BadInput, match="a row has no body"):
        staged(writer(body=T.BinaryType), [batch])


@pytest.mark.parametrize("kind", [T.BinaryType, T.StringType])
def test_rows_of_many_topics_and_logs_keep_their_order_a_topic(kind):
    """Whatever way rows are put together by topic, log and kind: those of one topic come in their order, once."""
    random = Random(1)
    rows = [(f"t/{random.randrange(40)}", f"{number}") for number in range(400)]
    bodies = [body.encode() if kind is T.BinaryType else body for _, body in rows]
    batch = pa.RecordBatch.from_pydict({"topic": [topic for topic, _ in rows], "body": bodies})
    several = writer(
        "client://127.0.0.1:1/x client://127.0.0.1:2/y;client://127.0.0.1:3/z", topic=T.StringType, body=kind
    )
    found = {}
    for log in range(3):
        for part in staged(several, [batch.slice(0, 150), batch.slice(150)], log)[0]:
            assert log_of(part.topic, 3) == log
            found.setdefault(part.topic, []).extend(part.decoded())
    expected = {}
    for (topic, _), body in zip(rows, bodies, strict=True):
        expected.setdefault(topic, []).append(body)
    assert found == expected
