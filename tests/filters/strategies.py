"""Trees and events for all tests of filters: few names and values, so that much matches, and the odd great number."""

from hypothesis import strategies as st

from pluribus.filters.normal import fold
from pluribus.filters.numbers import FACTORS_MAX, factors
from pluribus.filters.tree import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Call,
    Compare,
    Constant,
    Field,
    In,
    IsNull,
    IsTruth,
    Kind,
    Like,
    Not,
    Or,
)

NUMBERS = [("n",), ("m",), ("deep", "n")]
TEXTS = [("s",), ("u",), ("deep", "er", "s")]
TRUTHS = [("b",), ("c",)]
OPEN = [("x",), ("y",)]
PLACES = [("place", "lat"), ("place", "lon")]
TIMES = [("t",)]

number_values = (
    st.integers(-3, 3)
    | st.sampled_from([0.5, -0.5, 1.5, 2.25, 0.1, 1e-31, 1e31, 1e300, -1e300])
    | st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**62 + 1, -(2**53) - 1, 9_223_372_036_854_775_807])
    | st.floats(-10, 10, allow_subnormal=False)
)
text_values = st.sampled_from(["", "a", "A", "ab", "aB", "b%", "a_b", "ä", "😀b", "it's", "a\\b", "*[?]", "Z", "a\nb"])
moments = st.integers(-(10**9), 4 * 10**9) | st.floats(0, 2e9) | st.sampled_from([-1, 86399.999, 1e12, -1e12])


def constant(value):
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, str):
        return Constant(value, Kind.TEXT)
    return Constant(int(value) if value == int(value) else value, Kind.NUMBER)


number_fields = st.sampled_from([Field(path, Kind.NUMBER) for path in NUMBERS])
text_fields = st.sampled_from([Field(path, Kind.TEXT) for path in TEXTS])
truth_fields = st.sampled_from([Field(path, Kind.BOOLEAN) for path in TRUTHS])
open_fields = st.sampled_from([Field(path) for path in OPEN])
time_fields = st.just(Field(TIMES[0], Kind.NUMBER))
number_constants = number_values.map(constant)
small_constants = st.integers(-3, 3).map(constant) | st.sampled_from([0.5, 0.1]).map(constant)
text_constants = text_values.map(constant)

arithmetic = st.recursive(
    number_fields | small_constants,
    lambda inner: (
        st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner)
        | st.builds(lambda name, value: Call(name, (value,)), st.sampled_from(["ABS", "FLOOR"]), inner)
    ),
    max_leaves=4,
).filter(lambda node: factors(node) <= FACTORS_MAX)
calendar = st.builds(
    lambda part, time: Call(part, (time,)),
    st.sampled_from(["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "WEEKDAY"]),
    time_fields,
)
number_terms = number_fields | arithmetic | text_fields.map(lambda text: Call("LENGTH", (text,)))
text_terms = text_fields | st.builds(
    lambda name, text: Call(name, (text,)), st.sampled_from(["LOWER", "UPPER"]), text_fields
)
comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
equalities = st.sampled_from(["=", "<>"])


@st.composite
def likes(draw):
    escape = draw(st.sampled_from(["", "!", "\\"]))
    parts = ["a", "B", "%", "_", "*", "[", "ä"] + ([escape + "%", escape + "_", escape + escape] if escape else [])
    pattern = "".join(draw(st.lists(st.sampled_from(parts), max_size=6)))
    return Like(draw(text_terms), constant(pattern), escape)


@st.composite
def distances(draw):
    """Not at the very edge: trigonometry differs in the last bits between libraries."""
    centre = draw(st.sampled_from([(0, 0), (51.5, -0.125), (89, 10), (-33.5, 179)]))
    here = Call("DISTANCE", (*(Field(path, Kind.NUMBER) for path in PLACES), *map(constant, centre)))
    return Compare(draw(st.sampled_from(["<=", ">"])), here, constant(draw(st.sampled_from([1, 1_000.5, 250_000]))))


leaves = st.one_of(
    st.builds(Compare, comparisons, number_fields, number_constants),
    st.builds(Compare, comparisons, number_terms, number_terms),
    st.builds(Compare, comparisons, number_constants, number_fields),
    st.builds(Compare, comparisons, number_terms, number_constants),
    st.builds(Compare, comparisons, number_constants, number_terms),
    st.builds(Compare, comparisons, text_terms, text_constants),
    st.builds(Compare, comparisons, text_fields, text_fields),
    st.builds(Compare, comparisons, open_fields, open_fields),
    st.builds(Compare, comparisons, calendar, st.integers(0, 31).map(constant)),
    st.builds(Compare, comparisons, time_fields, moments.map(constant)),
    st.builds(In, number_terms, st.lists(number_constants, min_size=1, max_size=3).map(tuple)),
    st.builds(In, text_terms, st.lists(text_constants, min_size=1, max_size=3).map(tuple)),
    st.builds(IsNull, number_fields | text_fields | truth_fields | open_fields | arithmetic),
    likes(),
    distances(),
    truth_fields,
)


def connected(inner):
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        several.map(And),
        several.map(Or),
        inner.map(Not),
        st.builds(IsTruth, inner, st.booleans()),
        st.builds(IsNull, inner),
        st.builds(Compare, equalities, inner, inner),
    )


trees = st.recursive(leaves, connected, max_leaves=6).map(fold)
"""Any filter, as the parser could have made it."""


def sometimes(values):
    return st.one_of(values, values, values, values, st.none(), st.just("odd"), st.just(7), st.just(True), st.just([1]))


@st.composite
def events(draw):
    """A mapping in which fields may be missing, null, or of another kind than filters expect."""
    event = {}
    latitudes, longitudes = (
        st.sampled_from([0, 51.5, 51.501, 89, -33, 91]),
        st.sampled_from([0, -0.125, 10, 179.5, -179.5]),
    )
    strategies = {
        **dict.fromkeys(NUMBERS, number_values),
        **dict.fromkeys(TEXTS, text_values),
        **dict.fromkeys(TRUTHS, st.booleans()),
        **dict.fromkeys(OPEN, number_values | text_values | st.booleans()),
        **dict.fromkeys(TIMES, moments),
        PLACES[0]: latitudes,
        PLACES[1]: longitudes,
    }
    for path, values in strategies.items():
        if draw(st.integers(0, 9)) == 0:
            continue
        place = event
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = draw(sometimes(values))
    return event
