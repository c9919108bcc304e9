"""KQML: what is printed parses to the same, in both forms; what is wrong is said with its place."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadInput, BadKqml, MalformedFrame, TooLarge
from pluribus.core.limits import KQML_BYTES_MAX, KQML_DEPTH_MAX, KQML_PARAMETERS_MAX
from pluribus.wire import kqml_reader
from pluribus.wire.kqml import (
    Kqml,
    Quoted,
    Word,
    as_mapping,
    expression_of,
    from_binary,
    kqml,
    message_of,
    parse,
    plain,
    printed,
    printed_bytes,
    to_binary,
)

ALPHABET = "abcXYZ019<>=+-*/&^~_@$%:.!?"
words = st.text(ALPHABET, min_size=1, max_size=8).map(Word)
names = st.text(ALPHABET.replace(":", ""), min_size=1, max_size=8)
leaves = st.one_of(words, st.text(max_size=12), st.binary(max_size=12))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.builds(Quoted, st.just("'"), inner), st.builds(Quoted, st.just("`"), inner)
    ),
    max_leaves=12,
)
values = expressions.filter(lambda value: not (type(value) is Word and value.startswith(":")))
messages = st.builds(Kqml, names, st.dictionaries(names, values, max_size=6))


def shape(value):
    """What a value is, besides what it equals: a word is no string."""
    if isinstance(value, Kqml):
        return (value.performative, [(name, shape(inner)) for name, inner in value.parameters.items()])
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    if isinstance(value, Quoted):
        return (value.mark, shape(value.expression))
    return (type(value), value)


@given(messages)
def test_what_is_printed_parses_to_the_same(message: Kqml):
    text = printed(message)
    for form in (text, printed_bytes(message)):
        again = parse(form)
        assert shape(again) == shape(message)
        assert printed(again) == text
    assert shape(kqml_reader.read(text)) == shape(message), "the slow reader and the quick one agree"


@given(messages)
def test_the_binary_form_is_the_same_message(message: Kqml):
    assert shape(from_binary(to_binary(message))) == shape(message)


@given(st.one_of(st.text(alphabet="()\":#;\\'`, \nab1", max_size=30), st.binary(max_size=30)))
def test_any_text_is_a_message_or_a_located_error(text):
    try:
        message = parse(text)
    except BadKqml as error:
        complaint = error
    else:
        assert shape(parse(printed(message))) == shape(message)
        return
    assert complaint.line >= 1 and complaint.column >= 1 and complaint.remedy


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_malformed(data: bytes):
    try:
        message = from_binary(data)
    except MalformedFrame:
        return
    assert isinstance(message, Kqml)


@given(st.text(alphabet='()":\\ \nab1', max_size=30))
def test_the_quick_way_takes_what_the_slow_one_takes(text: str):
    def outcome(read):
        try:
            return shape(read(text))
        except BadKqml as error:
            return (error.line, error.column, error.reason)

    assert outcome(parse) == outcome(kqml_reader.read)


def test_the_messages_of_the_source():
    for what in ("joinMulticastGroup", "quitMulticastGroup"):
        text = f"(achieve :subprotocol MulticastGroupControl :content {what} :groupID groupname)"
        message = parse(text)
        assert message.performative == "achieve" and message["groupID"] == "groupname"
        assert type(message.content) is Word and str(message) == text


def test_the_grammar_whole():
    message = parse(
        """
        (ask-one ; a comment
           :content (PRICE IBM ?price (deeper "a \\"quoted\\" \\\\ text" ()))
           :language 'LPROLOG :template `(a ,b)
           :data #5"a")b ;:reply-with q1
        )
        """
    )
    assert message.content == ["PRICE", "IBM", "?price", ["deeper", 'a "quoted" \\ text', []]]
    assert message["language"] == Quoted("'", "LPROLOG")
    assert message["template"] == Quoted("`", ["a", Quoted(",", "b")])
    assert message["data"] == b'a")b ' and "reply-with" not in message
    assert str(message) == (
        '(ask-one :content (PRICE IBM ?price (deeper "a \\"quoted\\" \\\\ text" ())) '
        ':language \'LPROLOG :template `(a ,b) :data #5"a")b )'
    )


def test_bytes_and_other_alphabets():
    message = kqml("tell", content="Füße", data=b"\xff\x00)\xc3")
    assert parse(printed(message)) == message == parse(printed_bytes(message))
    assert parse('(tell :content "Füße" :data #2"ü)')["data"] == "ü".encode()


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("", 1, 1, "no message begins here"),
        ("tell", 1, 1, "no message begins here"),
        ("(", 1, 2, "the text ends where a performative is expected"),
        ("(:content x)", 1, 2, ":content is a parameter"),
        ("(tell\n  content x)", 2, 3, "'content' is no parameter"),
        ("(tell :content)", 1, 7, ":content has no value"),
        ("(tell :content :receiver x)", 1, 7, ":content has no value"),
        ("(tell :a 1 :a 2)", 1, 12, ":a is there twice"),
        ("(tell :a (b (c))", 1, 1, "this message is not closed"),
        ("(tell :a (b (c", 1, 13, "this list is not closed"),
        ('(tell\n:a "b', 2, 4, "this text is not closed"),
        ('(tell :a "b\\', 1, 10, "this text is not closed"),
        ('(tell :a #9"b)', 1, 10, "9 bytes are announced, 2 follow"),
        ('(tell :a #"b)', 1, 10, "a byte string without its length"),
        ("(tell :a ,b)", 1, 10, "a comma outside of a backquoted expression"),
        ("(tell :a [b])", 1, 10, "'[' is not an expression"),
        ("(tell :a b) c", 1, 13, "there is more behind the message"),
        ("(tell :ü x)", 1, 7, "':' is no parameter"),
        ('(tell :x "ü" :a #2"c', 1, 17, "2 bytes are announced, 1 follow"),
        ('(tell :a "\udcff")', 1, 10, "a text that is no UTF-8"),
        (b'(tell :a "\xff")', 1, 10, "a text that is no UTF-8"),
    ],
)
def test_an_error_says_where_and_why(text, line: int, column: int, reason: str):
    with pytest.raises(BadKqml) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column, error.reason) == (line, column, reason)
    assert f"line {line}, column {column}" in str(error) and error.remedy


def test_limits():
    deep = "(" * (KQML_DEPTH_MAX + 5) + "x" + ")" * (KQML_DEPTH_MAX + 5)
    with pytest.raises(BadKqml, match="exceed 32"):
        parse(f"(tell :content {deep})")
    fits = "(" * KQML_DEPTH_MAX + "x" + ")" * KQML_DEPTH_MAX
    message = parse(f"(tell :content {fits})")
    assert shape(parse(str(message))) == shape(from_binary(to_binary(message))) == shape(message)
    with pytest.raises(TooLarge):
        parse(f'(tell :content "{"x" * KQML_BYTES_MAX}")')
    with pytest.raises(TooLarge):
        kqml("tell", content="x" * KQML_BYTES_MAX)
    many = " ".join(f":p{number} x" for number in range(KQML_PARAMETERS_MAX + 1))
    with pytest.raises(BadKqml, match="more than 256 parameters"):
        parse(f"(tell {many})")
    with pytest.raises(TooLarge):
        printed(Kqml("tell", {f"p{number}": Word("x") for number in range(KQML_PARAMETERS_MAX + 1)}))
    endless: list = []
    endless.append(endless)
    for form in (printed, to_binary):
        with pytest.raises(TooLarge):
            form(Kqml("tell", {"content": endless}))
    with pytest.raises(MalformedFrame):
        from_binary(msgspec.msgpack.encode(("tell", {"content": _nested(60)})))
    with pytest.raises(MalformedFrame):
        from_binary(b"\x91" * 5_000)


def _nested(depth: int):
    return "x" if depth == 0 else [0, _nested(depth - 1)]


def test_python_values_become_expressions():
    message = kqml("tell", content=[1, 2.5, True, None, "text", b"b", ("x",)], reply_with=Word("q1"))
    assert str(message) == '(tell :content (1 2.5 true nil "text" #1"b ("x")) :reply-with q1)'
    assert message.changed("sorry", in_reply_to=Word("q1"), reply_with=None).parameters.keys() == {
        "content",
        "in-reply-to",
    }
    for wrong in ({"content": object()}, {"content": Word("a b")}, {"content": "\ud800"}, {"content": Word(":x")}):
        with pytest.raises(BadInput):
            kqml("tell", **wrong)
    with pytest.raises(BadInput):
        kqml("no word")


def test_a_message_inside_another():
    inner = kqml("ask-one", content=Word("temperature"))
    outer = kqml("subscribe", content=inner, reply_with=Word("s1"))
    assert str(outer) == "(subscribe :content (ask-one :content temperature) :reply-with s1)"
    assert parse(str(outer)).embedded() == inner and message_of(expression_of(inner)) == inner
    for other in (["tell", 1], [Word("tell"), Word("x"), Word("y")], [], [Word("tell"), Word(":a")]):
        assert message_of(other) is None
    assert inner.embedded() is None


def test_for_people_and_programs():
    message = parse('(tell :content (a "b" #1"c) :quoted \'d)')
    assert plain(message.content) == ["a", "b", b"c"] and plain(message["quoted"]) == "d"
    assert as_mapping(message) == {"performative": "tell", "content": ["a", "b", "c"], "quoted": "d"}
