"""A format reads a body, and writes one. Both raise ``NotTransformed`` with the reason."""

from __future__ import annotations

import base64
from datetime import datetime
from math import isfinite
from typing import Any, TypeVar

import msgspec

from ..core.errors import BadInput, NotTransformed
from ..core.limits import DOCUMENT_BYTES_MAX, DOCUMENT_DEPTH_MAX
from ..wire.bodies import Opaque

T = TypeVar("T", str, bytes)
Plain = Any
"""None, a boolean, a number, text, bytes, a time, and lists and dictionaries of these."""
_STRANGE_ENCODINGS = frozenset({"idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape"})
"""Python codecs that no other program would call an encoding of text; some take quadratic time."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One format with its options, which are the fields. ``__post_init__`` raises ``BadInput`` for a wrong option."""

    def read(self, body: Any) -> Plain:
        raise NotImplementedError

    def write(self, value: Plain) -> Any:
        raise NotImplementedError


def checked_encoding(name: str) -> str:
    """Raises ``BadInput`` for a codec that is no encoding of text: Python has codecs that pack, and some that are
    dangerous."""
    try:
        "a".encode(name)
        known = name.lower().replace("-", "_").replace(" ", "_") not in _STRANGE_ENCODINGS
    except (LookupError, ValueError, UnicodeError):
        known = False
    if not known:
        raise BadInput(
            f"{name!r} is no encoding of text: use utf-8, latin-1, cp1252, utf-16-le or another that Python has"
        )
    return name


def text_of(body: Any, encoding: str, what: str) -> str:
    """The text of a body."""
    if isinstance(body, str):
        text = body
    elif isinstance(body, bytes):
        checked_size(body, what)
        try:
            text = body.decode(encoding or "utf-8")
        except UnicodeDecodeError as error:
            raise NotTransformed(
                f"bytes that are not {error.encoding}, from byte {error.start} on ({error.reason}): say the encoding"
            ) from None
    else:
        raise NotTransformed(
            f"a body of type {type(body).__name__} is no {what}: send text or bytes, or read it with data"
        )
    return checked_size(text, what)


def encoded_text(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise NotTransformed(f"the character {character!r}, at {error.start}, is not in {error.encoding}") from None


def bytes_of(body: Any, what: str) -> bytes:
    if isinstance(body, bytes):
        return body
    raise NotTransformed(f"a body of type {type(body).__name__} is no {what}: that is bytes")


def checked_size(document: T, what: str) -> T:
    """The text or bytes, if short enough to be parsed in memory."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise NotTransformed(f"{what} of {len(document):,} bytes: at most {DOCUMENT_BYTES_MAX:,} are transformed")
    return document


def deeper(depth: int) -> int:
    if depth >= DOCUMENT_DEPTH_MAX:
        raise NotTransformed(f"it is nested deeper than {DOCUMENT_DEPTH_MAX} levels")
    return depth + 1


def plain(value: Any, depth: int = 0) -> Plain:
    """A body as plain data: registered types become dictionaries, or lists, of their fields."""
    if value is None or isinstance(value, bool | int | float | str | bytes | datetime):
        return value
    depth = deeper(depth)
    if isinstance(value, list | tuple):
        return [plain(one, depth) for one in value]
    if isinstance(value, dict):
        return {plain(key, depth): plain(one, depth) for key, one in value.items()}
    if isinstance(value, Opaque):
        return plain(msgspec.msgpack.decode(value.encoded), depth)
    try:
        return plain(msgspec.to_builtins(value, builtin_types=(bytes, datetime)), depth)
    except (TypeError, ValueError) as error:
        raise NotTransformed(f"a {type(value).__name__} is no plain data: {error}") from None


def scalar_text(value: Any, what: str) -> str:
    """One value as text, for formats that have only text. A number read back is the same; all else is a convention."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise NotTransformed(f"{value} cannot be written as {what}")
        return repr(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return value.isoformat()
    raise NotTransformed(f"{what} has no place for a {type(value).__name__} here: flatten it with a function")
