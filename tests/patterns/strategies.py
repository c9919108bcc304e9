"""Texts of patterns and streams of events: few variables, values and times, so that much matches."""

from hypothesis import strategies as st

VARIABLES = "ABC"
CONDITIONS = [
    "x > 1",
    "x < 2",
    "x = 2",
    "s = 'a'",
    "x > PREV(x)",
    "x < PREV(x)",
    "x <> PREV(x, 2)",
    "NOT x < PREV(x) OR s IS NULL",
    "x > A.x",
    "x >= LAST(B.x, 1)",
    "s = FIRST(A.s)",
    "x > FIRST(x)",
    "x < LAST(x, 1)",
    "COUNT(*) < 4",
    "COUNT(A.*) <= 2",
    "COUNT(B.s) < 3",
    "SUM(A.x) < 5",
    "AVG(x) >= 1",
    "x >= MAX(B.x)",
    "x <= MIN(U.x) + 1",
    "PREV(FIRST(A.x)) IS NULL OR x > PREV(LAST(A.x), 1)",
    "t - FIRST(t) < 5",
    "U.x > 0 AND COUNT(U.*) < 5",
]
MEASURES = [
    "x AS last_x",
    "FIRST(t) AS began",
    "LAST(t) AS ended",
    "A.x AS a",
    "LAST(B.x, 1) AS b",
    "FIRST(C.s) AS c",
    "COUNT(*) AS count",
    "COUNT(A.*) AS as",
    "SUM(x) AS total",
    "AVG(U.x) AS mean",
    "MIN(B.x) AS least",
    "MAX(x) - MIN(x) AS span",
    "PREV(FIRST(x)) AS before",
    "CLASSIFIER() AS variable",
    "MATCH_NUMBER() AS number",
    "FINAL LAST(x) AS final_x",
    "x > 1 AS large",
]
SKIPS = ["", "PAST LAST ROW", "TO NEXT ROW", "TO FIRST A", "TO LAST B", "TO C"]
QUANTIFIERS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}"]

variables = st.sampled_from(VARIABLES)


@st.composite
def quantified(draw, inner):
    part, sign = draw(inner), draw(st.sampled_from(QUANTIFIERS))
    return f"({part}){sign}{draw(st.sampled_from(['', '?'])) if sign else ''}"


def row_patterns():
    return st.recursive(
        variables,
        lambda inner: (
            quantified(inner)
            | st.lists(inner, min_size=2, max_size=3).map(" ".join)
            | st.lists(inner, min_size=2, max_size=3).map(lambda choices: f"({' | '.join(choices)})")
            | st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"PERMUTE({', '.join(parts)})")
        ),
        max_leaves=5,
    )


WITHIN = ["WITHIN INTERVAL '4' SECOND", "WITHIN 5 ROWS", "WITHIN INTERVAL '6' SECOND AND 6 ROWS"]


@st.composite
def texts(draw, partitioned=True):
    measures = draw(st.lists(st.sampled_from(MEASURES), min_size=1, max_size=4, unique=True))
    skip = draw(st.sampled_from(SKIPS))
    define = draw(st.dictionaries(variables, st.sampled_from(CONDITIONS), min_size=1))
    # A, B and C are all somewhere, so that conditions may name them.
    rows = f"({draw(row_patterns())}) A? B?? C?"
    clauses = [
        "PARTITION BY k" if partitioned else "",
        "ORDER BY t, i",
        f"MEASURES {', '.join(measures)}",
        draw(st.sampled_from(["", "ONE ROW PER MATCH", "ALL ROWS PER MATCH"])),
        f"AFTER MATCH SKIP {skip}" if skip else "",
        f"PATTERN ({rows})",
        draw(st.sampled_from(WITHIN)),
        "SUBSET U = (A, B)",
        "DEFINE " + ", ".join(f"{name} AS {condition}" for name, condition in sorted(define.items())),
    ]
    return "\n".join(clause for clause in clauses if clause)


@st.composite
def streams(draw, size_max=24, gap_max=2):
    """Events in the order of their times; ``i`` tells those of one time apart."""
    count = draw(st.sampled_from([0, 4, size_max // 2, size_max]))
    time, events = 0, []
    for number in range(count):
        time += draw(st.integers(0, gap_max))
        event = {"i": number, "t": time, "k": draw(st.sampled_from("pq")), "x": draw(st.integers(0, 3) | st.none())}
        event["s"] = draw(st.sampled_from(["a", "b", None]))
        events.append(event)
    return events
