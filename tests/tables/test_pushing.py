"""What is pushed down changes no answer: the same statements, with all rows and with those that were let through."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.filters import Filter
from pluribus.filters.packed import packed, unpacked
from pluribus.tables.database import Database
from pluribus.tables.statement import Statement

COLUMNS = {"queues": ("number", "priority", "state", "age_s", "key")}
MESSAGES = {"orders": ["region", "n"], "parcels": ["region", "n"]}

values = st.one_of(
    st.none(),
    st.sampled_from([0, 1, 2, -1, 2**53 + 1, 2**63 - 1, 1.5, float(2**53), -0.0, float("inf"), float("nan")]),
    st.sampled_from(["", "1", "eu", "EU", "us", "é", "2"]),
    st.booleans(),
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "priority": st.integers(0, 9),
            "state": st.sampled_from(["ready", "dead"]),
            "age_s": st.sampled_from([0.0, 0.5, 60.0, 61.25]),
            "key": st.sampled_from([None, "a", "b"]),
            "region": values,
            "n": values,
        }
    ),
    max_size=8,
)
constants = st.sampled_from(
    ["0", "1", "-1", "1.5", "9007199254740993", "9223372036854775808", "'eu'", "'1'", "''", "NULL"]
)
columns = st.sampled_from(["priority", "state", "age_s", "key", "region", "n", "number"])


def conditions(alias):
    column = columns.map(lambda name: f"{alias}{name}")
    simple = st.one_of(
        st.builds("{} {} {}".format, column, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "==", "IS"]), constants),
        st.builds("{} {} {}".format, constants, st.sampled_from(["=", "<", ">="]), column),
        st.builds("{} BETWEEN {} AND {}".format, column, constants, constants),
        st.builds("{} NOT BETWEEN {} AND {}".format, column, constants, constants),
        st.builds("{} {}IN ({}, {})".format, column, st.sampled_from(["", "NOT "]), constants, constants),
        st.builds("{} IS {}NULL".format, column, st.sampled_from(["", "NOT "])),
        st.builds("{} LIKE 'E%'".format, column),
        st.builds("{} = 'eu' COLLATE NOCASE".format, column),
        st.builds("{} + 1 > {}".format, column, constants),
    )
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=4,
    )


joins = st.sampled_from(["JOIN", "LEFT JOIN", "CROSS JOIN", "RIGHT JOIN", "FULL JOIN"])
statements = st.one_of(
    st.builds("SELECT number, region FROM orders WHERE {}".format, conditions("")),
    st.builds("SELECT upper(region) AS r, count(*) FROM orders WHERE {} GROUP BY r".format, conditions("orders.")),
    st.builds(
        "SELECT o.number, p.number FROM orders o {} parcels p ON o.key = p.key WHERE {} AND {}".format,
        joins,
        conditions("o."),
        conditions("p."),
    ),
    st.builds(
        "SELECT number FROM orders WHERE {} UNION ALL SELECT number FROM orders WHERE {}".format,
        conditions(""),
        conditions(""),
    ),
    st.builds(
        "SELECT o.number FROM orders o WHERE {} AND EXISTS (SELECT 1 FROM parcels p WHERE p.key = o.key AND {})".format,
        conditions("o."),
        conditions("p."),
    ),
    st.builds(
        "WITH a AS (SELECT key, n FROM orders WHERE {}) SELECT a.key, o.number FROM a LEFT JOIN orders o"
        " ON o.key = a.key WHERE {}".format,
        conditions(""),
        conditions("o."),
    ),
)


def answered(statement, tables, push_down):
    database = Database(lambda: False)
    try:
        read = Statement(statement, {}, COLUMNS)
        read.prepare(database)
        left = 0
        for wanted in read.tables.values():
            let = None
            if push_down and wanted.condition is not None:
                let = unpacked(packed(Filter(wanted.condition))).predicate()
            found = [row for row in tables[wanted.name[1]] if let is None or let(row)]
            left += len(found)
            database.insert(wanted.name, wanted.columns, [[row[name] for name in wanted.columns] for row in found])
        return sorted(database.select(read.text, 10_000)[1], key=repr), left
    finally:
        database.close()


@settings(deadline=None, max_examples=120)
@given(statements, rows, rows)
def test_what_is_pushed_down_changes_no_answer(statement, orders, parcels):
    tables = {
        name: [{"number": at, **row} for at, row in enumerate(rows)]
        for name, rows in (("orders", orders), ("parcels", parcels))
    }
    assert answered(statement, tables, True)[0] == answered(statement, tables, False)[0]


def test_what_cannot_match_is_not_copied():
    orders = [
        {"number": at, "priority": at, "state": "ready", "age_s": 10.0 * at, "key": None, "region": "eu", "n": at}
        for at in range(10)
    ]
    tables = {"orders": orders, "parcels": []}
    for statement, copied in [
        ("SELECT count(*) FROM orders WHERE age_s > 60", 3),
        ("SELECT region FROM orders WHERE n IN (1, 2) OR 9 = n", 3),
        ("SELECT region FROM orders o WHERE o.n BETWEEN 2 AND 4 AND upper(region) = 'EU'", 3),
        ("SELECT region FROM orders WHERE upper(region) = 'EU'", 10),
        ("SELECT a.n FROM orders a JOIN orders b ON a.n = b.n WHERE a.n = 1 AND b.n = 2", 2),
        ("SELECT a.n FROM orders a JOIN orders b ON a.n = b.n WHERE a.n = 1", 10),
    ]:
        assert answered(statement, tables, True)[1] == copied, statement
