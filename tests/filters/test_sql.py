"""The WHERE clause against the oracle, in SQLite and in a real PostgreSQL."""

import json
import sqlite3

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadInput
from pluribus.filters import parse
from pluribus.filters.events import document
from pluribus.filters.index import Index
from pluribus.filters.sql import Column, where
from pluribus.filters.sqlite import add_functions
from pluribus.filters.tree import Call, Compare, Field, Kind, Or, walk
from tests.filters.oracle import NOW, evaluate
from tests.filters.strategies import constant, events, trees

some_events = st.lists(events(), min_size=1, max_size=4)
times = st.sampled_from(["<", ">"]).map(lambda operator: Compare(operator, Field(("t",), Kind.NUMBER), Call("NOW", ())))
with_times = st.one_of(trees, trees, st.builds(lambda *terms: Or(terms), trees, times))


@pytest.fixture(scope="module")
def sqlite():
    connection = sqlite3.connect(":memory:")
    add_functions(connection)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def postgres(postgres_server):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        yield connection


def stored(event):
    return json.dumps(document(event), ensure_ascii=False)


def truths(rows):
    return [None if answer is None else bool(answer) for (answer,) in rows]


@settings(max_examples=150)
@given(with_times, some_events)
def test_sqlite_gives_the_answers_of_the_books(sqlite, tree, seen):
    clause = where(tree, "sqlite", document="the body", now=NOW)
    query = f'SELECT {clause.text} FROM (SELECT ? AS "the body")'
    for event in seen:
        assert truths(sqlite.execute(query, (*clause.parameters, stored(event)))) == [evaluate(tree, event)]


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(with_times, some_events)
def test_postgres_gives_the_answers_of_the_books(postgres, tree, seen):
    clause = where(tree, "postgres", document="body", now=NOW)
    query = f"SELECT {clause.text} FROM (SELECT %s::jsonb AS body) AS row"
    for event in seen:
        assert truths(postgres.execute(query, (*clause.parameters, stored(event)))) == [evaluate(tree, event)]


# --- columns of their own -------------------------------------------------------------------------------------------

COLUMNS = {
    "n": Column("whole", Kind.NUMBER, exact=True),
    "m": Column("real", Kind.NUMBER),
    "s": Column("words", Kind.TEXT),
    "b": Column("truth", Kind.BOOLEAN),
}
WHOLE = st.none() | st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**62 + 1, -(2**63)])
REAL = st.none() | st.sampled_from([0.5, -1.0, 2.0, 9_007_199_254_740_992.0, 1e300])
rows = st.fixed_dictionaries(
    {"n": WHOLE, "m": REAL, "s": st.none() | st.sampled_from(["", "a", "ab", "Z", "ä"]), "b": st.none() | st.booleans()}
)
beside = st.builds(
    lambda operator, name, value: Compare(operator, Field((name,), Kind.NUMBER), constant(value)),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.sampled_from("nm"),
    st.sampled_from([2**53, 2**53 + 1, 2**62 + 1, 2**63, 1e300, 0.5, 2]),
)
mixed = st.one_of(trees, beside)


def in_order(row):
    return [row[name] for name in "nmsb"]


def mixes_exact_and_rounded(tree):
    """A whole column beside a real one is compared in doubles in PostgreSQL, as its own rule is."""
    pairs = [
        {tuple(side.path) for side in (node.left, node.right) if isinstance(side, Field)}
        for node in walk(tree)
        if isinstance(node, Compare)
    ]
    return any({("n",), ("m",)} <= pair for pair in pairs)


@settings(max_examples=100)
@given(mixed, rows, events())
def test_fields_may_have_columns_of_their_own_in_sqlite(sqlite, tree, row, event):
    clause = where(tree, "sqlite", document="body", columns=COLUMNS, now=NOW)
    query = f"SELECT {clause.text} FROM (SELECT ? AS body, ? AS whole, ? AS real, ? AS words, ? AS truth)"
    answer = sqlite.execute(query, (*clause.parameters, stored({**event, "n": 1}), *in_order(row)))
    assert truths(answer) == [evaluate(tree, {**event, **row})]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(mixed, rows, events())
def test_fields_may_have_columns_of_their_own_in_postgres(postgres, tree, row, event):
    if mixes_exact_and_rounded(tree):
        return
    clause = where(tree, "postgres", document="body", columns=COLUMNS, now=NOW)
    inner = "%s::jsonb AS body, %s::bigint AS whole, %s::float8 AS real, %s::text AS words, %s::boolean AS truth"
    query = f"SELECT {clause.text} FROM (SELECT {inner}) AS row"
    answer = postgres.execute(query, (*clause.parameters, stored({**event, "n": 1}), *in_order(row)))
    assert truths(answer) == [evaluate(tree, {**event, **row})]


def test_not_a_number_in_a_column_is_null(postgres):
    for words, expected in (("m > 1", None), ("m = m", None), ("m IS NULL", True), ("m + 1 > 0", None)):
        clause = where(parse(words).tree, "postgres", columns=COLUMNS)
        query = f"SELECT {clause.text} FROM (SELECT 'NaN'::float8 AS real) AS row"
        assert truths(postgres.execute(query, clause.parameters)) == [expected], words


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_names_and_texts_cannot_break_out(sqlite, postgres):
    nasty = "x'); DROP TABLE t; -- %s ? {}"
    for dialect, connection, form in (("sqlite", sqlite, "?"), ("postgres", postgres, "%s::jsonb")):
        tree = parse(f'"{nasty}" = \'{nasty.replace(chr(39), chr(39) * 2)}\' AND "{nasty}"."{{a,b}}" IS NULL').tree
        clause = where(tree, dialect, document="body")
        query = f"SELECT {clause.text} FROM (SELECT {form} AS body) AS row"
        answer = connection.execute(query, (*clause.parameters, stored({nasty: nasty}))).fetchone()
        assert bool(answer[0]) is True
        assert "DROP" not in clause.text


def test_hostile_numbers_raise_in_no_database(sqlite, postgres):
    """What overflows in PostgreSQL is unknown, as everywhere."""
    words = "a * a * a * a * a / b > 1 OR a / (b - b) > 1 OR ABS(a * b) < 1"
    for event in ({"a": 1e300, "b": 1e-300}, {"a": 1e30, "b": 1e-30}, {"a": 1e-30, "b": 1e30}, {"a": 0, "b": 0}):
        for dialect, connection, form in (("sqlite", sqlite, "?"), ("postgres", postgres, "%s::jsonb")):
            clause = where(parse(words).tree, dialect, document="body")
            query = f"SELECT {clause.text} FROM (SELECT {form} AS body) AS row"
            assert truths(connection.execute(query, (*clause.parameters, stored(event)))) == [parse(words).truth(event)]


def test_times_and_places_out_of_range_raise_in_no_database(postgres):
    for words in ("YEAR(t) = 1", "WEEKDAY(t) > 1", "DISTANCE(t, t, 0, 0) > 1", "DISTANCE(0, 0, t, t) > 1"):
        clause = where(parse(words).tree, "postgres", document="body")
        for time in (1e12, -1e12, 1e29, -62_135_596_801, 91, 180.5):
            query = f"SELECT {clause.text} FROM (SELECT %s::jsonb AS body) AS row"
            expected = parse(words).truth({"t": time})
            assert truths(postgres.execute(query, (*clause.parameters, stored({"t": time})))) == [expected], (
                words,
                time,
            )


def test_what_cannot_be_written_is_refused():
    with pytest.raises(BadInput, match="no dialect 'oracle'"):
        where(parse("a = 1").tree, "oracle")
    with pytest.raises(BadInput, match=r"no column for the field a\.b: there are n, m, s, b"):
        where(parse("a.b = 1").tree, "sqlite", columns=COLUMNS)
    with pytest.raises(BadInput, match="give now="):
        where(parse("a > NOW()").tree, "postgres", document="body")


def test_a_column_can_use_its_index(sqlite):
    """Nothing is wrapped around a column that a plain index would be for."""
    sqlite.execute("CREATE TABLE IF NOT EXISTS messages (priority INTEGER, region TEXT)")
    sqlite.execute("CREATE INDEX IF NOT EXISTS by_priority ON messages (priority)")
    columns = {"priority": Column("priority", Kind.NUMBER, exact=True), "region": Column("region", Kind.TEXT)}
    clause = where(parse("priority > 5 AND region = 'eu'").tree, "sqlite", columns=columns)
    plan = sqlite.execute(
        f"EXPLAIN QUERY PLAN SELECT * FROM messages WHERE {clause.text}", clause.parameters
    ).fetchall()
    assert "by_priority" in str(plan)


@pytest.mark.parametrize(
    ("words", "value", "expected"),
    [
        ("x = 18446744073709551615", 2**64 - 1, True),
        ("x IN (18446744073709551615, 5)", 2**64 - 1, True),
        ("x < 18446744073709551615", 2**64 - 1, False),
        ("x = 1e20", 10**20 + 1, True),
        ("x = 9223372036854775807", 2**63 - 1, True),
        ("x = 9223372036854775807", 2**63, False),
        ("x > 9223372036854775807", 2**63, True),
        ("x = -9223372036854775808", -(2**63), True),
        ("x > 1e300 AND y + 1 < x", 10**400, True),
        ("y + 1 > x", -(10**400), True),
        ("ABS(x) IN (9007199254740993)", 2**53, False),
        ("ABS(x) IN (9007199254740992)", 2**53 + 1, True),
    ],
)
def test_numbers_beyond_64_bits_are_doubles_everywhere(sqlite, words, value, expected):
    condition, event = parse(words), {"x": value, "y": 1}
    assert condition.matches(event) is condition.matches(msgspec.defstruct("E", ["x", "y"])(value, 1)) is expected
    index = Index()
    index.add("it", condition)
    assert index.match([event, {"x": "text"}]) == [["it"] * expected, []]
    clause = where(condition.tree, "sqlite", document="body")
    query = f"SELECT {clause.text} FROM (SELECT ? AS body)"
    assert truths(sqlite.execute(query, (*clause.parameters, stored(event)))) == [expected]
