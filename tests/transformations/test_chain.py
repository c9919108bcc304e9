"""Chains as text: what is read, what is refused and where, and that a chain written and read again is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadInput, BadTransformation, NotTransformed
from pluribus.core.limits import CHAIN_CHARS_MAX
from pluribus.transformations import registry
from pluribus.transformations.chain import CALL, READ, WRITE, Chain


def verbs(text):
    return [(step.verb, step.name) for step in Chain.parse(text).steps]


def test_formats_stand_in_pairs_and_functions_anywhere():
    assert verbs("json > msgpack") == [(READ, "json"), (WRITE, "msgpack")]
    assert verbs("json") == [(READ, "json")]
    assert verbs("data>xml(order)") == [(READ, "data"), (WRITE, "xml")]
    assert verbs("unpack > csv > clean > sort.by-name > json > seal") == [
        (CALL, "unpack"),
        (READ, "csv"),
        (CALL, "clean"),
        (CALL, "sort.by-name"),
        (WRITE, "json"),
        (CALL, "seal"),
    ]
    assert verbs("text(latin-1) > text > csv > json")[1:3] == [(WRITE, "text"), (READ, "csv")]
    assert Chain.parse("json > mine > xml > mine").functions == ["mine", "mine"]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (" json  >  msgpack ", "json > msgpack"),
        ("text(utf-8)", "text"),
        ("text(encoding=latin-1)", "text(latin-1)"),
        ("csv(;) > json()", 'csv(";") > json'),
        ("csv(delimiter=tab, header=false)", 'csv("\\t", header=false)'),
        ("csv(columns='a b', header=true)", 'csv(columns="a b")'),
        ("struct(<ihd) > struct(format='>ihd')", "struct(<ihd) > struct(>ihd)"),
        ('struct("<i", names=n, many=true)', "struct(<i, names=n, many=true)"),
        ("xml(order, encoding=latin-1)", "xml(order, encoding=latin-1)"),
        ("mine", "mine"),
    ],
)
def test_a_chain_is_written_as_it_was_meant(text, same):
    assert str(Chain.parse(text)) == same
    assert Chain.parse(same) == Chain.parse(text)


@pytest.mark.parametrize(
    ("text", "position", "sentence"),
    [
        ("", 1, "the end stands where a step begins; write the name of a format"),
        ("json >", 7, "the end stands where a step begins"),
        ("json, xml", 5, "',' stands here; part steps by '>'"),
        ("json > > xml", 8, "'>' stands where a step begins"),
        ("json(pretty=true)", 6, "json has no option 'pretty'; its options are encoding"),
        ("msgpack(1)", 9, "msgpack has no option '1'; it has none"),
        ("csv(;, ;)", 8, "csv has no option ';'"),
        ("csv(header=yes)", 5, "header=yes; write true or false"),
        ("csv(delimiter=;, delimiter=tab)", 18, "the option delimiter is given twice"),
        ("csv(;;)", 1, "delimiter=';;'; give one character"),
        ("csv(header=true", 4, "these options do not end"),
        ('csv("\\q")', 6, "\\q is no escape"),
        ('csv(";)', 5, "this text does not end"),
        ("json > text(klingon)", 8, "'klingon' is no encoding of text"),
        ("text(idna)", 1, "is no encoding"),
        ("text(hex)", 1, "is no encoding"),
        ("struct", 1, "struct needs format"),
        ("struct(ihd)", 1, "begin with the byte order"),
        ("struct(@i)", 1, "begin with the byte order"),
        ("struct(<iq7)", 1, "'7' is no field"),
        ("struct(<P)", 1, "bad char"),
        ("struct(<99999999999999i)", 1, "is too many"),
        ("struct(<999999999i)", 1, "at most"),
        ("struct(<4x)", 1, "has no fields"),
        ("struct(<ii, names=a)", 1, "1 names= for 2 fields"),
        ("json > msgpack > xml", 18, "xml would read what msgpack wrote"),
        ("mine(1)", 5, "mine is a function, and takes no options"),
        ("xml(tree=true, root=a)", 1, "a tree has its root in it"),
        (" > ".join(["mine"] * 33), 225, "more than 32 steps"),
        ("j" * (CHAIN_CHARS_MAX + 1), 1, "1025 characters"),
    ],
)
def test_what_is_no_chain_is_refused_with_its_place(text, position, sentence):
    with pytest.raises(BadTransformation) as caught:
        Chain.parse(text)
    assert caught.value.position == position, caught.value
    assert sentence in str(caught.value)
    assert caught.value.reason and caught.value.remedy


@given(st.text(max_size=60))
def test_any_text_is_a_chain_or_refused(text):
    try:
        chain = Chain.parse(text)
    except BadTransformation as error:
        place = error.position
    else:
        place = 1
        assert Chain.parse(str(chain)) == chain
    assert 1 <= place <= len(text) + 1


pieces = st.sampled_from([*"json>csv(),=\"' \\<i;", "struct(", "text", "xml", "header=", "true"])


@given(st.lists(pieces, max_size=14).map("".join))
def test_almost_chains_are_chains_or_refused(text):
    test_any_text_is_a_chain_or_refused.hypothesis.inner_test(text)


def test_functions_are_registered_by_name():
    try:

        @registry.transformation("double.it")
        def double(value):
            return 2 * value

        assert double(2) == 4 and registry.function_of("double.it") is double
        assert Chain.parse("json > double.it > nobody").missing == ["nobody"]
        with pytest.raises(BadInput, match=r"'nobody' is no format, and no function .* functions are double.it"):
            Chain.parse("json > nobody").check_registered()
    finally:
        registry.forget("double.it")
    for name, sentence in (("json", "is a format"), ("two words", "no name"), ("1st", "no name"), ("", "no name")):
        with pytest.raises(BadInput, match=sentence):
            registry.transformation(name)
    with pytest.raises(BadInput, match="no function"):
        registry.transformation("number")(7)


def test_the_step_that_failed_is_named():
    with pytest.raises(NotTransformed, match=r"step 1, json: no JSON, line 2, column 6"):
        Chain.parse("json > msgpack").apply('{\n "a" 1}')
    with pytest.raises(NotTransformed, match=r"step 2, text: a dict is no text"):
        Chain.parse("json > text").apply("{}")
