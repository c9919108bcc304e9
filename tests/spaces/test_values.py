"""Tuples on their way, and what templates match; bad input gets one exact sentence."""

import dataclasses
from datetime import UTC, datetime

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

import pluribus
from pluribus.core.errors import BadBody, BadFilter, BadInput, MalformedFrame, TooLarge
from pluribus.spaces.conditions import condition_of, tree_of
from pluribus.spaces.index import TupleIndex, Wishes
from pluribus.spaces.sorted import Sorted
from pluribus.spaces.templates import ANY, template_of
from pluribus.spaces.values import FieldValue, item_of, written_of


@pluribus.register
class SpaceAlarm(msgspec.Struct):
    type: str | None = None
    floor: int | None = None


@pluribus.register
class SpaceFire(SpaceAlarm):
    heat: float | None = None


@pluribus.register
@dataclasses.dataclass
class SpacePoint:
    x: int
    y: int


@pytest.mark.parametrize(
    "written",
    [
        ("a", 1, 1.5, None, True, b"x"),
        ([1, 2], {"b": 1, "a": [2]}, (1, 2), frozenset({1, 2})),
        (datetime(2026, 1, 1, tzinfo=UTC), SpacePoint(1, 2)),
        SpaceFire("Fire!", 3, 2.5),
        SpacePoint(1, 2),
    ],
)
def test_what_is_written_comes_back(written):
    assert written_of(item_of(written)) == written


def matches(template, written, where=""):
    return template_of(template, where).matches(item_of(written))


def test_the_examples_of_the_chapter():
    assert matches((str, int), ("fred", 1958)) and matches((str, 1958), ("fred", 1958))
    assert not matches((str, 1958), ("sid", 1964)) and not matches((str, int), (4, 9.8, "Yes"))
    assert matches((str, "Scotland", str), ("Capital", "Scotland", "Edinburgh"))
    assert not matches((str, "Scotland", int), ("Capital", "Scotland", "Edinburgh"))
    assert matches((str, "Scotland", int), ("Population", "Scotland", 5168000))


def test_types_are_exact():
    assert not matches((int,), (True,)) and not matches((1,), (1.0,)) and not matches((1,), (True,))
    assert matches((int | str, ANY), ("x", None)) and matches((..., object), (1, 2)) and not matches((None,), (1,))


def test_entries_match_by_class_subclass_and_given_fields():
    fire = SpaceFire("Fire!", 3, 2.5)
    assert matches(SpaceAlarm, fire) and matches(SpaceFire, fire) and matches(SpaceAlarm("Fire!"), fire)
    assert not matches(SpaceFire, SpaceAlarm("Fire!")) and not matches(SpaceAlarm("Flood!"), fire)
    assert not matches(SpaceAlarm, ("Fire!", 3)) and matches((SpaceAlarm,), (fire,))
    assert matches(SpaceAlarm, fire, "floor > 2") and not matches(SpaceAlarm, fire, "floor > 3")


def test_ranges():
    assert matches(("order", int), ("order", 101), "f1 > 100")
    assert not matches(("order", int), ("order", 100), "f1 > 100")


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda: item_of(()), BadInput, "at least one"),
        (lambda: item_of("text"), BadInput, "no tuple and no entry"),
        (lambda: item_of((object(),)), BadBody, "cannot travel"),
        (lambda: item_of((1 << 70,)), BadBody, "cannot travel"),
        (lambda: item_of((str,)), BadBody, "belongs in a template"),
        (lambda: item_of((b"x" * 2_000_000,)), TooLarge, "keep the body elsewhere"),
        (lambda: template_of(()), BadInput, "no fields"),
        (lambda: template_of("text"), BadInput, "no template"),
        (lambda: template_of((complex,)), BadInput, "of type complex"),
        (lambda: template_of(("a", int), "f2 > 1"), BadInput, "f0, f1"),
        (lambda: template_of(("a", int), "f1 >"), BadFilter, "character"),
        (lambda: template_of(("a", int), "f1 > NOW()"), BadFilter, "use a lease"),
        (lambda: tree_of(b"\x92\x07\x90"), MalformedFrame, "version 7"),
        (lambda: tree_of(b"no"), MalformedFrame, "none"),
    ],
)
def test_bad_input(build, error, says):
    with pytest.raises(error, match=says):
        build()


@pytest.mark.parametrize("text", ["f1 > 1 AND f0 LIKE 'a%'", "f0 IN ('a', 'b') OR NOT f1 + 2 <= 7", "f0 IS NULL"])
def test_conditions_travel_as_trees(text):
    from pluribus.filters import parse

    assert tree_of(condition_of(text)) == parse(text).tree


fields = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"]), st.sampled_from([0.5, None]))
wanted = st.one_of(fields, st.sampled_from([int, str, ANY, float, int | str]))


@given(
    st.lists(st.one_of(st.tuples(fields, fields), st.tuples(fields, fields, fields)), max_size=30),
    st.one_of(st.tuples(wanted, wanted), st.tuples(wanted, wanted, wanted)),
    st.sampled_from(["", "f0 > 1", "f1 = 'a'", "f1 <= 2 AND f1 > 0", "f0 = 1 OR f1 = 2"]),
    st.sets(st.integers(0, 29)),
)
def test_the_index_finds_what_a_scan_finds(tuples, template, where, removed):
    index, wishes = TupleIndex(), Wishes()
    template = template_of(template, where)
    items = {number: item_of(one) for number, one in enumerate(tuples)}
    for number, item in items.items():
        index.add(number, item)
        if number == 7:
            index.find(template)  # the signature is indexed when there are some
    for number in removed & set(items):
        index.remove(number)
        del items[number]
    index.validate()
    expected = [number for number, item in items.items() if template.matches(item)]
    assert sorted(index.matches(template)) == expected == index.page(template, -1, 100)
    assert index.lowest(template, 2) == expected[:2]
    assert index.count(template) == len(expected)
    assert index.find(template) == min(expected, key=lambda number: index.rank(template, number), default=None)
    wishes.add("me", template)
    assert [number for number, item in items.items() if "me" in wishes.of(item)] == expected
    wishes.remove("me")
    assert not len(wishes)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3_000)), max_size=300), st.integers(0, 3_000))
def test_sorted_is_a_sorted_set(steps, since):
    found, plain = Sorted(range(0, 3_000, 2)), set(range(0, 3_000, 2))
    for add, key in steps:
        if add and key not in plain:
            found.add(key)
            plain.add(key)
        elif not add and key in plain:
            found.remove(key)
            plain.discard(key)
    found.validate()
    assert list(found) == sorted(plain)
    assert list(found.since(since)) == [key for key in sorted(plain) if key >= since]


def test_a_set_of_tuples_comes_back_and_one_from_outside_that_is_none_is_malformed():
    given = ({(1, (2, 3)), (4,)}, frozenset())
    assert written_of(item_of(given)) == given
    raw = msgspec.msgpack.encode([{"a": 1}])
    item = msgspec.structs.replace(item_of(({1},)), fields=(FieldValue("set", raw),))
    with pytest.raises(MalformedFrame, match="a set that cannot be one here"):
        written_of(item)


def test_a_time_without_a_zone_is_refused():
    for call in (item_of, template_of):
        with pytest.raises(BadBody, match="has no time zone"):
            call((datetime(2020, 1, 1),))
