"""Each format: what it reads and writes, and what it refuses rather than bend."""

import sys
from datetime import UTC, datetime

import msgspec
import pytest

import pluribus
from pluribus.core.errors import NotTransformed
from pluribus.core.limits import DOCUMENT_DEPTH_MAX
from pluribus.transformations import markup, steps
from pluribus.transformations.chain import Chain
from pluribus.wire.bodies import Opaque

ORDERS = [{"id": "1", "name": "a;b"}, {"id": "2", "name": 'say "x"'}]


def made(chain, body):
    return Chain.parse(chain).apply(body)


def refused(chain, body, sentence):
    with pytest.raises(NotTransformed) as caught:
        made(chain, body)
    assert sentence in str(caught.value), str(caught.value)


def test_json_and_messagepack():
    value = {"a": [1, 2.5, None, True, "ü"], "n": 2**63}
    packed = made("json > msgpack", '{"a": [1, 2.5, null, true, "ü"], "n": 9223372036854775808}')
    assert msgspec.msgpack.decode(packed) == value
    assert made("msgpack > json", packed) == '{"a":[1,2.5,null,true,"ü"],"n":9223372036854775808}'
    assert made("json(latin-1) > json(encoding=utf-16-le)", b'"\xfc"') == '"ü"'.encode("utf-16-le")
    assert made("json", b"[1]") == [1]
    when = datetime(2026, 11, 18, 20, 15, tzinfo=UTC)
    assert made("data > json", {"at": when, "raw": b"\0\1"}) == '{"at":"2026-11-18T20:15:00+00:00","raw":"AAE="}'


@pytest.mark.parametrize(
    ("chain", "body", "sentence"),
    [
        ("json > data", '{"a": 1, "a": 2}', "'a' stands twice"),
        ("json > data", "[NaN]", "NaN is no JSON"),
        ("json > data", "[1e999]", "beyond what a number"),
        ("json > data", '{"a": 1} x', "column 10: Extra data"),
        ("json > data", b"\xff", "not utf-8, from byte 0 on"),
        ("json > data", {"a": 1}, "a body of type dict is no JSON"),
        ("json > data", "[" * 5_000 + "]" * 5_000, "nested"),
        ("json > data", "[" * (DOCUMENT_DEPTH_MAX + 1) + "]" * (DOCUMENT_DEPTH_MAX + 1), "nested deeper"),
        ("json > msgpack", str(2**64), "cannot be written as MessagePack"),
        ("data > json", [float("inf")], "inf cannot be written as JSON"),
        ("data > json", {1: "a", "1": "b"}, "the key 1 is no text"),
        ("msgpack > json", "text", "that is bytes"),
        ("msgpack > json", b"\xc1", "no MessagePack"),
        ("msgpack > json", b"\x01\x01", "no MessagePack"),
        ("msgpack > json", msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x")), "Ext"),
        ("data", object(), "is no plain data"),
    ],
)
def test_documents_that_are_refused(chain, body, sentence):
    refused(chain, body, sentence)


class Sold(msgspec.Struct):
    book: str
    copies: int


def test_registered_types_are_data_by_their_fields():
    pluribus.register(Sold, "transformations-sold")
    assert made("data > json", Sold("Dune", 2)) == '{"book":"Dune","copies":2}'
    unknown = Opaque("somebody's", msgspec.msgpack.encode({"book": "Dune", "copies": 2}))
    assert made("data > json", unknown) == '{"book":"Dune","copies":2}'


def test_csv():
    text = 'id;name\r\n1;"a;b"\r\n2;"say ""x"""\r\n'
    assert made('csv(";")', text) == ORDERS
    assert made('data > csv(";")', ORDERS) == text
    assert made("csv(header=false)", "1,2\n\n3,4\n") == [["1", "2"], ["3", "4"]], "a blank line is no row"
    assert made("csv(header=false, columns='a b')", "1,2\n") == [{"a": "1", "b": "2"}]
    assert made("csv(tab) > csv(header=false)", "a\tb\n1\t2\n") == "1,2\r\n"
    assert made("data > csv(columns='b a')", {"a": 1, "b": None}) == "b,a\r\n,1\r\n"
    assert made("csv > csv(encoding=utf-16-le)", b"a\n1\n") == "a\r\n1\r\n".encode("utf-16-le")
    assert made("csv", "a,b\n") == [] and made("data > csv(columns='a b')", []) == "a,b\r\n"


@pytest.mark.parametrize(
    ("chain", "body", "sentence"),
    [
        ("csv", "", "it is empty"),
        ("csv", "a,a\n1,2\n", "names 'a' twice"),
        ("csv", "a,b\n1,2\n3\n", "line 3 has 1 fields, and not 2"),
        ("csv", 'a\n"1\n', "no CSV"),
        ("csv", "a\n" + "x" * 200_000 + "\n", "field larger"),
        ("csv(columns='a b')", "a,c\n1,2\n", "the header is ['a', 'c']"),
        ("data > csv", [[1, 2]], "no names for the header"),
        ("data > csv", [{"a": 1}, {"b": 1}], "row 2 has the names ['b'], and not ['a']"),
        ("data > csv", [{"a": [1]}], "has no place for a list"),
        ("data > csv", 7, "a int has no rows"),
        ("data > csv(header=false)", [[]], "row 1 has 0 fields"),
        ("data > csv(encoding=ascii)", [{"a": "ü"}], "'ü', at 3, is not in ascii"),
    ],
)
def test_rows_that_are_refused(chain, body, sentence):
    refused(chain, body, sentence)


def test_byte_order_of_structs():
    little = bytes.fromhex("01000000 0200 000000000000f03f")
    assert made("struct(<ihd) > struct(>ihd)", little) == bytes.fromhex("00000001 0002 3ff0000000000000")
    assert made("struct(<ihd, names='n size price')", little) == {"n": 1, "size": 2, "price": 1.0}
    many = made("struct(<i4s, names='n name', many=true, encoding=ascii) > json", b"\1\0\0\0ab\0\0\2\0\0\0wxyz")
    assert many == '[{"n":1,"name":"ab"},{"n":2,"name":"wxyz"}]'
    back = made("json > struct(<i4s, names='n name', many=true, encoding=ascii)", many)
    assert back == b"\1\0\0\0ab\0\0\2\0\0\0wxyz"
    assert made("struct(<i, many=true)", b"") == []


@pytest.mark.parametrize(
    ("chain", "body", "sentence"),
    [
        ("struct(<ih)", b"123", "3 bytes, and struct(<ih) is 6"),
        ("struct(<ih, many=true)", b"1234567", "no whole number of records of 6"),
        ("struct(<i)", "text", "that is bytes"),
        ("data > struct(<b)", [200], "it does not fit"),
        ("data > struct(<b)", [1, 2], "it does not fit"),
        ("data > struct(<b)", {"a": 1}, "say names="),
        ("data > struct(<b, names=a)", {"b": 1}, "has the fields ['b'], and not ['a']"),
        ("data > struct(<b4s)", [1, b"12345"], "5 bytes do not fit the field 4s"),
        ("data > struct(<b4p)", [1, b"1234"], "4 bytes do not fit the field 4p"),
        ("struct(<4s, encoding=ascii)", b"\xff\0\0\0", "not ascii"),
        ("data > struct(<i)", 7, "a int is no record"),
        ("data > struct(<i, many=true)", 7, "no list of records"),
    ],
)
def test_records_that_are_refused(chain, body, sentence):
    refused(chain, body, sentence)


def test_text():
    assert made("text(latin-1) > text", b"\xfc") == b"\xc3\xbc"
    assert made("text(cp1252)", b"\x80") == "€" and made("text > text(utf-16-be)", "ab") == b"\0a\0b"
    refused("text(utf-8) > text(latin-1)", "€".encode(), "'€', at 0, is not in latin-1")
    refused("text(ascii)", b"a\xfc", "not ascii, from byte 1 on")
    refused("text", 7, "a body of type int is no text")


def test_short_xml():
    text = '<order id="7"><item>a</item><item>b &amp; c</item><note/><by at="x">me</by></order>'
    value = {"order": {"@id": "7", "item": ["a", "b & c"], "note": None, "by": {"@at": "x", "#text": "me"}}}
    assert made("xml", text) == value and made("data > xml", value) == text
    assert made("xml(order)", text) == value["order"] and made("data > xml(order)", value["order"]) == text
    assert made("data > xml(n)", {"a": [1, 2.5, True], "b": {"c": None}}) == (
        "<n><a>1</a><a>2.5</a><a>true</a><b><c/></b></n>"
    )
    assert made("xml > xml(encoding=latin-1)", "<a>ü</a>") == (
        '<?xml version="1.0" encoding="latin-1"?>\n<a>ü</a>'.encode("latin-1")
    )
    assert made("xml", b'<?xml version="1.0" encoding="iso-8859-1"?><a>\xfc</a>') == {"a": "ü"}
    assert made("xml(encoding=latin-1)", b"<a>\xfc</a>") == {"a": "ü"}
    assert made("xml", "<a>\n  <b>1</b>\n</a><!-- c -->") == {"a": {"b": "1"}}
    assert made("xml", "\ufeff<a>x&#13;y</a>") == {"a": "x\ry"} and made("data > xml", {"a": "\r"}) == "<a>&#13;</a>"
    assert made("xml > json", "<äö>x</äö>") == '{"äö":"x"}' and made("data > xml", {"äö": "x"}) == "<äö>x</äö>"


def test_xml_as_a_tree():
    text = '<p class="x">one <b>two</b> three<br/><b/></p>'
    tree = ["p", {"class": "x"}, "one ", ["b", "two"], " three", ["br"], ["b"]]
    assert made("xml(tree=true)", text) == tree and made("data > xml(tree=true)", tree) == text
    assert made("xml(tree=true) > json", text).startswith('["p",{"class":"x"},"one "')


BILLION_LAUGHS = """<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">]>
<l>&b;</l>"""
FETCHES = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
FETCHES_RULES = '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>'
PARAMETER = '<!DOCTYPE a [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><a/>'


@pytest.mark.parametrize("text", [BILLION_LAUGHS, FETCHES, FETCHES_RULES, PARAMETER, "<!DOCTYPE a><a/>"])
@pytest.mark.parametrize("options", ["", "(tree=true)", "(encoding=utf-8)"])
@pytest.mark.parametrize("encode", [str, str.encode], ids=["text", "bytes"])
def test_xml_with_a_doctype_is_refused(text, options, encode):
    refused(f"xml{options} > json", encode(text), "a DOCTYPE or an entity, which is refused")


@pytest.mark.parametrize(
    ("chain", "body", "sentence"),
    [
        ("xml", "<a>&x;</a>", "no XML, line 1, column 4: undefined entity"),
        ("xml", "<a>", "no element found"),
        ("xml", "<a></b>", "mismatched tag"),
        ("xml", "<a/><b/>", "junk after document element"),
        ("xml", '<a x="1" x="2"/>', "duplicate attribute"),
        ("xml", "", "no element found"),
        ("xml", "<a>\x00</a>", "no XML"),
        ("xml", "<a>\ud800</a>", "half a character"),
        ("xml", b'<?xml version="1.0" encoding="klingon"?><a/>', "no XML"),
        ("xml", "<a>x<b/></a>", "text between the elements of <a>: read it with xml(tree=true)"),
        ("xml", "<a><b/><c/><b/></a>", "the elements <b> of <a> are parted"),
        ("xml(b)", "<a/>", "its outermost element is <a>, and not <b>"),
        ("xml", "<a>" * 200 + "</a>" * 200, "nested deeper than"),
        ("data > xml", {"a": 1, "b": 2}, "one outermost element"),
        ("data > xml", [1], "one outermost element"),
        ("data > xml", {"a": [1, 2]}, "a list in a list"),
        ("data > xml", {"a": {"#text": "x", "b": 1}}, "text beside elements"),
        ("data > xml", {"a b": 1}, "'a b' is no name"),
        ("data > xml", {"1a": 1}, "is no name"),
        ("data > xml", {"a": "\x01"}, "cannot be in XML"),
        ("data > xml", {"a": float("nan")}, "nan cannot be written"),
        ("data > xml(tree=true)", [], "an element of the tree is a list"),
        ("data > xml(tree=true)", ["a", {"x": [1]}], "an attribute of XML has no place for a list"),
    ],
)
def test_xml_that_is_refused(chain, body, sentence):
    refused(chain, body, sentence)


def test_limits_of_documents(monkeypatch):
    monkeypatch.setattr(markup, "XML_ELEMENTS_MAX", 10)
    refused("xml(tree=true)", f"<a>{'<b/>' * 10}</a>", "more than 10 elements")
    monkeypatch.setattr(steps, "DOCUMENT_BYTES_MAX", 100)
    for chain, body in (("json", "1" * 101), ("xml", "<a>" + " " * 100), ("csv", b"a" * 101), ("msgpack", b"\0" * 101)):
        refused(chain, body, "at most 100 are transformed")
    refused("data > json", "x" * 100, "at most 100 are transformed")
    assert sys.getrecursionlimit() > 5 * DOCUMENT_DEPTH_MAX, "the walks over documents need room"
