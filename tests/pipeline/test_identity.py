"""Read, write, read is the identity: what a table of events holds is what its copy holds. Without a session of Spark,
so that many tables are tried; ``test_sink.py`` copies one through Spark itself."""

import datetime
import decimal
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql")

import pyarrow as pa
from pyspark.sql import types as T

from pluribus.core.errors import BadInput
from pluribus.pipeline.columns import arrow_schema, envelope_fields, kind_of_name
from pluribus.pipeline.options import Settings
from pluribus.pipeline.sink import Staged, StreamWriter
from pluribus.pipeline.tables import Shape
from pluribus.pubsub.durable.batch import StoredBatch, checked, pack

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
PLAIN = [
    (T.BooleanType(), st.booleans()),
    (T.ByteType(), st.integers(-128, 127)),
    (T.IntegerType(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (T.LongType(), LONGS),
    (T.FloatType(), st.floats(width=32)),
    (T.DoubleType(), st.floats()),
    (T.StringType(), st.text(max_size=5)),
    (T.BinaryType(), st.binary(max_size=5)),
    (T.DateType(), st.dates(datetime.date(1, 1, 1))),
    (T.TimestampType(), MOMENTS.map(lambda moment: moment.replace(tzinfo=datetime.UTC))),
    (T.TimestampNTZType(), MOMENTS),
    (T.DecimalType(12, 3), st.integers(-(10**11), 10**11).map(lambda n: decimal.Decimal(n).scaleb(-3))),
]
KEYS = [(T.StringType(), st.text(max_size=3)), (T.LongType(), LONGS), (T.DateType(), st.dates())]


@st.composite
def types(draw, depth=2):
    """A type of Spark, and values of it, some of them null."""
    form = draw(st.sampled_from(["plain", "plain", "array", "map", "struct"] if depth else ["plain"]))
    if form == "plain":
        kind, values = draw(st.sampled_from(PLAIN))
    elif form == "array":
        inner, each = draw(types(depth - 1))
        kind, values = T.ArrayType(inner), st.lists(each, max_size=3)
    elif form == "map":
        key, keys = draw(st.sampled_from(KEYS))
        inner, each = draw(types(depth - 1))
        kind, values = T.MapType(key, inner), st.dictionaries(keys, each, max_size=3)
    else:
        several = draw(st.lists(types(depth - 1), min_size=1, max_size=3))
        names = [f"in {number}" for number in range(len(several))]
        kind = T.StructType([T.StructField(name, one) for name, (one, _) in zip(names, several, strict=True)])
        values = st.fixed_dictionaries({name: each for name, (_, each) in zip(names, several, strict=True)})
    return kind, st.none() | values


PAIRS = st.fixed_dictionaries({"session": LONGS, "number": st.integers(1, 50)})
OF_ENVELOPE = {
    "id": PAIRS,
    "sender": LONGS,
    "time": MOMENTS.map(lambda moment: moment.replace(tzinfo=datetime.UTC)),
    "parent": st.none() | PAIRS,
    "headers": st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1, max_size=2),
}
ENVELOPE = T.StructType([envelope_fields()[name] for name in OF_ENVELOPE])
RAW = {
    "bytes": st.binary(max_size=5),
    "text": st.text(max_size=5).map(msgspec.msgpack.encode),
    "data": st.dictionaries(st.text(max_size=2), LONGS | st.text(max_size=3), max_size=2).map(msgspec.msgpack.encode),
    "type prices.Price": st.just(msgspec.msgpack.encode({"symbol": "ibm"})),
}


@st.composite
def tables(draw):
    """Rows as they are read: of the envelope, and fields or raw bodies."""
    columns = dict(OF_ENVELOPE)
    schema = T.StructType(list(ENVELOPE.fields))
    if draw(st.booleans()):
        for number in range(draw(st.integers(1, 3))):
            kind, columns[f"field {number}"] = draw(types())
            schema = schema.add(f"field {number}", kind)
        rows = draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=6))
    else:
        schema = schema.add("kind", T.StringType()).add("body", T.BinaryType())
        raw = st.sampled_from(sorted(RAW)).flatmap(lambda name: st.tuples(st.just(name), RAW[name]))
        bodies = st.fixed_dictionaries(columns).flatmap(
            lambda row: raw.map(lambda pair: {**row, "kind": pair[0], "body": pair[1]})
        )
        rows = draw(st.lists(bodies, min_size=1, max_size=6))
    return schema, rows


def written(schema, table):
    """The packed batches of rows, as keepers would give them back."""
    writer = StreamWriter(Settings({"url": "client://127.0.0.1:1/x", "writer": "w", "topic": "t"}), schema)
    found, offset = [], 0
    for stage in writer._stages(iter([table]), 0, Staged("a", [0]), 0):
        checked(stage.packed)
        found.append(StoredBatch(stage.packed, offset))
        offset += len(found[-1])
    return found


def read(schema, batches):
    shape = Settings({"url": "client://127.0.0.1:1/x", "topic": "t"}).shape(schema)
    return shape.table(batches)


def shown(table):
    return [repr(row) for row in table.to_pylist(maps_as_pydicts="strict")]


@settings(max_examples=200, deadline=None)
@given(tables())
def test_read_write_read_is_the_identity(made):
    schema, rows = made
    table = pa.RecordBatch.from_pylist(rows, arrow_schema(schema))
    first = read(schema, written(schema, table))
    assert shown(first) == shown(table)
    some = written(schema, first)[-1]
    last = some.cut(some.end - 1, some.end)
    assert shown(read(schema, [last])) == shown(table)[-1:], "a part of a batch has what the whole one has"


def test_many_publishers_interleaved_are_one_part():
    """Identities and senders that are in no row do not make a batch of each event."""
    schema = T.StructType([*ENVELOPE.fields, T.StructField("n", T.LongType())])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    rows = [
        {"id": {"session": n % 7, "number": n}, "sender": n % 5, "time": now, "parent": None, "headers": None, "n": n}
        for n in range(1, 1_000)
    ]
    table = pa.RecordBatch.from_pylist(rows, arrow_schema(schema))
    (part,) = written(schema, table)
    assert shown(read(schema, [part])) == shown(table)
    (alike,) = written(
        schema, pa.RecordBatch.from_pylist([{**row, "id": rows[0]["id"]} for row in rows[:1]], arrow_schema(schema))
    )
    assert not alike.extra.ids and not alike.extra.senders, "one publisher's events are packed as it packed them"


class Renamed(msgspec.Struct, rename="camel"):
    unit_price: float
    best_of: list[int] = []


def test_fields_are_called_as_they_travel():
    settings = Settings({"topic": "t", "type": f"{__name__}:Renamed", "columns": "unitPrice,bestOf"})
    body = msgspec.msgpack.encode(Renamed(1.5, [1, 2]))
    table = settings.shape(settings.schema()).table([StoredBatch(pack("t", 1, 1, 0, "Renamed", 5, [body]), 0)])
    assert table.to_pylist() == [{"unitPrice": 1.5, "bestOf": [1, 2]}]


@pytest.mark.parametrize(
    ("column", "values", "good"),
    [
        ("bigint", [1, 1.0, 1.5, "1", True], [1, 1]),
        ("array<bigint>", [[1], [1.5]], [[1]]),
        ("date", ["2026-01-31", "today"], [datetime.date(2026, 1, 31)]),
        ("timestamp_ntz", ["2026-01-31T12:00:00", "noon"], [datetime.datetime(2026, 1, 31, 12)]),
        ("decimal(4, 1)", ["1.5", "1.55", "1234567"], [decimal.Decimal("1.5")]),
    ],
)
def test_what_a_column_cannot_hold_is_poison_and_not_another_value(column, values, good):
    schema = T.StructType().add("v", _kind(column))
    bodies = [msgspec.msgpack.encode({"v": value}) for value in values]
    batch = StoredBatch(pack("t", 1, 1, 0, kind_of_name("data"), 5, bodies), 0)
    assert [row["v"] for row in Shape(schema, ["v"], "skip").table([batch]).to_pylist()] == good
    with pytest.raises(BadInput, match="is poison, its fields are not v"):
        Shape(schema, ["v"], "fail").table([batch])


def _kind(text):
    found = {
        "bigint": T.LongType(),
        "array<bigint>": T.ArrayType(T.LongType()),
        "date": T.DateType(),
        "timestamp_ntz": T.TimestampNTZType(),
        "decimal(4, 1)": T.DecimalType(4, 1),
    }
    return found[text]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (T.StructType().add("time", T.StringType()), "has 'time' as string: of an event it is timestamp"),
        (T.StructType().add("n", T.NullType()), "has 'n' as void, which no body holds"),
    ],
)
def test_a_schema_that_no_event_has_is_said(schema, said):
    with pytest.raises(BadInput, match=said):
        Settings({"topic": "t"}).shape(schema)


def test_columns_that_only_have_a_name_of_the_envelope_are_fields():
    schema = T.StructType().add("id", T.LongType()).add("kind", T.StringType()).add("time", T.DoubleType())
    table = pa.RecordBatch.from_pylist([{"id": 7, "kind": "good", "time": math.pi}], arrow_schema(schema))
    (batch,) = written(schema, table)
    assert batch.decoded() == [{"id": 7, "kind": "good", "time": math.pi}]


def test_what_would_be_left_out_is_refused():
    url = Settings({"url": "client://127.0.0.1:1/x", "writer": "w", "topic": "t"})
    with pytest.raises(BadInput, match="a column 'body', and the column 'price'"):
        StreamWriter(url, T.StructType().add("body", T.BinaryType()).add("price", T.DoubleType()))
    schema = T.StructType().add("kind", T.StringType()).add("body", T.BinaryType())
    for kind, body, said in (("data", b"\x01\x02", "has a body that is none"), ("song", b"", "there is no kind")):
        with pytest.raises(BadInput, match=said):
            written(schema, pa.RecordBatch.from_pylist([{"kind": kind, "body": body}], arrow_schema(schema)))
