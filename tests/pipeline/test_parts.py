"""Rows as packed parts: whatever way they are cut, the events are those of the rows one by one."""

from random import Random

import pytest

pytest.importorskip("pyspark.sql")

import pyarrow as pa
from pyspark.sql import types as T

from pluribus.core.errors import BadInput
from pluribus.pipeline import sink
from pluribus.pipeline.sink import Staged, StreamWriter
from pluribus.pubsub.durable.batch import Batch, checked


def writer(**fields) -> StreamWriter:
    schema = T.StructType([T.StructField(name.replace("_", " "), kind()) for name, kind in fields.items()])
    topic = {} if "topic" in fields else {"topic": "t"}
    return StreamWriter({"url": "client://127.0.0.1:1/x", "writer": "w", **topic}, schema)


def staged(writer: StreamWriter, batches: list) -> tuple[list[Batch], Staged]:
    said = Staged("a", 0, 0)
    stages = list(writer._stages(iter(batches), 3, said))
    assert [stage.part for stage in stages] == list(range(said.parts))
    for stage in stages:
        checked(stage.packed)
    return [Batch(stage.packed, 0) for stage in stages], said


@pytest.mark.parametrize("seed", range(10))
def test_bytes_are_packed_as_arrow_has_them(seed, monkeypatch):
    monkeypatch.setattr(sink, "PART_ROWS", 7)
    monkeypatch.setattr(sink, "PART_BYTES", 40)
    random = Random(seed)
    bodies = [random.randbytes(random.choice([0, 1, 9, 50])) for _ in range(60)]
    whole = pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], ["body"])
    parts, said = staged(writer(body=T.BinaryType), [whole.slice(0, 13), whole.slice(13, 0), whole.slice(13)])
    assert [body for part in parts for body in part.decoded()] == bodies
    assert [number for part in parts for number in part.sequences.tolist()] == list(range(1, 61))
    assert all(len(part) <= 7 and (len(part) == 1 or part.head.bodies_bytes <= 40) for part in parts)
    assert said.rows == 60 and {part.topic for part in parts} == {"t"}


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
    assert (said.parts, said.rows) == (3, 4)


def test_a_row_without_a_body_is_refused():
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", None], pa.binary())], ["body"])
    with pytest.raises(BadInput, match="a row has no body"):
        staged(writer(body=T.BinaryType), [batch])
