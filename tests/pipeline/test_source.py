"""``format("pluribus")``: durable topics read in batches and as streams, with conditions, types, limits and faults."""

import datetime
import math
from functools import reduce

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import pluribus
from pluribus.pipeline.source import register
from tests.pipeline.prices import Price

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
TYPE = "tests.pipeline.prices:Price"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COUNT = 1_000


def url_of(bus) -> str:
    host, port = bus._real.doors[0].address
    return f"client://{host}:{port}/{bus._real.url.bus}"


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    store = tmp_path_factory.mktemp("keeper") / "keeper.db"
    with pluribus.sync.connect("inproc://pipeline-source", store=store, serve="127.0.0.1:0") as bus:
        durable = bus.durable
        prices = [Price(f"s{n % 10}", n / 4, n, ["x"] * (n % 3)) for n in range(COUNT)]
        durable.publish_many([("stocks/all", price) for price in prices])
        durable.publish_many([("raw/a", b"%d" % n) for n in range(100)])
        durable.publish_many([("raw/b", b"b")], headers={"from": "test"})
        durable.publish_many(
            [("mixed", {"price": 1.5}), ("mixed", b"\xc1"), ("mixed", {"price": "high"}), ("mixed", "no")]
        )
        yield bus


@pytest.fixture(scope="module")
def read(spark, bus):
    register(spark)

    def load(topic, **options):
        reader = spark.read.format("pluribus").option("url", url_of(bus)).option("topic", topic)
        return reader.options(**options).load()

    return load


def test_envelope_and_bytes(read, bus):
    table = read("raw/#")
    rows = table.orderBy("topic", "offset").collect()
    assert [(row.topic, row.offset, bytes(row.body)) for row in rows[:3]] == [
        ("raw/a", 0, b"0"),
        ("raw/a", 1, b"1"),
        ("raw/a", 2, b"2"),
    ]
    assert len(rows) == 101 and rows[-1].headers == {"from": "test"} and rows[0].headers is None
    (event,) = bus.log("raw/b").read().events()
    assert tuple(rows[-1].id) == event.id and rows[-1].sender == event.sender and rows[-1].parent is None
    now = datetime.datetime.now()
    assert abs((now - rows[0].time.replace(tzinfo=None)).total_seconds()) < 86_400


def test_fields_of_a_type_become_columns(read):
    rows = read("stocks/all", type=TYPE).orderBy("offset").collect()
    assert len(rows) == COUNT
    assert (rows[7].symbol, rows[7].price, rows[7].amount, rows[7].tags) == ("s7", 1.75, 7, ["x"])
    some = read("stocks/all", fields="price double, symbol string", columns="symbol,price,offset")
    assert some.columns == ["symbol", "price", "offset"]
    assert some.agg({"price": "sum"}).first()[0] == sum(n / 4 for n in range(COUNT))


def test_only_the_envelope_is_read_without_bodies(read):
    assert read("stocks/all", columns="offset,time").count() == COUNT


def test_conditions_reach_the_keepers(read):
    table = read("stocks/all", type=TYPE)
    found = table.where("price > 100 AND symbol IN ('s1', 's2') AND amount < 500")
    expected = [n for n in range(COUNT) if n / 4 > 100 and n % 10 in (1, 2) and n < 500]
    assert [row.amount for row in found.orderBy("offset").collect()] == expected
    by_option = read("stocks/all", type=TYPE, where="price BETWEEN 10 AND 11 OR symbol = 's3'")
    assert by_option.count() == sum(10 <= n / 4 <= 11 or n % 10 == 3 for n in range(COUNT))


CONDITIONS = (
    "v > 1",
    "v >= 1",
    "v < 2",
    "v <= 1",
    "v = 1",
    "v IN (1, 2)",
    "v IS NULL",
    "v IS NOT NULL",
    "v > 1 AND v IS NOT NULL AND n < 6",
    "v = double('NaN')",
    "v > double('Infinity')",
    "NOT v > 1",
    "n > 2 AND n IS NOT NULL",
    "n IS NULL",
)


@pytest.fixture
def pushing(spark):
    """As one who turns push-down on."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.set(PUSHDOWN, "false")


def offsets_where(read, conditions):
    """By condition. A table each: see ``PushingReader``."""
    tables = [read("nan", fields="v double, n bigint").where(text) for text in conditions]
    parts = [table.select(F.lit(text).alias("text"), "offset") for text, table in zip(conditions, tables, strict=True)]
    found = reduce(DataFrame.union, parts).collect()
    return {text: sorted(row.offset for row in found if row.text == text) for text in conditions}


def test_keepers_and_spark_agree_on_conditions_also_on_nan(spark, bus, read, pushing):
    values = [1, 1.0, 1.5, 2, math.nan, math.inf, -math.inf, None]
    events = [{"v": value, "n": number} for number, value in enumerate(values)]
    bus.durable.publish_many([("nan", event) for event in [*events, {"n": None}, {"v": 3}]])
    pushed = offsets_where(read, CONDITIONS)
    spark.conf.set(PUSHDOWN, "false")
    assert pushed == offsets_where(read, CONDITIONS)
    assert pushed["v > 1"] == [2, 3, 4, 5, 9] and pushed["v IS NULL"] == [7, 8]


def test_conditions_are_applied_by_the_keepers_where_that_is_on(read, pushing):
    """Poison that a condition leaves out is never seen; where Spark looks at the condition itself, it is."""
    assert read("mixed", fields="price double").where("price < 100").count() == 1


def test_one_table_has_all_its_rows_whatever_was_asked_of_it_before(spark, read):
    """In a plain session, where Spark pushes nothing down."""
    assert spark.conf.get(PUSHDOWN) == "false"
    table = read("stocks/all", type=TYPE)
    low, high = table.where("amount < 10"), table.where("amount >= 995")
    assert sorted(row.amount for row in low.union(high).collect()) == [*range(10), *range(995, COUNT)]
    assert (low.count(), high.count(), table.count()) == (10, 5, COUNT)
    with pytest.raises(PySparkException, match="is poison"):
        read("mixed", fields="price double").where("price < 100").count()


def test_from_here_to_there(read, bus):
    assert read("stocks/all", start="990").count() == 10
    assert read("stocks/all", start="10", stop="20", columns="offset").count() == 10
    assert read("stocks/all", start="latest").count() == 0
    assert read("stocks/all", start="2020-01-01T00:00:00", columns="offset").count() == COUNT
    assert read("stocks/all", start="2100-01-01", columns="offset").count() == 0


def test_poison_is_set_aside_with_its_reason(read):
    rows = read("mixed", fields="price double", poison="aside").orderBy("offset").collect()
    assert [row.price for row in rows] == [1.5, None, None, None]
    assert [row.reason is None for row in rows] == [True, False, False, False]
    assert "does not decode" in rows[1].reason and bytes(rows[1].body) == b"\xc1"
    assert "price double" in rows[2].reason and "no fields" in rows[3].reason
    assert rows[0].body is None
    assert read("mixed", fields="price double", poison="skip").count() == 1
    with pytest.raises(PySparkException, match="event 1 of 'mixed' is poison"):
        read("mixed", fields="price double").collect()


@pytest.mark.parametrize(
    ("topic", "options", "said"),
    [
        ("nowhere", {}, "there is no durable topic 'nowhere'"),
        ("raw/a", {"start": "yesterday"}, "is no place"),
        ("raw/a", {"gaps": "jump"}, "is none of fail, skip"),
        ("raw/a", {"color": "red"}, "there is no option 'color'"),
        ("raw/a", {"where": "price >"}, "filter"),
        ("raw/a", {"type": "tests.pipeline.prices:Cost"}, "there is no type"),
        ("raw/a", {"columns": "price"}, "there is no column 'price'"),
        ("raw/a", {"start": "5000"}, "beyond its end"),
    ],
)
def test_what_cannot_be_read_is_said(read, topic, options, said):
    with pytest.raises(PySparkException, match=said):
        read(topic, **options).collect()


def test_a_stream_takes_no_more_than_it_is_admitted(spark, bus, read, tmp_path):
    stream = spark.readStream.format("pluribus").options(url=url_of(bus), topic="stocks/all", start="earliest")
    query = (
        stream.options(rows="300", columns="offset")
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == [300, 300, 300, 100]
    offsets = [row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(offsets) == list(range(COUNT))


def test_what_retention_removed_fails_or_is_skipped(spark, read, bus):
    for _ in range(8):
        bus.durable.publish_many([("short", b"x" * 1000) for _ in range(1_000)])
    bus.durable.retain("short", size=1_000_000)
    log = bus.log("short")
    while log.offsets()[0] == 0:
        bus.durable.publish_many([("short", b"y")])
    first, end = log.offsets()
    assert read("short", start="0", gaps="skip", columns="offset").count() == end - first
    with pytest.raises(PySparkException, match=r"removed by retention.*gaps='skip'"):
        read("short", start="0", columns="offset").collect()


def test_a_log_that_was_replaced_is_not_read_on(spark, tmp_path):
    """A checkpoint stands at 1,000; the new log has 1,200 events, of which none was read."""

    def run(bus, **options):
        stream = spark.readStream.format("pluribus").options(url=url_of(bus), topic="t", start="earliest", **options)
        writer = stream.option("columns", "offset").load().writeStream.format("parquet")
        folders = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
        writer.options(**folders).trigger(availableNow=True).start().awaitTermination(100)
        return spark.read.parquet(str(tmp_path / "out")).count()

    register(spark)
    with pluribus.sync.connect("inproc://replaced", store=":memory:", serve="127.0.0.1:0") as bus:
        bus.durable.publish_many([("t", b"old") for _ in range(1_000)])
        assert run(bus) == 1_000
    with pluribus.sync.connect("inproc://replaced", store=":memory:", serve="127.0.0.1:0") as bus:
        bus.durable.publish_many([("t", b"new") for _ in range(1_200)])
        with pytest.raises(PySparkException, match=r"the keepers have another log .*begin with a new checkpoint"):
            run(bus)
        assert run(bus, gaps="skip") == 2_200
