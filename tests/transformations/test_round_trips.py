"""Which pairs of formats lose nothing, as the table of docs/transformations.md says."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import NotTransformed
from pluribus.transformations.chain import Chain

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
data = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def made(chain, body):
    return Chain.parse(chain).apply(body)


def same(one, other):
    """Also as to types: 1 and 1.0 and True are three values."""
    return repr(one) == repr(other)


@given(data)
def test_data_json_messagepack_and_back(value):
    text = made("data > json", value)
    assert same(made("json", text), value)
    packed = made("json > msgpack", text)
    assert same(made("msgpack", packed), value)
    assert made("msgpack > json", packed) == text


@given(data, st.sampled_from(["utf-8", "utf-16-le", "utf-32"]))
def test_json_in_any_encoding_that_has_all_characters(value, encoding):
    assert same(made(f"json({encoding})", made(f"data > json({encoding})", value)), value)


@given(st.binary(max_size=50), st.sampled_from(["latin-1", "cp437", "koi8-r"]))
def test_every_byte_of_these_encodings_is_a_character(body, encoding):
    assert made(f"text > text({encoding})", made(f"text({encoding}) > text", body)) == body


@given(texts, st.sampled_from(["utf-8", "utf-16-le", "utf-16", "utf-32-be", "cp1252", "ascii", "shift_jis"]))
def test_a_text_comes_back_or_is_refused(text, encoding):
    try:
        encoded = made(f"text > text({encoding})", text)
    except NotTransformed:
        return
    assert encoded == text.encode(encoding)
    if encoding != "shift_jis":  # which has two characters that read as others
        assert made(f"text({encoding})", encoded) == text


fields = st.sampled_from(["b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "3s", "2h"])


@given(st.lists(fields, min_size=1, max_size=6).map("".join), st.data())
def test_byte_order_there_and_back(format, draw):
    size = struct.calcsize(f"<{format}")
    body = draw.draw(st.binary(min_size=size, max_size=size))
    read = struct.unpack(f"<{format}", body)
    if any(one != one for one in read):
        return  # NaN: which one it is may change
    turned = made(f"struct(<{format}) > struct(>{format})", body)
    assert struct.unpack(f">{format}", turned) == read
    assert made(f"struct(>{format}) > struct(<{format})", turned) == body


rows = st.integers(1, 4).flatmap(
    lambda width: st.tuples(
        st.lists(texts, min_size=width, max_size=width, unique=True),
        st.lists(st.lists(texts, min_size=width, max_size=width), max_size=5),
    )
)
options = st.sampled_from(["", "(;)", "(tab)", '(delimiter=|, quote="\'")'])


@given(rows, options)
def test_rows_of_texts_and_csv(table, option):
    names, values = table
    value = [dict(zip(names, row, strict=True)) for row in values]
    if value:
        assert made(f"csv{option}", made(f"data > csv{option}", value)) == value
        inside = option[1:-1] + ", " if option else ""
        bare = f"csv({inside}header=false)"
        assert made(bare, made(f"data > {bare}", values)) == values


letters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from(
    "\t\n\r<>&\"'"
)
words = st.text(letters, max_size=10)
tags = st.sampled_from(["a", "b", "order", "x:y", "_n-1.2", "ü"])
attributes = st.dictionaries(tags, words, max_size=3)


def _merged(content):
    """Texts beside each other are one, and an empty one is none."""
    found = []
    for one in content:
        if isinstance(one, str) and found and isinstance(found[-1], str):
            found[-1] += one
        elif one != "":
            found.append(one)
    return found


trees = st.recursive(
    tags.map(lambda tag: [tag]),
    lambda inner: st.builds(
        lambda tag, given, content: [tag, *([given] if given else []), *_merged(content)],
        tags,
        attributes,
        st.lists(words | inner, max_size=4),
    ),
    max_leaves=10,
)


@given(trees)
def test_trees_and_xml(tree):
    text = made("data > xml(tree=true)", tree)
    assert made("xml(tree=true)", text) == tree
    assert made("xml(tree=true) > xml(tree=true)", text) == text


filled = st.text(letters, min_size=1, max_size=10)
short = st.recursive(
    st.none() | filled,
    lambda inner: st.dictionaries(tags, inner | st.lists(inner, min_size=2, max_size=3), min_size=1, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(tags, short, min_size=1, max_size=1))
def test_short_xml_of_texts(value):
    text = made("data > xml", value)
    assert made("xml", text) == value


@given(
    st.binary(max_size=200),
    st.sampled_from(["json", "xml", "xml(tree=true)", "csv", "msgpack", "struct(<ih4s)", "text"]),
)
def test_any_bytes_are_read_or_refused_with_a_reason(body, reader):
    try:
        value = made(reader, body)
    except NotTransformed as error:
        reason = str(error)
    else:
        reason = "none: it was read, and the same a second time"
        assert repr(made(f"{reader} > data", body)) == repr(value)
    assert len(reason) > 20


@given(
    data | st.binary(max_size=20),
    st.sampled_from(["json", "xml", "xml(a)", "xml(tree=true)", "csv", "msgpack", "struct(<ih)"]),
)
def test_any_data_is_written_or_refused_with_a_reason(value, writer):
    try:
        written = made(f"data > {writer}", value)
    except NotTransformed as error:
        reason = str(error)
    else:
        reason = "none: it was written, and is well formed"
        made(writer, written)
    assert len(reason) > 20
