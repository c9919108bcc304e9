"""The index against a linear scan with the predicates, whatever comes and goes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pluribus.core.errors import BadInput, TooLarge
from pluribus.filters import Filter, Template, parse
from pluribus.filters.index import Index, explain
from pluribus.filters.index import bitmaps as bitmaps_module
from pluribus.filters.index import coordinates as coordinates_module
from pluribus.filters.index import index as index_module
from pluribus.filters.tree import And, Compare, Field, In, Kind, Or
from tests.filters.strategies import constant, events, leaves, trees

names = st.sampled_from("nm")
small = st.integers(-2, 2)


@st.composite
def boxes(draw):
    """What subscriptions mostly are: an equality or a list, and ranges; sometimes two of them, sometimes more."""
    terms = []
    if draw(st.integers(0, 3)):
        terms.append(Compare("=", Field(("s",), Kind.TEXT), constant(draw(st.sampled_from(["a", "b", "ab"])))))
    if draw(st.booleans()):
        values = draw(st.lists(st.sampled_from(["a", "b", "Z"]), min_size=1, max_size=3, unique=True))
        terms.append(In(Field(("u",), Kind.TEXT), tuple(map(constant, values))))
    for name in draw(st.lists(names, max_size=2)):
        operator = draw(st.sampled_from(["<", "<=", ">", ">=", "="]))
        terms.append(
            Compare(operator, Field((name,), Kind.NUMBER), constant(draw(small | st.sampled_from([0.5, 1.5]))))
        )
    if draw(st.booleans()):
        terms.append(draw(leaves))
    return And(tuple(terms)) if terms else constant(True)


filters = st.one_of(
    boxes(), boxes(), boxes(), st.lists(boxes(), min_size=2, max_size=3).map(lambda t: Or(tuple(t))), trees
)
plain_events = st.fixed_dictionaries(
    {},
    optional={
        "s": st.sampled_from(["a", "b", "ab", "c"]),
        "u": st.sampled_from(["a", "b", "Z", None]),
        "n": small | st.floats(-3, 3) | st.none(),
        "m": small | st.sampled_from([0.5, 1.5, math.inf]),
    },
)
seen_events = st.lists(plain_events | events(), max_size=6)


def linear(subscriptions, seen):
    return [[key for key, made in subscriptions.items() if made.matches(event)] for event in seen]


def as_sets(found):
    return [sorted(keys) for keys in found]


@settings(max_examples=200)
@given(st.lists(filters, max_size=12), seen_events)
def test_an_index_matches_like_a_linear_scan(made, seen):
    subscriptions = {number: Filter(tree) for number, tree in enumerate(made)}
    index = Index()
    for key, each in subscriptions.items():
        index.add(key, each)
    index.validate()
    assert as_sets(index.match(seen)) == as_sets(linear(subscriptions, seen))


class Interleaved(RuleBasedStateMachine):
    """Subscriptions come and go between batches; bounds are small, so that everything happens early."""

    @initialize(
        small_max=st.sampled_from([0, 1, 3]), plan=st.sampled_from([1, 4]), piece=st.sampled_from([1, 5, 1 << 17])
    )
    def start(self, small_max, plan, piece):
        self.kept = index_module.SMALL_MAX, index_module.PIECE_WORDS, bitmaps_module.PLAN_SLOTS_MIN
        index_module.SMALL_MAX, index_module.PIECE_WORDS, bitmaps_module.PLAN_SLOTS_MIN = small_max, piece, plan
        self.index = Index()
        self.subscriptions = {}
        self.next_key = 0

    def teardown(self):
        if hasattr(self, "kept"):
            index_module.SMALL_MAX, index_module.PIECE_WORDS, bitmaps_module.PLAN_SLOTS_MIN = self.kept

    @rule(trees=st.lists(filters, min_size=1, max_size=5), copies=st.integers(1, 2))
    def add(self, trees, copies):
        for tree in trees:
            for _ in range(copies):
                self.subscriptions[self.next_key] = Filter(tree)
                self.index.add(self.next_key, self.subscriptions[self.next_key])
                self.next_key += 1

    @rule(data=st.data())
    def remove(self, data):
        if self.subscriptions:
            for key in data.draw(st.lists(st.sampled_from(sorted(self.subscriptions)), unique=True, max_size=8)):
                self.index.remove(key)
                del self.subscriptions[key]

    @rule(seen=seen_events)
    def match(self, seen):
        assert as_sets(self.index.match(seen)) == as_sets(linear(self.subscriptions, seen))

    @invariant()
    def consistent(self):
        if hasattr(self, "index"):
            self.index.validate()
            assert len(self.index) == len(self.subscriptions)


Interleaved.TestCase.settings = settings(max_examples=40, stateful_step_count=15)
TestInterleaved = Interleaved.TestCase


def test_many_subscriptions_of_one_shape_match_exactly():
    """Enough for words, bitmaps and thresholds of real size."""
    template = Template("symbol = :symbol AND price BETWEEN :low AND :high AND size < :size")
    made, seed = {}, 7
    for key in range(3_000):
        seed = seed * 1_103_515_245 + 12_345 & 0x7FFFFFFF
        low = seed % 1_000 / 10
        made[key] = template.bind(symbol=f"s{seed % 7}", low=low, high=low + seed % 300 / 10, size=seed % 50)
    index = Index()
    for key, each in made.items():
        index.add(key, each)
    assert index.stats()["bitmaps"] == 2
    for key in range(0, 3_000, 3):
        index.remove(key)
        del made[key]
    index.validate()
    seen = [{"symbol": f"s{at % 9}", "price": at * 1.7 % 120, "size": at % 60} for at in range(200)]
    found = index.match(seen)
    assert as_sets(found) == as_sets(linear(made, seen))
    assert sum(map(len, found)) > 2_000


def test_equal_filters_and_equal_rests_are_kept_once():
    index = Index()
    for key in range(100):
        index.add(("same", key), parse("a = 1 AND b > 2"))
        index.add(("rest", key), parse(f"a = {key} AND s LIKE 'x%'"))
    stats = index.stats()
    assert (stats["subscriptions"], stats["filters"], stats["rests"]) == (200, 101, 1)
    assert len(index.match([{"a": 1, "b": 3, "s": "xy"}])[0]) == 101
    for key in range(100):
        index.remove(("same", key))
        index.remove(("rest", key))
    index.validate()
    assert index.stats()["conjunctions"] == index.stats()["rests"] == 0


def test_the_same_calls_give_the_same_order():
    def found():
        index = Index()
        for key in range(300):
            index.add(key, parse(f"a < {key % 7} AND s <> 'k{key}'"))
        for key in range(0, 300, 2):
            index.remove(key)
        return index.match([{"a": 1, "s": "-"}, {"a": 5, "s": "k7"}])

    assert found() == found()
    assert len(found()[0]) > 90


def test_the_most_selective_equality_is_chosen():
    index = Index()
    for key in range(200):
        index.add(key, parse(f"region = 'eu' AND owner = 'o{key}'"))
    assert index.stats()["clusters"] >= 199


def test_a_circle_keeps_most_events_from_the_exact_distance():
    index = Index()
    calls = []
    for at in range(300):
        index.add(at, parse(f"WITHIN(place, {at % 60}, {at % 100}, 5000)"))
    holds = index._holds
    index._holds = lambda number, event: calls.append(number) or holds(number, event)
    assert index.match([{"place": {"lat": 10.001, "lon": 10.001}}]) == [[10]]
    assert calls == [calls[0]]


def test_time_comes_from_the_clock_that_was_handed_in():
    time = [100.0]
    index = Index(now=lambda: time[0])
    index.add("recent", parse("t > NOW() - 10"))
    assert index.match([{"t": 95}]) == [["recent"]]
    time[0] = 106.0
    assert index.match([{"t": 95}]) == [[]]


def test_what_is_wrong_is_refused():
    index = Index()
    index.add("one", parse("a = 1"))
    with pytest.raises(BadInput, match="has 'one' already"):
        index.add("one", parse("a = 2"))
    with pytest.raises(BadInput, match="has no 'two'"):
        index.remove("two")
    with pytest.raises(BadInput, match="make the index with now="):
        index.add("late", parse("t > NOW()"))
    assert "one" in index and "late" not in index and len(index) == 1


def test_bounds_are_kept(monkeypatch):
    monkeypatch.setattr(index_module, "INDEX_SUBSCRIPTIONS_MAX", 1)
    index = Index()
    index.add("one", parse("a = 1"))
    with pytest.raises(TooLarge, match="holds 1 subscriptions"):
        index.add("two", parse("a = 1"))


def test_fields_beyond_the_limit_are_evaluated_one_by_one(monkeypatch):
    monkeypatch.setattr(coordinates_module, "INDEX_FIELDS_MAX", 3)
    index = Index()
    for at in range(6):
        index.add(at, parse(f"f{at} > 1 AND f{at + 1} < 5"))
    index.validate()
    found = index.match([{f"f{at}": 3 for at in range(7)}, {"f0": 3, "f1": 7}])
    assert as_sets(found) == [[0, 1, 2, 3, 4, 5], []]
    for at in range(6):
        index.remove(at)
    index.validate()


def test_a_filter_with_very_many_ranges_is_exact():
    words = " AND ".join(f"f{at} > {at}" for at in range(30))
    index = Index()
    index.add("long", parse(words))
    event = {f"f{at}": at + 1 for at in range(30)}
    assert index.match([event, {**event, "f29": 29}]) == [["long"], []]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("s = 'x' AND p > 1 AND t LIKE '%y'", ["by hash: s = 'x'; by range: p from 1 to inf; one by one: t LIKE '%y'"]),
        ("a = 1 OR NOT b", ["by hash: a = 1", "by range: b (truth) from 0 to 0"]),
        ("TRUE", ["always"]),
        ("a > 2 AND a < 1", ["never"]),
    ],
)
def test_how_a_filter_is_used_can_be_told(words, lines):
    assert explain(parse(words).tree) == lines


def test_no_events_and_no_subscriptions():
    index = Index()
    assert index.match([]) == [] and index.match([{"a": 1}, None, 7]) == [[], [], []]
    index.add("all", parse("TRUE"))
    index.add("none", parse("FALSE"))
    assert index.match([{"a": 1}, None, 7]) == [["all"]] * 3


def test_more_events_than_a_batch():
    index = Index()
    for at in range(10):
        index.add(at, parse(f"a = {at}"))
    many = [{"a": at % 12} for at in range(2 * index_module.BATCH_EVENTS + 5)]
    assert index.match(many) == [[at % 12] if at % 12 < 10 else [] for at in range(len(many))]


def test_new_fields_get_their_bitmaps_when_old_ones_are_gone():
    index = Index()
    for at in range(2_000):
        index.add(("old", at), parse(f"a > {at}"))
    for at in range(2_000):
        index.remove(("old", at))
    assert not index._bitmaps.matrices
    for at in range(1_000):
        index.add(("new", at), parse(f"b > {at}"))
    index.validate()
    assert len(index._bitmaps.matrices) == 1
    assert len(index.match([{"b": 10.5}])[0]) == 11


def test_thresholds_are_quantiles_of_what_there_is():
    index = Index()
    for at in range(bitmaps_module.PLAN_SLOTS_MIN * 4):
        index.add(at, parse(f"a BETWEEN {at} AND {at + 10}"))
    (matrix,) = index._bitmaps.matrices.values()
    assert len(matrix.thresholds) > bitmaps_module.BUCKETS / 2
    assert sum(map(len, index.match([{"a": 500.5}]))) == 10
