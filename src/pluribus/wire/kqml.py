"""KQML messages: a performative with named parameters, their text form and their binary form.

The grammar is that of the specification of 1993 (Finin and others), with comments::

    message     (word {:word expression})
    expression  word | "string" | #length"bytes | (expression …) | 'expression | `expression | ,expression
    word        letters, digits and < > = + - * / & ^ ~ _ @ $ % : . ! ?
    string      any characters; \\" is a quote and \\\\ a backslash, and so with any character behind a backslash
    bytes       exactly as many bytes as ``length`` says follow the quote; nothing closes them
    comment     from ; to the end of the line, wherever white space may be

Three things are decided here. A list may begin with any expression, and may be empty. A comma stands inside a
backquoted expression only. The value of a parameter does not begin with a colon, so that a forgotten value is found.

A word is a ``Word``, a string is a ``str``, a byte string is ``bytes``, a list is a ``list``. Words compare equal to
text, so that programs mostly need not know the difference. Texts with byte strings are read as bytes of UTF-8; in a
``str`` bytes that are no UTF-8 stand as surrogates (``surrogateescape``).

What is printed is canonical: one space between two things, no comment, no escape that is not needed, parameters in
their order. It parses to the same message. Errors are ``BadKqml`` with line and column, counted from 1.

Speed: one regular expression cuts a usual message into its parts. Unusual texts, and texts with a mistake, are read
again by the slower reader of ``kqml_reader``, which knows line and column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.errors import BadInput, MalformedFrame, TooLarge
from ..core.limits import KQML_BYTES_MAX, KQML_DEPTH_MAX, KQML_PARAMETERS_MAX

WORD = r"[A-Za-z0-9<>=+\-*/&^~_@$%:.!?]+"
SPELLED = {"reply_with": "reply-with", "in_reply_to": "in-reply-to"}
"""Parameters whose names are no Python names, as keywords of ``kqml``."""

_is_word = re.compile(WORD).fullmatch
_cut = re.compile(rf'[()]|{WORD}|"(?:[^"\\]|\\.)*"|\S', re.DOTALL).findall
_unescape = re.compile(r"\\(.)", re.DOTALL).sub
_WORD_BEGINS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789<>=+-*/&^~_@$%:.!?")


class Word(str):
    """A word of KQML. It is printed without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Word({str(self)!r})"


class Quoted(msgspec.Struct, frozen=True):
    """A quotation: the mark (``'``, a backquote or a comma) and the expression behind it."""

    mark: str
    expression: Any


Expression = Any
"""``Word``, ``str``, ``bytes``, ``Quoted``, or a list of expressions."""


class Kqml(msgspec.Struct, frozen=True):
    """A message: what its sender wants (``ask-one``, ``tell``, …), and the parameters, by name without the colon."""

    performative: str
    parameters: dict[str, Expression] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a parameter; ``default`` if there is none."""
        return self.parameters.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def __contains__(self, name: object) -> bool:
        return name in self.parameters

    @property
    def content(self) -> Any:
        """The value of ``:content``; None if there is none."""
        return self.parameters.get("content")

    def changed(self, performative: str | None = None, **parameters: Any) -> Kqml:
        """A copy with other parameters, spelled as those of ``kqml``; None takes one away."""
        merged = {**self.parameters, **{SPELLED.get(name, name): value for name, value in parameters.items()}}
        kept = {name: value for name, value in merged.items() if value is not None}
        return Kqml(performative or self.performative, kept)

    def embedded(self) -> Kqml | None:
        """The message in ``:content``, such as the question of a ``subscribe``; None if the content is no message."""
        content = self.content
        return None if not isinstance(content, list) else message_of(content)

    def __str__(self) -> str:
        return printed(self)


def kqml(performative: str, **parameters: Any) -> Kqml:
    """A message from Python values: ``kqml("ask-one", content="price", reply_with="q1")``.

    Text becomes a string, ``Word`` a word, bytes a byte string, numbers, true, false and nil words, lists and tuples
    lists. ``reply_with`` and ``in_reply_to`` are written with hyphens; other names are taken as they are.
    """
    found = Kqml(performative, {SPELLED.get(name, name): _expression(value) for name, value in parameters.items()})
    printed(found)  # what cannot be printed is said now, and not when it is sent
    return found


def name_of(text: str) -> str:
    """A name as a value: a word if it can be one, else a text."""
    return Word(text) if _is_word(text) and text[0] != ":" else text


def message_of(expression: list[Any]) -> Kqml | None:
    """A list as the message that it spells; None if it is none."""
    if len(expression) % 2 == 0:
        return None
    head, names, values = expression[0], expression[1::2], expression[2::2]
    if type(head) is not Word or not all(type(name) is Word and len(name) > 1 and name[0] == ":" for name in names):
        return None
    parameters = {name[1:]: value for name, value in zip(names, values, strict=True)}
    return Kqml(str(head), parameters) if len(parameters) == len(names) else None


def expression_of(message: Kqml) -> list[Any]:
    """A message as the list that spells it, to be the content of another."""
    spelled: list[Any] = [Word(message.performative)]
    for name, value in message.parameters.items():
        spelled += (Word(f":{name}"), value)
    return spelled


def parse(text: str | bytes) -> Kqml:
    """The message that a text spells. ``BadKqml`` says where it is wrong, ``TooLarge`` which limit it breaks."""
    if len(text) > KQML_BYTES_MAX:
        raise TooLarge(f"a KQML message of {len(text):,} bytes exceeds {KQML_BYTES_MAX:,}: send it in parts")
    if text.isascii():
        try:
            found = _quickly(text if isinstance(text, str) else text.decode())
        except (IndexError, ValueError):
            found = None
        if found is not None:
            return found
    from .kqml_reader import read

    return read(text)


def _quickly(text: str) -> Kqml | None:
    """The same for usual texts; None, ``IndexError`` or ``ValueError`` for others, right or wrong."""
    if "#" in text or ";" in text:
        return None
    tokens = _cut(text)
    last = len(tokens) - 1
    head = tokens[1]
    if tokens[0] != "(" or tokens[last] != ")" or head[0] not in _WORD_BEGINS or head[0] == ":":
        return None
    parameters: dict[str, Any] = {}
    at, count = 2, 0
    while at < last:
        name, value = tokens[at], tokens[at + 1]
        if name[0] != ":" or len(name) == 1:
            return None
        first = value[0]
        if first == '"':
            at += 2
            parameters[name[1:]] = _string(value)
        elif first == "(":
            at, parameters[name[1:]] = _list(tokens, at + 1)
        elif first in _WORD_BEGINS and first != ":":
            at += 2
            parameters[name[1:]] = Word(value)
        else:
            return None
        count += 1
    return Kqml(head, parameters) if at == last and count == len(parameters) <= KQML_PARAMETERS_MAX else None


def _string(token: str) -> str:
    if len(token) == 1:
        raise ValueError("a quote that nothing closes")
    return _unescape(r"\1", token[1:-1]) if "\\" in token else token[1:-1]


def _list(tokens: list[str], at: int) -> tuple[int, list[Any]]:
    """The list that begins at a token, and the place behind it."""
    whole: list[Any] = []
    under_way: list[list[Any]] = []
    inner = whole
    while True:
        at += 1
        token = tokens[at]
        first = token[0]
        if first == ")":
            if not under_way:
                return at + 1, whole
            inner = under_way.pop()
        elif first == "(":
            under_way.append(inner)
            if len(under_way) >= KQML_DEPTH_MAX:
                raise ValueError("too deep")
            deeper: list[Any] = []
            inner.append(deeper)
            inner = deeper
        elif first == '"':
            inner.append(_string(token))
        elif first in _WORD_BEGINS:
            inner.append(Word(token))
        else:
            raise ValueError("something unusual")


def printed(message: Kqml) -> str:
    """The canonical text. ``BadInput`` says what cannot be printed, ``TooLarge`` which limit it breaks."""
    if len(message.parameters) > KQML_PARAMETERS_MAX:
        raise TooLarge(f"{len(message.parameters)} parameters exceed {KQML_PARAMETERS_MAX}: put them into a list")
    parts = [f"({_checked_word(message.performative, 'the performative')}"]
    for name, value in message.parameters.items():
        if type(value) is Word and value[:1] == ":":
            raise BadInput(f":{name} has the value {str(value)!r}, which reads as a name: put it into a list or a text")
        parts.append(f":{_checked_word(name, 'the parameter')} {_text(value, 0)}")
    text = " ".join(parts) + ")"
    if len(text) > KQML_BYTES_MAX or len(text.encode("utf-8", "surrogateescape")) > KQML_BYTES_MAX:
        raise TooLarge(f"a KQML message of {len(text):,} bytes exceeds {KQML_BYTES_MAX:,}: send it in parts")
    return text


def printed_bytes(message: Kqml) -> bytes:
    """The canonical text as bytes of UTF-8, byte strings as they are."""
    return printed(message).encode("utf-8", "surrogateescape")


def _text(value: Any, depth: int) -> str:
    if depth > KQML_DEPTH_MAX:
        raise TooLarge(f"expressions inside each other exceed {KQML_DEPTH_MAX}: flatten them")
    if type(value) is Word:
        return _checked_word(value, "the word")
    if isinstance(value, str):
        return '"' + _clean(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bytes):
        return f'#{len(value)}"' + value.decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return "(" + " ".join([_text(inner, depth + 1) for inner in value]) + ")"
    if isinstance(value, Quoted):
        if value.mark not in ("'", "`", ","):
            raise BadInput(f"{value.mark!r} is no mark of a quotation: use ' or ` or ,")
        return value.mark + _text(value.expression, depth + 1)
    return _text(_expression(value), depth)


def _clean(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{text[:40]!r} is no text that can travel: send it as bytes") from None
    return text


def _checked_word(word: str, what: str) -> str:
    if not _is_word(word) or (what != "the word" and word[0] == ":"):
        raise BadInput(f"{what} {word!r} is no word of KQML: use letters, digits and <>=+-*/&^~_@$%:.!? alone")
    return word


def _expression(value: Any) -> Any:
    """A Python value as an expression."""
    if isinstance(value, str | bytes | Quoted):
        return value
    if value is None or isinstance(value, bool):
        return Word("nil" if value is None else str(value).lower())
    if isinstance(value, int | float):
        return Word(repr(value))
    if isinstance(value, list | tuple):
        return [_expression(inner) for inner in value]
    if isinstance(value, Kqml):
        return expression_of(value)
    raise BadInput(f"a {type(value).__name__} is no expression of KQML: use text, bytes, numbers or lists of these")


# The binary form: msgpack of (performative, {name: value}). A word is text, a byte string is bytes, a string is an
# array of its text alone, a list is an array that begins with 0, a quotation one that begins with 1.

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, dict[str, Any]]).decode


def to_binary(message: Kqml) -> bytes:
    """The binary form; raises as ``printed`` does."""
    found = _encode((message.performative, {name: _packed(value, 0) for name, value in message.parameters.items()}))
    if len(found) > KQML_BYTES_MAX or len(message.parameters) > KQML_PARAMETERS_MAX:
        raise TooLarge(f"a KQML message of {len(found):,} bytes exceeds {KQML_BYTES_MAX:,}: send it in parts")
    return found


def from_binary(data: bytes) -> Kqml:
    """The message again; ``MalformedFrame`` if it is none."""
    if len(data) > KQML_BYTES_MAX:
        raise MalformedFrame(f"a KQML message of {len(data):,} bytes: the limit is {KQML_BYTES_MAX:,}")
    try:
        performative, packed = _decode(data)
        _checked_word(performative, "the performative")
        for name in packed:
            _checked_word(name, "the parameter")
        if len(packed) > KQML_PARAMETERS_MAX:
            raise BadInput(f"{len(packed)} parameters")
        return Kqml(performative, {name: _unpacked(value, 0) for name, value in packed.items()})
    except (msgspec.MsgspecError, UnicodeDecodeError, BadInput, RecursionError) as error:
        raise MalformedFrame(f"bytes that are no KQML message: {error}") from None


def _packed(value: Any, depth: int) -> Any:
    if depth > KQML_DEPTH_MAX:
        raise TooLarge(f"expressions inside each other exceed {KQML_DEPTH_MAX}: flatten them")
    if type(value) is Word:
        return str(value)
    if isinstance(value, str):
        return (_clean(value),)
    if isinstance(value, bytes):
        return value
    if isinstance(value, list):
        return [0, *[_packed(inner, depth + 1) for inner in value]]
    if isinstance(value, Quoted):
        return (1, value.mark, _packed(value.expression, depth + 1))
    return _packed(_expression(value), depth)


def _unpacked(value: Any, depth: int) -> Any:
    if depth > KQML_DEPTH_MAX:
        raise BadInput("too deep")
    if type(value) is str:
        return Word(_checked_word(value, "the word"))
    if type(value) is bytes:
        return value
    if type(value) is list and value:
        if value[0] == 0 and type(value[0]) is int:
            return [_unpacked(inner, depth + 1) for inner in value[1:]]
        if len(value) == 1 and type(value[0]) is str:
            return value[0]
        if len(value) == 3 and value[0] == 1 and value[1] in ("'", "`", ","):
            return Quoted(value[1], _unpacked(value[2], depth + 1))
    raise BadInput(f"{value!r:.60} is no expression")


def plain(value: Any) -> Any:
    """An expression as a Python program would write it: words and strings as text, lists of these."""
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return plain(value.expression) if isinstance(value, Quoted) else value


def as_mapping(message: Kqml) -> Mapping[str, Any]:
    """For JSON: the performative and the parameters, byte strings as text where they are."""
    return {"performative": message.performative, **{name: _json(value) for name, value in message.parameters.items()}}


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [_json(inner) for inner in value]
    return _json(value.expression) if isinstance(value, Quoted) else str(value)
