"""One filter, the same events, everywhere: predicate, index, SQLite and PostgreSQL, against the oracle.

Spark is held to the same oracle in ``test_spark.py``, where its session lives.
"""

import json
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadFilter
from pluribus.filters import Filter, parse
from pluribus.filters.events import document
from pluribus.filters.index import Index
from pluribus.filters.sql import where
from pluribus.filters.sqlite import add_functions
from pluribus.filters.tree import Not
from tests.filters.oracle import evaluate
from tests.filters.pages import BESIDE_COMPUTED, UNKNOWN
from tests.filters.strategies import events, trees


@pytest.fixture(scope="module")
def databases(postgres_server):
    psycopg = pytest.importorskip("psycopg")
    sqlite = sqlite3.connect(":memory:")
    add_functions(sqlite)
    with psycopg.connect(postgres_server, autocommit=True) as postgres:
        yield {"sqlite": sqlite, "postgres": postgres}
    sqlite.close()


SOURCES = {
    "sqlite": "(SELECT key AS number, value AS body FROM json_each(?))",
    "postgres": "(SELECT n - 1 AS number, body FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS e (body, n)) e",
}


def selected(connection, dialect, tree, seen):
    clause = where(tree, dialect, document="body")
    query = f"SELECT number FROM {SOURCES[dialect]} WHERE {clause.text} ORDER BY number"
    stored = json.dumps([document(event) for event in seen], ensure_ascii=False)
    return [int(number) for (number,) in connection.execute(query, (stored, *clause.parameters))]


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(trees, min_size=1, max_size=4), st.lists(events(), min_size=1, max_size=6))
def test_all_select_the_same_events(databases, made, seen):
    index = Index()
    for key, tree in enumerate(made):
        index.add(key, Filter(tree))
    indexed = index.match(seen)
    for key, tree in enumerate(made):
        expected = [number for number, event in enumerate(seen) if evaluate(tree, event) is True]
        predicate = Filter(tree).predicate()
        assert [number for number, event in enumerate(seen) if predicate(event)] == expected
        assert [number for number, keys in enumerate(indexed) if key in keys] == expected
        for dialect, connection in databases.items():
            assert selected(connection, dialect, tree, seen) == expected, dialect


@pytest.mark.parametrize(("text", "event", "truth"), [*BESIDE_COMPUTED, *UNKNOWN])
def test_what_the_page_says_is_so_everywhere(databases, text, event, truth):
    found = parse(text)
    assert parse(str(found)) == found
    assert found.truth(event) is truth is evaluate(found.tree, event)
    for tree, expected in ((found.tree, truth is True), (Not(found.tree), truth is False)):
        index = Index()
        index.add("key", Filter(tree))
        assert index.match([event]) == [["key"] if expected else []]
        for dialect, connection in databases.items():
            assert selected(connection, dialect, tree, [event]) == ([0] if expected else []), dialect


@pytest.mark.parametrize("text", ["price + 1 IS UNKNOWN", "price > 1 AND price IS UNKNOWN", "LOWER(s) IS NOT UNKNOWN"])
def test_only_conditions_are_unknown(text):
    with pytest.raises(BadFilter, match="IS UNKNOWN"):
        parse(text)
