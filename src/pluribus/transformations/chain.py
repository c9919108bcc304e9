"""A chain of steps, as data: read from a short text, applied to a body.

::

    chain   =  step  { ">" step }
    step    =  name  [ "(" [ option { "," option } ] ")" ]
    option  =  [ name "=" ] value            the first one may go without its name
    value   =  words, or "text" with the escapes \\" \\\\ \\t \\n \\r

    csv(delimiter=";", header=true) > clean > json
    struct(<ihd, names="n size price") > struct(>ihd, names="n size price")

*Formats stand in pairs.* The first of a pair reads, the second writes; a last one without a partner reads, and the body
is plain data then. A function of the user gets the result of the step before it: inside a pair the value that was read,
elsewhere the body itself. ``data > json`` writes JSON of a body that is plain data already.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from ..core.errors import BadInput, BadTransformation, NotTransformed
from ..core.limits import CHAIN_CHARS_MAX, CHAIN_STEPS_MAX
from .documents import JsonText, MessagePack, PlainData
from .markup import XmlText
from .records import BinaryRecord
from .registry import NAME, RESERVED, function_of, names
from .rows import CsvRows
from .steps import Format
from .texts import EncodedText

FORMATS: dict[str, tuple[type[Format], str]] = {
    "csv": (CsvRows, "delimiter"),
    "data": (PlainData, ""),
    "json": (JsonText, "encoding"),
    "msgpack": (MessagePack, ""),
    "struct": (BinaryRecord, "format"),
    "text": (EncodedText, "encoding"),
    "xml": (XmlText, "root"),
}
"""With the option that may be given without its name."""
assert FORMATS.keys() == RESERVED

READ, WRITE, CALL = "read", "write", "call"
_BARE = re.compile(r"""[^,()"'=]*""")
_SAFE = re.compile(r"[\w<!?>.-]+", re.ASCII)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_WORDS = {"tab": "\t", "space": " ", "comma": ","}
"""Delimiters that are awkward to write."""


class Step(NamedTuple):
    verb: str
    name: str
    format: Format | None
    """None for a function."""

    def apply(self, body: Any) -> Any:
        """Apply a format; functions are called by the code that runs the chain."""
        assert self.format is not None
        return self.format.read(body) if self.verb == READ else self.format.write(body)

    def __str__(self) -> str:
        return self.name if self.format is None else _written(self.name, self.format)


class Chain:
    """Made by ``Chain.parse``. ``str(chain)`` is a text with the same meaning."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps

    @classmethod
    def parse(cls, text: str) -> Chain:
        """Parse a text; ``BadTransformation`` says where it is no chain. Names that are no formats are functions;
        ``missing`` says whether they are registered."""
        return _Parser(text).chain()

    @property
    def functions(self) -> list[str]:
        """The names of the user's functions in it."""
        return [step.name for step in self.steps if step.format is None]

    @property
    def missing(self) -> list[str]:
        """Those of them that are not registered in this process."""
        return [name for name in self.functions if function_of(name) is None]

    def check_registered(self) -> None:
        """``BadInput`` if a function is not registered in this process."""
        for name in self.missing:
            known = f"; functions are {', '.join(names())}" if names() else ""
            raise BadInput(
                f"{name!r} is no format, and no function is registered here by that name: formats are "
                f"{', '.join(FORMATS)}{known}; register one with @pluribus.transformation({name!r})"
            )

    def apply(self, body: Any) -> Any:
        """The transformed body, by formats alone. ``NotTransformed`` says which step failed, and why."""
        for at, step in enumerate(self.steps, 1):
            try:
                body = step.apply(body)
            except Exception as error:  # noqa: BLE001 - bodies come from anywhere: whatever is wrong with one is a reason
                raise failed(at, step, error) from None
        return body

    def __str__(self) -> str:
        return " > ".join(map(str, self.steps))

    def __repr__(self) -> str:
        return f"<chain {self}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chain) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(str(self))


def failed(at: int, step: Step, error: BaseException) -> NotTransformed:
    """The error for a step, counted from 1, that did not transform a body."""
    if isinstance(error, NotTransformed):
        return NotTransformed(f"step {at}, {step.name}: {error}")
    return NotTransformed(f"step {at}, {step.name}: {type(error).__name__}: {error}")


class _Parser:
    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise BadInput(f"{text!r} is no chain: give text such as 'csv > json'")
        self._text = text
        self._at = 0
        if len(text) > CHAIN_CHARS_MAX:
            raise self._error(0, f"{len(text)} characters", f"at most {CHAIN_CHARS_MAX:,} are a chain")

    def chain(self) -> Chain:
        steps: list[Step] = []
        reads = True
        wrote = ""
        while True:
            self._space()
            start = self._at
            name = self._name()
            format = self._format(name, start)
            verb = CALL if format is None else READ if reads else WRITE
            if verb == READ and wrote and name != wrote and "text" not in (name, wrote):
                remedy = "formats stand in pairs, one that reads and one that writes, as in csv > json"
                raise self._error(start, f"{name} would read what {wrote} wrote", remedy)
            if format is None:
                wrote = ""
            else:
                wrote = "" if reads else name
                reads = not reads
            steps.append(Step(verb, name, format))
            if len(steps) > CHAIN_STEPS_MAX:
                raise self._error(start, f"more than {CHAIN_STEPS_MAX} steps", "make a function of some of them")
            self._space()
            if self._at == len(self._text):
                return Chain(tuple(steps))
            if self._text[self._at] != ">":
                raise self._error(self._at, f"{self._text[self._at]!r} stands here", "part steps by '>'")
            self._at += 1

    def _format(self, name: str, start: int) -> Format | None:
        options_at = self._at
        options = self._options()
        if name not in FORMATS:
            if options:
                remedy = "register another function, for instance with functools.partial"
                raise self._error(options_at, f"{name} is a function, and takes no options", remedy)
            return None
        kind, main = FORMATS[name]
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        given: dict[str, Any] = {}
        for at, option, value in options:
            option = option or (main if not given else "")
            known = f"its options are {', '.join(fields)}" if fields else "it has none"
            if option not in fields:
                raise self._error(at, f"{name} has no option {option or value!r}", known)
            if option in given:
                raise self._error(at, f"the option {option} is given twice", "give it once")
            given[option] = self._value(at, option, value, fields[option].type)
        lacking = [field.name for field in fields.values() if field.required and field.name not in given]
        if lacking:
            raise self._error(start, f"{name} needs {lacking[0]}", f"write {name}({lacking[0]}=…)")
        try:
            return kind(**given)
        except BadInput as error:
            reason, _, remedy = str(error).partition(": ")
            raise self._error(start, reason, remedy or f"see {name} in docs/transformations.md") from None

    def _value(self, at: int, option: str, value: str, kind: Any) -> Any:
        if kind is bool:
            if value not in ("true", "false"):
                raise self._error(at, f"{option}={value}", "write true or false")
            return value == "true"
        if kind is str:
            return _WORDS.get(value, value) if option in ("delimiter", "quote") else value
        return tuple(value.split())

    def _options(self) -> list[tuple[int, str, str]]:
        """Each option: its place, its name or nothing, and its value."""
        found: list[tuple[int, str, str]] = []
        if self._text[self._at : self._at + 1] != "(":
            return found
        opened = self._at
        self._at += 1
        while True:
            self._space()
            start = self._at
            value = self._text_value(opened)
            name = ""
            if self._text[self._at : self._at + 1] == "=":
                self._at += 1
                self._space()
                name, value = value, self._text_value(opened)
            there = self._at > start
            end = self._text[self._at : self._at + 1]
            if end not in (",", ")"):
                raise self._error(self._at, f"{end!r} stands in the options", "part them by ',', and end them by ')'")
            self._at += 1
            if there or end == ",":
                found.append((start, name, value))
            if end == ")":
                return found

    def _text_value(self, opened: int) -> str:
        if self._text[self._at : self._at + 1] in ('"', "'"):
            value = self._quoted()
            self._space()
        else:
            match = _BARE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            value = match.group().strip()
        if self._at == len(self._text):
            raise self._error(opened, "these options do not end", "end them by ')'")
        return value

    def _quoted(self) -> str:
        start, quote = self._at, self._text[self._at]
        found: list[str] = []
        self._at += 1
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == quote:
                return "".join(found)
            if character == "\\":
                escape = self._text[self._at : self._at + 1]
                if escape not in {*_ESCAPES, "'"}:
                    raise self._error(self._at - 1, f"\\{escape} is no escape", 'there are \\" \\\\ \\t \\n \\r')
                character = _ESCAPES.get(escape, escape)
                self._at += 1
            found.append(character)
        raise self._error(start, "this text does not end", f"end it by {quote}")

    def _name(self) -> str:
        match = NAME.match(self._text, self._at)
        if match is None:
            what = repr(self._text[self._at]) if self._at < len(self._text) else "the end"
            remedy = f"write the name of a format ({', '.join(FORMATS)}) or of a function of yours"
            raise self._error(self._at, f"{what} stands where a step begins", remedy)
        self._at = match.end()
        return match.group()

    def _space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _error(self, at: int, reason: str, remedy: str) -> BadTransformation:
        return BadTransformation.at(self._text, at + 1, reason, remedy)


def _written(name: str, format: Format) -> str:
    """A step as text; options with their default values are left out."""
    _, main = FORMATS[name]
    options: list[str] = []
    for field in msgspec.structs.fields(type(format)):
        value = getattr(format, field.name)
        if not field.required and value == field.default:
            continue
        if isinstance(value, bool):
            text = "true" if value else "false"
        else:
            text = value if isinstance(value, str) else " ".join(value)
            if not _SAFE.fullmatch(text) or text in _WORDS:
                text = '"' + "".join(_escaped(one) for one in text) + '"'
        options.append(text if field.name == main and not options else f"{field.name}={text}")
    return f"{name}({', '.join(options)})" if options else name


def _escaped(character: str) -> str:
    back = {value: key for key, value in _ESCAPES.items()}
    return f"\\{back[character]}" if character in back else character
