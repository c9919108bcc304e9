"""JSON, MessagePack, and plain data as the bus carries it."""

from __future__ import annotations

import json
from datetime import datetime
from math import isfinite
from typing import Any, NoReturn

import msgspec

from ..core.errors import NotTransformed
from .steps import (
    Format,
    Plain,
    bytes_of,
    checked_encoding,
    checked_size,
    deeper,
    encoded_text,
    plain,
    scalar_text,
    text_of,
)


class JsonText(Format, frozen=True, kw_only=True):
    """Text, or with an ``encoding`` bytes in it."""

    encoding: str = ""

    def __post_init__(self) -> None:
        if self.encoding:
            checked_encoding(self.encoding)

    def read(self, body: Any) -> Plain:
        text = text_of(body, self.encoding, "JSON")
        try:
            value = _decoder.decode(text)
        except json.JSONDecodeError as error:
            raise NotTransformed(f"no JSON, line {error.lineno}, column {error.colno}: {error.msg}") from None
        except RecursionError:
            raise NotTransformed("no JSON that can be read: it is nested too deep") from None
        return plain(value)

    def write(self, value: Plain) -> Any:
        written = json.dumps(_writable(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        checked_size(written, "JSON")
        return encoded_text(written, self.encoding) if self.encoding else written


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses a name that comes twice: one value would be dropped in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise NotTransformed(f"the name {twice!r} stands twice in one object")
    return found


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise NotTransformed(f"{text} is beyond what a number of 64 bits can hold")
    return number


def _no_number(text: str) -> NoReturn:
    raise NotTransformed(f"{text} is no JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_once, parse_float=_number, parse_constant=_no_number)


def _writable(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | bytes | datetime):
        return value if isinstance(value, float) and isfinite(value) else scalar_text(value, "JSON")
    depth = deeper(depth)
    if isinstance(value, list | tuple):
        return [_writable(one, depth) for one in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotTransformed(f"the key {key!r} is no text, and JSON has no others")
        return {key: _writable(one, depth) for key, one in value.items()}
    return _writable(plain(value), depth)


class MessagePack(Format, frozen=True, kw_only=True):
    """Bytes."""

    def read(self, body: Any) -> Plain:
        data = checked_size(bytes_of(body, "MessagePack"), "MessagePack")
        try:
            return plain(msgspec.msgpack.decode(data))
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RecursionError) as error:
            raise NotTransformed(f"no MessagePack: {error}") from None

    def write(self, value: Plain) -> Any:
        try:
            return checked_size(msgspec.msgpack.encode(plain(value)), "MessagePack")
        except (TypeError, ValueError, OverflowError) as error:
            raise NotTransformed(f"it cannot be written as MessagePack: {error}") from None


class PlainData(Format, frozen=True, kw_only=True):
    """Numbers, lists, dictionaries and the like, as the bus carries them; registered types by their fields."""

    def read(self, body: Any) -> Plain:
        return plain(body)

    def write(self, value: Plain) -> Any:
        return plain(value)
