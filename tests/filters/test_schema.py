"""A filter that is checked against the type of its events."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Literal, TypedDict

import msgspec
import pytest

from pluribus.core.errors import BadFilter, BadInput
from pluribus.filters import Template, parse
from pluribus.filters.schema import Schema
from pluribus.filters.tree import Kind


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass
class Place:
    lat: float
    lon: float


class Extra(TypedDict):
    note: str


class Tick(msgspec.Struct):
    symbol: str
    price: float
    at: datetime
    side: Side
    open: bool
    mood: Literal["up", "down"] | None
    place: Place | None
    either: int | str
    extra: Extra
    more: dict[str, Any]
    body: bytes
    next: "Tick | None" = None


def test_every_field_has_its_kind():
    schema = Schema(Tick)
    kinds = {
        "symbol": Kind.TEXT,
        "price": Kind.NUMBER,
        "at": Kind.NUMBER,
        "side": Kind.TEXT,
        "open": Kind.BOOLEAN,
        "mood": Kind.TEXT,
        "place.lat": Kind.NUMBER,
        "either": Kind.ANY,
        "extra.note": Kind.TEXT,
        "more.or.less": Kind.ANY,
        "body": Kind.ANY,
        "next.next.next.price": Kind.NUMBER,
        "nothing": None,
        "place.height": None,
        "symbol.length": None,
    }
    assert {path: schema.kind(tuple(path.split("."))) for path in kinds} == kinds


def test_a_filter_that_fits_is_taken():
    words = (
        "symbol LIKE 'I%' AND price > 100 AND WITHIN(place, 1, 2, 3) AND more.x = 'y' AND next IS NULL AND side = 'buy'"
    )
    assert parse(words, type=Tick)


@pytest.mark.parametrize(
    ("words", "position", "reason"),
    [
        ("prize > 100", 1, "Tick has no field prize"),
        ("price = 'high'", 1, "price is a number at character 1, but is used as a text"),
        ("price > 1 AND place.height > 2", 15, "Tick has no field place.height"),
        ("symbol", 1, "symbol is a text"),
        ("open > 1", 1, "open is true or false"),
        ("symbol = price", 1, "symbol is a text at character 1, but is used as a number"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused(words, position, reason):
    with pytest.raises(BadFilter) as refused:
        parse(words, type=Tick)
    assert refused.value.position == position and reason in refused.value.reason


def test_the_remedy_lists_the_fields():
    with pytest.raises(BadFilter, match="its fields are lat, lon"):
        parse("place.height > 2", type=Tick)


def test_what_has_no_fields_is_no_type_of_events():
    with pytest.raises(BadInput, match="tells no fields"):
        Schema(object())  # type: ignore[arg-type]


# --- templates ------------------------------------------------------------------------------------------------------


def test_a_template_makes_many_filters():
    template = Template("symbol = :symbol AND price BETWEEN :low AND :high AND name LIKE :wild AND x IN (1, :low)")
    made = template.bind(symbol="it's", low=1, high=2.5, wild="a%")
    assert made == parse("symbol = 'it''s' AND price BETWEEN 1 AND 2.5 AND name LIKE 'a%' AND x IN (1, 1)")
    assert template.bind({"symbol": "B", "low": 0, "high": 1, "wild": "%"}) != made


def test_a_value_decides_what_the_text_left_open():
    template = Template("a = :value AND a = c")
    assert template.bind(value="x") == parse("a = 'x' AND a = c")
    assert template.bind(value=3) == parse("a = 3 AND a = c")
    assert template.bind(value=True) == parse("a = TRUE AND a = c")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, ":low is not given"),
        ({"low": 1, "high": 2}, ":high is no parameter"),
        ({"low": "x"}, ":low cannot be 'x'; give it a number"),
        ({"low": None}, ":low cannot be None"),
        ({"low": float("nan")}, ":low cannot be nan"),
        ({"low": float("inf")}, ":low cannot be inf"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, reason):
    with pytest.raises(BadInput, match=reason):
        Template("price > :low AND price < 9").bind(values)


def test_a_bad_pattern_is_refused_when_it_is_bound():
    with pytest.raises(BadInput, match="pattern 'a!b' is wrong"):
        Template("s LIKE :wild ESCAPE '!'").bind(wild="a!b")
