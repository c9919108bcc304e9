"""Questions, calls and answers wrap bodies of any kind, and give them back; what is damaged is malformed."""

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadBody, MalformedFrame
from pluribus.core.frame import Frame
from pluribus.wire.bodies import array_header, encode_body, join_bodies, register
from pluribus.wire.questions import (
    ABSENT,
    ANSWER,
    CALL,
    QUESTION,
    Answered,
    Asked,
    Called,
    unwrapped,
    words_of,
    wrapped,
)


@register
@dataclasses.dataclass
class WrappedProbe:
    depth: int


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(plain)
def test_what_is_wrapped_is_unwrapped(body):
    assert unwrapped(wrapped(body)) == body


def test_a_registered_type_arrives_as_itself_and_another_is_refused():
    assert unwrapped(wrapped(WrappedProbe(3))) == WrappedProbe(3)
    with pytest.raises(BadBody):
        wrapped(object())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (QUESTION, [Asked(1, wrapped("a")), Asked(2, wrapped(b"b"), (5, 6))]),
        (CALL, [Called(1, "add", (wrapped(1),), {"by": wrapped(2.5)})]),
        (ANSWER, [Answered(1, body=wrapped(WrappedProbe(1))), Answered(2, ABSENT)]),
    ],
)
def test_words_travel_as_bodies_of_their_kind(kind, words):
    encoded = [encode_body(word) for word in words]
    assert {found for found, _ in encoded} == {kind}
    bodies = join_bodies(kind, [body for _, body in encoded])
    assert words_of(Frame(sender=1, kind=kind, count=len(words), bodies=bodies)) == words
    with pytest.raises(MalformedFrame):
        words_of(Frame(sender=1, kind=kind, count=len(words) + 1, bodies=bodies))


@pytest.mark.parametrize("kind", [QUESTION, CALL, ANSWER])
@pytest.mark.parametrize("body", [b"\xc0", b"\x92\xff\xff", b"\x91\x01" * 3, b"\x93\x01\x02\x03"])
def test_damaged_words_are_malformed(kind, body):
    with pytest.raises(MalformedFrame):
        words_of(Frame(sender=1, kind=kind, count=1, bodies=msgspec.Raw(array_header(1) + body)))


def test_a_list_of_bytes_is_no_list_of_words():
    with pytest.raises(MalformedFrame):
        words_of(Frame(sender=1, kind=QUESTION, count=1, bodies=[b"raw"]))


def test_a_body_of_a_kind_that_nobody_knows_is_malformed():
    with pytest.raises(MalformedFrame):
        unwrapped((99, b"\xc0"))
