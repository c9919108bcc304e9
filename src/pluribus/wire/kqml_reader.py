"""The slow reader of KQML texts, which knows line and column: for byte strings, quotations, comments and mistakes.

It reads one character after another. A text with byte strings it reads one byte after another, each as the character
with the same number. ``kqml`` states the grammar.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from ..core.errors import BadKqml, TooLarge
from ..core.limits import KQML_BYTES_MAX, KQML_DEPTH_MAX, KQML_PARAMETERS_MAX
from .kqml import WORD, Kqml, Quoted, Word

_word = re.compile(WORD).match
_blank = re.compile(r"(?:[ \t\r\n\f\v]|;[^\n]*)*").match
_digits = re.compile(r"[0-9]+").match
_plain = re.compile(r'[^"\\]*').match

CLOSES = "close it with )"


def read(text: str | bytes) -> Kqml:
    """The message, or ``BadKqml``."""
    return _Reader(text).message()


class _Reader:
    def __init__(self, text: str | bytes) -> None:
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        self._wide = b"#" in data or not isinstance(text, str)
        self._text: str = data.decode("latin-1") if self._wide or isinstance(text, bytes) else text
        self._at = 0
        if len(data) > KQML_BYTES_MAX:
            raise TooLarge(f"a KQML message of {len(data):,} bytes exceeds {KQML_BYTES_MAX:,}: send it in parts")

    def message(self) -> Kqml:
        self._skip()
        if not self._next("("):
            self._fail(self._at, "no message begins here", "begin with ( and a performative, such as (tell :content x)")
        begins = self._at
        self._skip()
        at = self._at
        performative = self._word("a performative")
        if performative[0] == ":":
            self._fail(at, f"{performative} is a parameter", "write the performative first, such as tell")
        parameters: dict[str, Any] = {}
        while True:
            self._skip()
            if self._next(")"):
                break
            at = self._at
            if at >= len(self._text):
                self._fail(begins - 1, "this message is not closed", CLOSES)
            name = self._word("a parameter")
            if name[0] != ":" or len(name) == 1:
                self._fail(at, f"{str(name)!r} is no parameter", "write :name and its value")
            if name[1:] in parameters:
                self._fail(at, f"{name} is there twice", "give each parameter once")
            if len(parameters) >= KQML_PARAMETERS_MAX:
                self._fail(at, f"more than {KQML_PARAMETERS_MAX} parameters", "put them into a list")
            self._skip()
            if self._peek() in (")", ":", ""):
                self._fail(at, f"{name} has no value", "write one behind it")
            parameters[name[1:]] = self._expression(0, False)
        self._skip()
        if self._at < len(self._text):
            self._fail(self._at, "there is more behind the message", "give one message a text")
        return Kqml(str(performative), parameters)

    def _expression(self, depth: int, commas: bool) -> Any:
        at = self._at
        if depth > KQML_DEPTH_MAX:
            self._fail(at, f"expressions inside each other exceed {KQML_DEPTH_MAX}", "flatten them")
        first = self._peek()
        if first == '"':
            return self._string()
        if first == "#":
            return self._bytes()
        if first in ("'", "`", ",") and first:
            if first == "," and not commas:
                self._fail(at, "a comma outside of a backquoted expression", "write a text in quotes")
            self._at += 1
            self._skip()
            return Quoted(first, self._expression(depth + 1, commas or first == "`"))
        if first == "(":
            self._at += 1
            found: list[Any] = []
            while True:
                self._skip()
                if self._next(")"):
                    return found
                if self._at >= len(self._text):
                    self._fail(at, "this list is not closed", CLOSES)
                found.append(self._expression(depth + 1, commas))
        return self._word("an expression")

    def _string(self) -> str:
        begins, parts = self._at, []
        self._at += 1
        while True:
            found = _plain(self._text, self._at)
            assert found is not None
            parts.append(found[0])
            self._at = found.end()
            if self._next('"'):
                break
            if self._at + 1 >= len(self._text):
                self._fail(begins, "this text is not closed", 'close it with "')
            parts.append(self._text[self._at + 1])
            self._at += 2
        return self._decoded("".join(parts), begins)

    def _bytes(self) -> bytes:
        begins = self._at
        digits = _digits(self._text, begins + 1)
        if digits is None or self._text[digits.end() : digits.end() + 1] != '"':
            self._fail(begins, "a byte string without its length", 'write #3"abc')
        if len(digits[0]) > len(str(KQML_BYTES_MAX)):
            self._fail(begins, "a byte string that is longer than any message", "write how many bytes follow")
        start = digits.end() + 1
        self._at = start + int(digits[0])
        if self._at > len(self._text):
            have = len(self._text) - start
            self._at = begins
            self._fail(begins, f"{digits[0]} bytes are announced, {have} follow", "write how many bytes follow")
        return self._text[start : self._at].encode("latin-1")

    def _decoded(self, text: str, at: int) -> str:
        try:
            if self._wide:
                return text.encode("latin-1").decode()
            text.encode()
            return text
        except UnicodeError:
            self._fail(at, "a text that is no UTF-8", 'write it as bytes, #3"abc')

    def _word(self, wanted: str) -> Word:
        found = _word(self._text, self._at)
        if found is None:
            seen = self._peek()
            what = f"{seen!r} is not {wanted}" if seen else f"the text ends where {wanted} is expected"
            self._fail(self._at, what, "use letters, digits and <>=+-*/&^~_@$%:.!?, or a text in quotes")
        self._at = found.end()
        return Word(found[0])

    def _skip(self) -> None:
        found = _blank(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _fail(self, at: int, reason: str, remedy: str) -> NoReturn:
        before, text = self._text[:at], self._text
        if self._wide:
            before, text = (part.encode("latin-1").decode("utf-8", "replace") for part in (before, text))
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise BadKqml.at(text, line, column, reason, remedy)
