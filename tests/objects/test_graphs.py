"""Object messages: a graph arrives as one; what may differ between programs, and what is refused."""

import dataclasses
import datetime
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadBody, MalformedFrame, TooLarge
from pluribus.objects import graphs
from pluribus.objects.graphs import decode_graph, encode_graph
from pluribus.wire.bodies import register


@register
@dataclasses.dataclass
class Room:
    name: str
    doors: "list[Door]" = dataclasses.field(default_factory=list)
    notes: Any = None


@register
@dataclasses.dataclass(frozen=True)
class Door:
    width_m: float
    rooms: tuple[Room, Room]


@register
class Link(msgspec.Struct):
    value: int
    next: "Link | None" = None


@register
class Dated(msgspec.Struct, frozen=True):
    day: datetime.date
    when: datetime.datetime | None = None


@register
class Checked(msgspec.Struct):
    degrees: float
    other: "Checked | None" = None

    def __post_init__(self) -> None:
        if self.degrees < -273:
            raise ValueError("colder than cold")


@register
@dataclasses.dataclass
class Sum:
    parts: list[int]
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


def there_and_back(value):
    return decode_graph(encode_graph(value))


def test_a_graph_with_cycles_arrives_as_one():
    hall, office = Room("hall"), Room("office")
    door = Door(0.9, (hall, office))
    hall.doors.append(door)
    office.doors.append(door)
    hall.notes = office.doors
    found = there_and_back(hall)
    other = found.doors[0].rooms[1]
    assert type(found) is Room and other.name == "office"
    assert found.doors[0] is other.doors[0] and found.doors[0].rooms[0] is found and found.notes is other.doors


def test_structs_in_cycles_and_long_chains():
    last = first = Link(0)
    for number in range(1, 20_000):
        first = Link(number, first)
    last.next = first
    found = there_and_back(first)
    at, count = found, 0
    while True:
        at, count = at.next, count + 1
        if at is found:
            break
    assert count == 20_000 and found.value == 19_999


plain = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(), st.binary()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.tuples(inner, inner),
        st.sets(st.integers(0, 9), max_size=3),
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_data_is_the_same_again(value):
    found = there_and_back(value)
    assert found == value and type(found) is type(value)


@given(plain)
def test_shared_parts_stay_shared(value):
    shared = [value]
    one, other = there_and_back([shared, {"again": shared}])
    assert one is other["again"] and one == shared


@given(st.binary(max_size=80))
def test_any_bytes_are_objects_or_an_error(data: bytes):
    with suppress(BadBody, MalformedFrame):
        decode_graph(data)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.one_of(st.integers(-1, 4), st.lists(st.integers(-1, 4))))), max_size=4
    )
)
def test_any_nodes_are_objects_or_an_error(nodes):
    data = msgspec.msgpack.encode(([0, 0], nodes))
    with suppress(BadBody, MalformedFrame):
        decode_graph(data)


def as_sent(name: str, /, **fields: Any) -> bytes:
    return msgspec.msgpack.encode(([0, 0], [(name, fields)]))


def test_added_and_removed_fields():
    assert decode_graph(as_sent("Link", value=3, color="red")) == Link(3), "unknown ones are left out"
    assert decode_graph(as_sent("Room", name="hall")) == Room("hall"), "missing ones take their default"
    with pytest.raises(BadBody, match="came without its field 'name'"):
        decode_graph(as_sent("Room"))
    with pytest.raises(BadBody, match="field 'value' of a Link does not fit"):
        decode_graph(as_sent("Link", value="three"))
    with pytest.raises(BadBody, match="'next' of a Link"):
        decode_graph(
            msgspec.msgpack.encode(([0, 0], [("Link", {"value": 1, "next": [0, 1]}), ("Room", {"name": "x"})]))
        )


def test_dates_travel_in_fields():
    value = Dated(datetime.date(2026, 3, 1), datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC))
    assert there_and_back(value) == value
    with pytest.raises(BadBody, match="'day' of a Dated"):
        decode_graph(as_sent("Dated", day=[2, "no day"]))


def test_only_registered_types_travel():
    @dataclasses.dataclass
    class Stranger:
        x: int = 0

    for wrong in (Stranger(), [Stranger()], Room("x", notes=Stranger()), object(), Room("x", notes=print)):
        with pytest.raises(BadBody, match="cannot travel"):
            encode_graph(wrong)
    with pytest.raises(BadBody, match="'Unheard' is not registered here"):
        decode_graph(as_sent("Unheard", x=1))
    with pytest.raises(BadBody, match="64 bits"):
        encode_graph(2**70)


def test_post_init_runs_on_what_came():
    assert there_and_back(Checked(3.0, Checked(4.0))) == Checked(3.0, Checked(4.0))
    with pytest.raises(BadBody, match="colder than cold"):
        decode_graph(as_sent("Checked", degrees=-300.0))
    loop = Checked(1.0)
    loop.other = loop
    with pytest.raises(BadBody, match="refers to itself"):
        there_and_back(loop)
    assert there_and_back(Sum([1, 2])).total == 3


def test_limits(monkeypatch):
    monkeypatch.setattr(graphs, "GRAPH_NODES_MAX", 10)
    with pytest.raises(TooLarge, match="send it in parts"):
        encode_graph([[] for _ in range(20)])
    with pytest.raises(MalformedFrame, match="the limit is 10"):
        decode_graph(msgspec.msgpack.encode(([0, 0], [(0, [])] * 20)))
    deep: Any = ()
    for _ in range(50):
        deep = (deep,)
    with pytest.raises(TooLarge, match="use lists"):
        encode_graph(deep)
