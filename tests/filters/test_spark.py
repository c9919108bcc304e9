"""The Spark column against the oracle. Queries over local rows, which start no job."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pluribus.filters import parse
from pluribus.filters.spark import column
from tests.filters.oracle import NOW, evaluate
from tests.filters.pages import BESIDE_COMPUTED, UNKNOWN
from tests.filters.strategies import moments, number_values, text_values, trees

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def spark(spark):
    """Settings of this module alone, in the session of all tests."""
    session = spark.newSession()
    session.conf.set("spark.sql.maxMetadataStringLength", "1000")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


SCHEMA = (
    "n long, m double, s string, u string, b boolean, c boolean, x long, y long, t double, "
    "deep struct<n: double, er: struct<s: string>>, place struct<lat: double, lon: double>"
)
ODD_SCHEMA = (
    "n string, m long, s long, u string, b string, c boolean, x string, y string, t long, "
    "deep struct<n: int>, place struct<lat: double>"
)
whole = st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**62 + 1])
doubles = number_values.map(float)


def rows(**kinds):
    return st.fixed_dictionaries({name: st.none() | values for name, values in kinds.items()})


ordinary = rows(
    n=whole,
    m=doubles,
    s=text_values,
    u=text_values,
    b=st.booleans(),
    c=st.booleans(),
    x=whole,
    y=whole,
    t=moments.map(float),
    deep=rows(n=doubles, er=rows(s=text_values)),
    place=rows(lat=st.sampled_from([0.0, 51.5, 51.501, 89.0, 91.0]), lon=st.sampled_from([0.0, -0.125, 10.0, 179.5])),
)
odd = rows(
    n=text_values,
    m=whole,
    s=whole,
    u=text_values,
    b=text_values,
    c=st.booleans(),
    x=text_values,
    y=text_values,
    t=st.integers(-(10**9), 10**9),
    deep=rows(n=st.integers(-3, 3)),
    place=rows(lat=st.just(0.0)),
)


def answers(spark, made, seen, chosen, **options):
    frame = spark.createDataFrame(seen, chosen)
    columns = [column(tree, frame.schema, now=NOW, **options).alias(f"a{at}") for at, tree in enumerate(made)]
    return [list(row) for row in frame.select(*columns).collect()]


def check(spark, made, seen, chosen):
    frame = spark.createDataFrame(seen, chosen)
    both = [column(tree, frame.schema, now=NOW, three_valued=exact) for tree in made for exact in (True, False)]
    found = frame.select(*(each.alias(f"a{at}") for at, each in enumerate(both))).collect()
    for event, row in zip(seen, found, strict=True):
        for at, tree in enumerate(made):
            expected = evaluate(tree, event)
            assert row[2 * at] is expected, (tree, event)
            assert (row[2 * at + 1] is True) is (expected is True), (tree, event)


relaxed = settings(max_examples=3, suppress_health_check=list(HealthCheck))
several = st.lists(trees, min_size=12, max_size=15)


@relaxed
@given(several, st.lists(ordinary, min_size=10, max_size=20))
def test_spark_gives_the_answers_of_the_books(spark, made, seen):
    check(spark, made, seen, SCHEMA)


@relaxed
@given(several, st.lists(odd, min_size=10, max_size=20))
def test_columns_of_other_types_are_unknown(spark, made, seen):
    check(spark, made, seen, ODD_SCHEMA)


def test_not_a_number_is_null(spark):
    made = [
        parse(words).tree for words in ("m > 1", "m < 1", "m = m", "m IS NULL", "m + 1 > 0", "m IN (1)", "NOT m > 1")
    ]
    found = answers(spark, made, [{"m": float("nan")}], "m double", three_valued=True)
    assert found == [[None, None, None, True, None, None, None]]
    assert answers(spark, made, [{"m": float("nan")}], "m double") == [[False, False, None, True, None, None, False]]


def test_times_decimals_floats_and_maps(spark):
    moment = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    row = {"at": moment, "day": date(2026, 1, 31), "d": Decimal("0.1"), "f": 0.5, "more": {"x": "y"}}
    conditions = [
        "at = TIMESTAMP '2026-01-31T12:30:00Z'",
        "HOUR(at) = 12 AND MINUTE(at) = 30 AND WEEKDAY(at) = 6 AND YEAR(at) = 2026",
        "day = DATE '2026-01-31' AND day < NOW() + 1e9",
        "d = 0.1",
        "f = 0.5",
        "more.x = 'y' AND more.z IS NULL AND nothing IS NULL",
    ]
    schema = "at timestamp, day date, d decimal(10,2), f float, more map<string,string>"
    assert answers(spark, [parse(words).tree for words in conditions], [row], schema) == [[True] * len(conditions)]


def test_a_comparison_reaches_the_files(spark, tmp_path):
    """The point of not caring about unknown: Spark can skip files by what they hold."""
    path = str(tmp_path / "ticks")
    spark.createDataFrame([{"price": 1.5, "n": 3}], "price double, n long").write.parquet(path)
    frame = spark.read.parquet(path)
    kept = frame.where(column(parse("price > 1 AND n <= 3 AND NOT price > 7").tree, frame.schema))
    plan = kept._jdf.queryExecution().executedPlan().toString()
    for pushed in ("GreaterThan(price,1.0)", "LessThanOrEqual(n,3)", "LessThanOrEqual(price,7.0)"):
        assert pushed in plan
    assert kept.count() == 1


@pytest.mark.parametrize("schema", ["n long, m long, b boolean", "n long, m double, b boolean"])
def test_what_the_page_says_is_so_in_spark(spark, schema):
    cases = [case for case in (*BESIDE_COMPUTED, *UNKNOWN) if all(_fits(case[1], name) for name in "nmb")]
    rows = [{name: event.get(name) for name in "nmb"} for _, event, _ in cases]
    for row in rows:
        if "double" in schema and row["m"] is not None:
            row["m"] = float(row["m"])
    found = answers(spark, [parse(text).tree for text, _, _ in cases], rows, schema, three_valued=True)
    for at, (text, event, truth) in enumerate(cases):
        assert found[at][at] is truth, (text, event)


def _fits(event, name):
    kinds = {"n": int, "m": int, "b": bool}
    return event.get(name) is None or type(event[name]) is kinds[name]


def test_a_column_of_texts_is_unknown_as_a_condition(spark):
    found = answers(spark, [parse("b IS UNKNOWN").tree, parse("b IS NULL").tree], [{"b": "odd"}], "b string")
    assert found == [[True, False]]


def test_dates_of_any_year_are_seconds(spark):
    row = {"day": date(9999, 12, 31)}
    found = answers(spark, [parse("day = DATE '9999-12-31' AND day + 1 > day").tree], [row], "day date")
    assert found == [[True]]
