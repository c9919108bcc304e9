"""Other forms of a filter say the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.filters import parse
from pluribus.filters.normal import alternatives, fold, negations_inward
from pluribus.filters.tree import (
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
    walk,
)
from tests.filters.oracle import evaluate
from tests.filters.strategies import connected, constant, events, leaves, small_constants, text_values, trees

constant_leaves = st.one_of(
    st.builds(Compare, st.sampled_from(["=", "<", "<>"]), small_constants, small_constants),
    st.builds(
        lambda left, right: Compare("<", Arithmetic("*", left, right), Field(("n",), Kind.NUMBER)),
        *[small_constants] * 2,
    ),
    st.builds(lambda text: In(constant(text), (constant("a"), constant("b"))), text_values),
    st.builds(lambda text: Like(constant(text), constant("a%")), text_values),
    st.builds(lambda text: Compare("=", Call("LOWER", (constant(text),)), Field(("s",), Kind.TEXT)), text_values),
    st.builds(lambda number: IsNull(Arithmetic("/", number, number)), small_constants),
    st.booleans().map(constant),
)
unfolded = st.recursive(leaves | constant_leaves, connected, max_leaves=6)


def small(value):
    """Constants that were computed are exact, others beside them may be rounded: not for numbers beyond 2**53."""
    return not isinstance(value, int | float) or abs(value) < 2**53


@settings(max_examples=100)
@given(unfolded, events())
def test_computing_what_is_constant_changes_no_answer(tree, event):
    if all(small(node.value) for node in walk(tree) if isinstance(node, Constant)) and small(event.get("n")):
        assert evaluate(fold(tree), event) is evaluate(tree, event)


@settings(max_examples=100)
@given(trees, events())
def test_negations_move_to_the_leaves_and_change_no_answer(tree, event):
    inward = negations_inward(tree)
    assert evaluate(inward, event) is evaluate(tree, event)
    waiting = [inward]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Not):
            assert isinstance(node.term, Field | In | Like | IsNull | IsTruth)
        elif isinstance(node, And | Or):
            waiting += node.terms


@settings(max_examples=100)
@given(trees, events())
def test_a_filter_holds_if_one_of_its_alternatives_does(tree, event):
    conjunctions = alternatives(tree, 32)
    if conjunctions is not None:
        assert len(conjunctions) <= 32
        assert not any(isinstance(term, And | Or) for conjunction in conjunctions for term in conjunction)
        holds = any(all(evaluate(term, event) is True for term in conjunction) for conjunction in conjunctions)
        assert holds is (evaluate(tree, event) is True)


def test_too_many_alternatives_are_none():
    pairs = And(tuple(Or((Field((f"a{at}",), Kind.BOOLEAN), Field((f"b{at}",), Kind.BOOLEAN))) for at in range(6)))
    assert len(alternatives(pairs, 64)) == 64
    assert alternatives(pairs, 63) is None


def test_always_and_never_are_one_and_no_alternative():
    assert alternatives(constant(True), 4) == [()]
    assert alternatives(constant(False), 4) == []


@pytest.mark.parametrize(
    ("constants", "fields"),
    [
        ("1e20 * 1e20 + x > 0", "y * y + x > 0"),
        ("x / (1e-20 * 1e-20) > 0", "x / (z * z) > 0"),
        ("1e-20 * 1e-20 * 1e20 * 1e20 > 0.5", "z * z * y * y > 0.5"),
        ("9007199254740992 + 0 < n", "m + 0 < n"),
        ("ABS(-9007199254740992) <> n", "ABS(m) <> n"),
        ("9007199254740993 + 0 < n", "n + 0 < n"),
    ],
)
def test_a_constant_that_is_computed_is_what_fields_would_give(constants, fields):
    event = {"x": 1, "y": 1e20, "z": 1e-20, "m": 2**53, "n": 2**53 + 1}
    assert parse(constants).matches(event) and parse(fields).matches(event)
    assert parse(str(parse(constants))).matches(event)
