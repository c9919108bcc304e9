"""XML, safely: a document with a DOCTYPE is refused before anything of it is used, so there are no entities, no files
and no addresses to be fetched; elements, depth and size are limited.

Two shapes. The *short* one is what people expect of data: ``<order id="7"><item>a</item><item>b</item></order>`` is
``{"order": {"@id": "7", "item": ["a", "b"]}}``. It has no place for text between elements, nor for elements of one name
with others between them: such documents are refused. The *tree* (``tree=true``) has a place for both: each element is a
list, ``["order", {"id": "7"}, ["item", "a"], ["item", "b"]]``. Comments and processing instructions are in neither.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NoReturn
from xml.parsers import expat

from ..core.errors import BadInput, NotTransformed
from ..core.limits import XML_ELEMENTS_MAX
from .steps import Format, Plain, checked_encoding, checked_size, deeper, encoded_text, scalar_text, text_of

Element = tuple[str, dict[str, str], list[Any]]
"""Name, attributes, content: texts and elements."""

SPACE = " \t\r\n"
_NAME = re.compile(r"[A-Za-z_:][\w:.-]*", re.ASCII)
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_IN_TEXT = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_IN_ATTRIBUTE = {**_IN_TEXT, '"': "&quot;", "\t": "&#9;", "\n": "&#10;"}


class XmlText(Format, frozen=True, kw_only=True):
    """``root`` is the name of the outermost element; with it, that element is not part of the value."""

    root: str = ""
    tree: bool = False
    encoding: str = ""

    def __post_init__(self) -> None:
        if self.encoding:
            checked_encoding(self.encoding)
        if self.root and not _is_name(self.root):
            raise BadInput(f"root={self.root!r} is no name of an element")
        if self.root and self.tree:
            raise BadInput("a tree has its root in it: leave root= out")

    def read(self, body: Any) -> Plain:
        if isinstance(body, bytes) and not self.encoding:
            element = _Reader(None).read(checked_size(body, "XML"))  # the encoding that the document declares, or UTF-8
        else:
            text = text_of(body, self.encoding, "XML").removeprefix("\ufeff")
            try:
                element = _Reader("utf-8").read(text.encode())
            except UnicodeEncodeError:
                raise NotTransformed("no XML: it has half a character (a surrogate)") from None
        if self.tree:
            return _tree(element)
        if self.root and element[0] != self.root:
            raise NotTransformed(f"its outermost element is <{element[0]}>, and not <{self.root}>")
        value = _short(element)
        return value if self.root else {element[0]: value}

    def write(self, value: Plain) -> Any:
        out: list[str] = []
        if self.encoding:
            out.append(f'<?xml version="1.0" encoding="{self.encoding}"?>\n')
        if self.tree:
            _write_tree(value, out, 0)
        elif self.root:
            _write_short(self.root, value, out, 0)
        elif isinstance(value, dict) and len(value) == 1:
            ((name, content),) = value.items()
            _write_short(name, content, out, 0)
        else:
            raise NotTransformed("a document has one outermost element: give a dictionary with one name, or say root=")
        written = checked_size("".join(out), "XML")
        return encoded_text(written, self.encoding) if self.encoding else written


class _Reader:
    """Reads one document. An exception of a handler ends the parser."""

    def __init__(self, encoding: str | None) -> None:
        self._parser = parser = expat.ParserCreate(encoding)
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.UnparsedEntityDeclHandler = self._refuse
        parser.ExternalEntityRefHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        self._open: list[Element] = [("", {}, [])]
        self._count = 0

    def read(self, document: bytes) -> Element:
        try:
            self._parser.Parse(document, True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise NotTransformed(f"no XML, line {error.lineno}, column {error.offset + 1}: {what}") from None
        except (LookupError, ValueError) as error:  # an encoding that it declares
            raise NotTransformed(f"no XML that can be read: {error}") from None
        (root,) = [one for one in self._open[0][2] if not isinstance(one, str)]
        return root  # type: ignore[no-any-return]

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotTransformed(
            f"line {self._parser.CurrentLineNumber}: a DOCTYPE or an entity, which is refused because it can fetch "
            "files and swell without end: send it without"
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > XML_ELEMENTS_MAX:
            raise NotTransformed(f"more than {XML_ELEMENTS_MAX:,} elements")
        deeper(len(self._open))
        element: Element = (name, attributes, [])
        self._open[-1][2].append(element)
        self._open.append(element)

    def _end(self, name: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        content = self._open[-1][2]
        if content and isinstance(content[-1], str):
            content[-1] += text
        else:
            content.append(text)


def _tree(element: Element) -> list[Any]:
    name, attributes, content = element
    head: list[Any] = [name, attributes] if attributes else [name]
    return head + [one if isinstance(one, str) else _tree(one) for one in content]


def _short(element: Element) -> Any:
    name, attributes, content = element
    text = "".join([one for one in content if isinstance(one, str)])
    children = [one for one in content if not isinstance(one, str)]
    found: dict[str, Any] = {f"@{key}": value for key, value in attributes.items()}
    if not children:
        if not found:
            return text or None
        return found | ({"#text": text} if text else {})
    if text.strip(SPACE):
        raise NotTransformed(f"there is text between the elements of <{name}>: read it with xml(tree=true)")
    last = ""
    for child in children:
        if child[0] not in found:
            found[child[0]] = _short(child)
        elif child[0] != last:
            raise NotTransformed(
                f"the elements <{child[0]}> of <{name}> are parted by others: read it with xml(tree=true)"
            )
        elif isinstance(found[child[0]], list):
            found[child[0]].append(_short(child))
        else:
            found[child[0]] = [found[child[0]], _short(child)]
        last = child[0]
    return found


def _write_short(name: Any, value: Any, out: list[str], depth: int) -> None:
    _check_name(name)
    depth = deeper(depth)
    if not isinstance(value, dict):
        if isinstance(value, list | tuple):
            raise NotTransformed(f"<{name}> would be a list in a list, or a document of several: name its elements")
        text = "" if value is None else _escaped(scalar_text(value, "XML"), _IN_TEXT)
        out.append(f"<{name}>{text}</{name}>" if text else f"<{name}/>")
        return
    attributes = {key: one for key, one in value.items() if isinstance(key, str) and key.startswith("@")}
    children = {key: one for key, one in value.items() if key not in attributes and key != "#text"}
    out.append(f"<{name}")
    for key, one in attributes.items():
        _write_attribute(key[1:], one, out)
    if "#text" in value and children:
        raise NotTransformed(f"<{name}> has text beside elements: write it with xml(tree=true)")
    beside = value.get("#text")
    inside = [] if beside is None else [_escaped(scalar_text(beside, "XML"), _IN_TEXT)]
    for key, one in children.items():
        for each in one if isinstance(one, list | tuple) else (one,):
            _write_short(key, each, inside, depth)
    written = "".join(inside)
    out.append(f">{written}</{name}>" if written else "/>")


def _write_tree(node: Any, out: list[str], depth: int) -> None:
    depth = deeper(depth)
    if not isinstance(node, list | tuple) or not node:
        raise NotTransformed("an element of the tree is a list: its name, perhaps its attributes, what is in it")
    name, *content = node
    _check_name(name)
    out.append(f"<{name}")
    if content and isinstance(content[0], dict):
        for key, value in content.pop(0).items():
            _write_attribute(key, value, out)
    if not content:
        out.append("/>")
        return
    out.append(">")
    for one in content:
        if isinstance(one, list | tuple):
            _write_tree(one, out, depth)
        else:
            out.append(_escaped(scalar_text(one, "XML"), _IN_TEXT))
    out.append(f"</{name}>")


def _write_attribute(name: Any, value: Any, out: list[str]) -> None:
    _check_name(name)
    text = "" if value is None else scalar_text(value, "an attribute of XML")
    out.append(f' {name}="{_escaped(text, _IN_ATTRIBUTE)}"')


def _escaped(text: str, escapes: dict[str, str]) -> str:
    illegal = _ILLEGAL.search(text)
    if illegal is not None:
        raise NotTransformed(f"the character {illegal.group()!r} cannot be in XML")
    return text.translate({ord(one): escape for one, escape in escapes.items()})


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _is_name(name):
        raise NotTransformed(f"{name!r} is no name of an element or attribute of XML: rename it with a function")


@lru_cache(1_024)
def _is_name(name: str) -> bool:
    if _NAME.fullmatch(name):
        return True
    if name.isascii() or len(name) > 1_024 or any(character in name for character in "<>&\"'/=? \t\r\n"):
        return False
    try:
        expat.ParserCreate("utf-8").Parse(f"<{name}/>".encode(), True)
    except (expat.ExpatError, UnicodeEncodeError):
        return False
    return True
