"""A stack as text: what reads is built, what does not is one sentence about the part that is wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadStack
from pluribus.stack.layer import Layer
from pluribus.stack.specification import build


class Plain(Layer):
    name = "plain"


class Tuned(Layer):
    name = "tuned"

    def __init__(self, p: float = 0.0, label: str = "", on: bool = False, parts: tuple[Any, ...] = ()) -> None:
        self.given = {"p": p, "label": label, "on": on, "parts": parts}


CATALOGUE = {"plain": Plain, "tuned": Tuned}


def test_names_with_bars_between_them_are_layers_in_that_order():
    layers = build(" plain | tuned(p=0.5, label='a, b', on=True, parts=(1, 'x')) |plain", CATALOGUE)
    assert [layer.name for layer in layers] == ["plain", "tuned", "plain"]
    assert layers[1].given == {"p": 0.5, "label": "a, b", "on": True, "parts": (1, "x")}  # type: ignore[attr-defined]
    assert layers[0] is not layers[2]


def test_brackets_may_be_empty():
    assert isinstance(build("plain()", CATALOGUE)[0], Plain)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the stack '' has an empty place: write names with | between them"),
        ("plain||plain", "the stack 'plain||plain' has an empty place: write names with | between them"),
        ("plain|", "the stack 'plain|' has an empty place: write names with | between them"),
        ("Plain", "'Plain' is no layer: write name or name(option=value)"),
        ("plain plain", "'plain plain' is no layer: write name or name(option=value)"),
        ("plain(", "'plain(' is no layer: write name or name(option=value)"),
        ("absent", "there is no layer 'absent': use plain, tuned"),
        ("tuned(0.5)", "the options of 'tuned(0.5)' do not read: write name=value with numbers, strings or True"),
        ("tuned(p=)", "the options of 'tuned(p=)' do not read: write name=value with numbers, strings or True"),
        ("tuned(p=x)", "the options of 'tuned(p=x)' do not read: write name=value with numbers, strings or True"),
        ("tuned(**{})", "the options of 'tuned(**{})' do not read: write name=value with numbers, strings or True"),
        (
            "tuned(p=open('f'))",
            "the options of \"tuned(p=open('f'))\" do not read: write name=value with numbers, strings or True",
        ),
    ],
)
def test_what_does_not_read_is_one_sentence(text: str, sentence: str):
    with pytest.raises(BadStack) as caught:
        build(text, CATALOGUE)
    assert str(caught.value) == sentence


def test_an_option_that_a_layer_does_not_have_names_the_layer():
    with pytest.raises(BadStack, match=r"^'plain\(p=1\)' does not fit the layer plain: .*$"):
        build("plain(p=1)", CATALOGUE)


@given(st.text(alphabet="plaintued|() =,0.5'\"*[]{}\n\x00", max_size=40))
def test_nothing_but_bad_stack_is_ever_raised(text: str):
    for candidate in (text, f"tuned({text})", f"tuned(p={text})"):
        try:
            layers = build(candidate, CATALOGUE)
        except BadStack:
            continue
        assert layers
