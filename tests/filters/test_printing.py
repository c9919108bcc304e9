"""A filter prints as SQL that says the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import Tokenizer

from pluribus.core.errors import BadInput
from pluribus.filters import Filter, Template, parse
from pluribus.filters.tree import Compare, Constant, Field, Kind, Not, Or, replace_leaves
from tests.filters.strategies import trees


@settings(max_examples=150)
@given(trees)
def test_printing_and_parsing_gives_the_same_filter(tree):
    printed = str(Filter(tree))
    again = parse(printed)
    assert str(again) == printed
    assert without_kinds(again.tree) == without_kinds(tree)


def without_kinds(tree):
    """``n IS NULL`` does not tell that n is a number elsewhere."""
    return replace_leaves(tree, lambda leaf: Field(leaf.path) if isinstance(leaf, Field) else leaf)


@pytest.mark.parametrize("word", sorted({word for word in Tokenizer.KEYWORDS if word.isidentifier()}))
def test_a_field_may_have_the_name_of_any_keyword(word):
    for name in (word.lower(), word):
        field = Field((name, name), Kind.NUMBER)
        tree = Or((Compare("<", field, Constant(1, Kind.NUMBER)), Not(Field((name,), Kind.BOOLEAN))))
        assert parse(str(Filter(tree))).tree == tree


@given(
    st.text(
        st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=["C", "Z"]), min_size=1, max_size=8
    )
)
def test_a_field_may_have_any_printable_name(name):
    field = Field((name,), Kind.BOOLEAN)
    assert parse(str(Filter(field))).tree == field


@pytest.mark.parametrize("value", [10**20 + 1, -(2**63) - 1, 2**64 - 1, 2**63 - 1, 1e308, -0.0])
def test_a_bound_number_prints_what_it_says(value):
    bound = Template("x >= :v").bind(v=value)
    assert parse(str(bound)) == bound


@pytest.mark.parametrize("value", ["\ud800", "a\0b", "\udfff!"])
def test_a_bound_text_is_one_that_could_be_written(value):
    with pytest.raises(BadInput, match="cannot be"):
        Template("x = :v").bind(v=value)
