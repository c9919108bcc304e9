"""Bodies: every kind comes back as it went, what cannot travel is refused at once, and nothing is guessed."""

import dataclasses
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pluribus
from pluribus.core import limits
from pluribus.core.errors import BadBody, BadInput, MalformedFrame, TooLarge
from pluribus.core.ids import MemberId
from pluribus.wire import bodies
from pluribus.wire.bodies import (
    BYTES,
    DATA,
    TEXT,
    Opaque,
    array_header,
    decode_bodies,
    encode_body,
    join_bodies,
    register,
)


@register
class Tick(msgspec.Struct):
    symbol: str
    price: float
    tags: list[str] = []


@register
@dataclasses.dataclass
class Fire:
    floor: int
    where: str = ""


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
).filter(lambda body: not isinstance(body, str))  # text has a kind of its own


def travelled(sent: list[Any]) -> list[Any]:
    """Bodies of one kind, encoded as a sender does and decoded as a receiver does."""
    encoded = [encode_body(body) for body in sent]
    kinds = {kind for kind, _ in encoded}
    assert len(kinds) == 1
    kind = kinds.pop()
    joined = join_bodies(kind, [data for _, data in encoded])
    on_the_wire = msgspec.Raw(msgspec.msgpack.encode(joined))
    return decode_bodies(kind, on_the_wire, len(sent))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 70_000])
@pytest.mark.parametrize("body", [b"bytes", "text", {"plain": [1]}, Tick("IBM", 1.0), Fire(3)], ids=str)
def test_batches_of_every_length_come_back(body: object, length: int):
    assert travelled([body] * length) == [body] * length


@given(st.lists(st.binary(), min_size=1))
def test_bytes_come_back(sent: list[bytes]):
    assert travelled(sent) == sent
    assert travelled([bytearray(body) for body in sent]) == sent
    assert travelled([memoryview(body) for body in sent]) == sent


@given(st.lists(st.text(), min_size=1))
def test_text_comes_back(sent: list[str]):
    assert travelled(sent) == sent


@given(st.lists(plain, min_size=1))
def test_plain_data_comes_back(sent: list[Any]):
    assert travelled(sent) == sent


@given(st.lists(st.builds(Tick, st.text(), st.floats(allow_nan=False), st.lists(st.text())), min_size=1))
def test_registered_structs_come_back_as_themselves(sent: list[Tick]):
    assert travelled(sent) == sent


@given(st.lists(st.builds(Fire, st.integers(-(1 << 63), (1 << 63) - 1), st.text()), min_size=1))
def test_registered_dataclasses_come_back_as_themselves(sent: list[Fire]):
    assert travelled(sent) == sent


def test_a_member_travels_as_its_number():
    assert travelled([{"who": MemberId(5)}, MemberId(6)]) == [{"who": 5}, 6]


def test_not_a_number_travels_too():
    assert math.isnan(travelled([float("nan")])[0])


def test_a_body_is_encoded_when_it_is_sent():
    body = {"count": 1}
    kind, encoded = encode_body(body)
    body["count"] = 2
    assert decode_bodies(kind, msgspec.Raw(array_header(1) + encoded), 1) == [{"count": 1}]


def test_a_type_that_this_program_did_not_register_is_opaque():
    kind, encoded = encode_body(Fire(3, "roof"))
    assert kind == "Fire"
    joined = join_bodies("Unheard", [encoded, encoded])
    assert isinstance(joined, msgspec.Raw)
    received = decode_bodies("Unheard", joined, 2)
    assert received == [Opaque("Unheard", encoded)] * 2
    assert msgspec.msgpack.decode(received[0].encoded) == {"floor": 3, "where": "roof"}


class Stranger(msgspec.Struct):
    x: int


UNTRAVELLED = [Stranger(1), object(), 1 << 70, "\ud800", {1: object()}, [Stranger(1), object()], lambda: None]


@pytest.mark.parametrize("body", UNTRAVELLED, ids=lambda body: type(body).__name__)
def test_what_cannot_travel_is_refused_in_one_sentence(body: object):
    with pytest.raises(BadBody) as caught:
        encode_body(body if not isinstance(body, list) else body[1])
    assert "\n" not in str(caught.value)
    assert "register" in str(caught.value)


def test_a_type_that_refuses_what_came_makes_it_malformed_whatever_it_raises():
    @dataclasses.dataclass
    class Share:
        of: int

        def __post_init__(self) -> None:
            assert 1 / self.of, "a share of nothing"

    pluribus.register(Share, "share")
    kind, encoded = encode_body(Share(4))
    with pytest.raises(MalformedFrame, match="division by zero"):
        decode_bodies(kind, join_bodies(kind, [encoded.replace(b"\x04", b"\x00")]), 1)


def test_a_structure_without_end_is_refused():
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadBody, match="a list cannot travel"):
        encode_body(endless)


def test_a_body_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bodies, "BODY_BYTES_MAX", 10)
    assert encode_body(bytearray(10)) == (BYTES, bytes(10))
    with pytest.raises(TooLarge, match="a body of 11 bytes exceeds 10"):
        encode_body(bytearray(11))
    assert limits.BODY_BYTES_MAX >= 128 << 20


@pytest.mark.parametrize(
    ("kind", "sent", "count"),
    [
        (BYTES, [b"a", "text"], 2),
        (BYTES, [b"a"], 2),
        (BYTES, b"no array", 1),
        (TEXT, [b"\xff"], 1),
        (DATA, [1, 2], 1),
        ("Tick", [{"symbol": 5, "price": 1.0}], 1),
        ("Tick", [{"symbol": "x"}], 1),
        ("Unheard", 5, 1),
        (99, [], 0),
    ],
)
def test_bodies_that_are_not_what_the_frame_says_are_malformed(kind: Any, sent: Any, count: int):
    with pytest.raises(MalformedFrame):
        decode_bodies(kind, msgspec.Raw(msgspec.msgpack.encode(sent)), count)


@given(st.binary(max_size=100), st.sampled_from([BYTES, TEXT, DATA, "Tick", "Fire", "Unheard", 99]))
def test_any_bytes_are_bodies_or_malformed(data: bytes, kind: Any):
    for candidate in (data, array_header(1) + data):
        try:
            decode_bodies(kind, msgspec.Raw(candidate), 1)
        except MalformedFrame:
            continue


@pytest.mark.parametrize("length", [0, 1, 15, 16, 65_535, 65_536, 1 << 20])
def test_an_array_header_is_msgpacks_own(length: int):
    assert msgspec.msgpack.encode([None] * length) == array_header(length) + b"\xc0" * length


# --- registering ----------------------------------------------------------------------------------------------------


def local_class(annotation: type) -> type:
    """Each call makes a class anew with the same module and name, as running a notebook's cell again does."""
    return dataclasses.make_dataclass("Again", [("value", annotation)], namespace={"__module__": "notebook"})


def test_a_class_defined_again_takes_the_name_over():
    first, second = local_class(int), local_class(str)
    assert register(first) is first
    assert travelled([first(1)]) == [first(1)]
    register(second)
    assert travelled([second("x")]) == [second("x")]
    with pytest.raises(BadBody, match="Again is not registered"):
        encode_body(first(1))


def test_registering_twice_is_harmless():
    register(Tick)
    assert pluribus.register(Tick) is Tick
    assert travelled([Tick("a", 1.0)]) == [Tick("a", 1.0)]


def test_a_name_of_another_class_is_not_given_away():
    other = dataclasses.make_dataclass("Other", [("x", int)])
    with pytest.raises(BadInput, match=r"the type name 'Tick' belongs to .*Tick: pass another name="):
        register(other, "Tick")


def test_a_type_may_travel_under_a_name_of_its_own():
    renamed = register(dataclasses.make_dataclass("Renamed", [("x", int)]), "shop.order")
    assert encode_body(renamed(1))[0] == "shop.order"
    assert travelled([renamed(1)]) == [renamed(1)]


@pytest.mark.parametrize("wrong", [int, str, object, 5, lambda: None])
def test_only_structs_and_dataclasses_are_registered(wrong: Any):
    with pytest.raises(BadInput, match=r"make it a msgspec.Struct or a dataclass"):
        register(wrong)


def test_the_table_of_types_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bodies, "TYPES_MAX", len(bodies._names))
    with pytest.raises(TooLarge, match="register classes, not values"):
        register(dataclasses.make_dataclass("OneTooMany", [("x", int)]))
