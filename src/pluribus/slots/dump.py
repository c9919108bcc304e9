"""Messages of a software bus as readable text: ``pluribus slots dump``."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.errors import MalformedFrame
from ..core.ids import ALL, MemberId
from ..wire.questions import unwrapped
from .plan import Connection, End, Plan
from .words import Leg, SendData, Word, report_name

BODY_CHARS_MAX = 60


def fields_of(sender: int, to: int, word: Word) -> dict[str, Any]:
    """A word as data: its name in the report, its sender, its receiver, and its fields."""
    told = {name: _plain(getattr(word, name)) for name in word.__struct_fields__}
    if isinstance(word, SendData):
        told["body"] = _body(word)
    return {"word": report_name(type(word)), "from": str(MemberId(sender)), "to": _who(to), **told}


def line_of(sender: int, to: int, word: Word) -> str:
    """A word on one line; empty fields are left out."""
    told = fields_of(sender, to, word)
    head = f"{told.pop('from')} -> {told.pop('to')} {told.pop('word')}"
    return " ".join(
        [head, *(f"{name}={value}" for name, value in told.items() if value not in ("", None, [], 0, False))]
    )


def _who(to: int) -> str:
    return "all" if to == ALL else str(MemberId(to))


def _body(word: SendData) -> str:
    try:
        shown = repr(unwrapped(word.body))
    except MalformedFrame:
        shown = f"{len(word.body[1])} bytes of {word.body[0]}"
    return shown if len(shown) <= BODY_CHARS_MAX else f"{shown[: BODY_CHARS_MAX - 3]}..."


def _plain(value: Any) -> Any:
    if isinstance(value, Plan):
        return value.name
    if isinstance(value, End | Connection):
        return str(value)
    if isinstance(value, Leg):
        return f"{value.target} ({', '.join(map(str, value.tickets)) or 'empty'})"
    if isinstance(value, bytes):
        return f"{len(value)} bytes" if value else ""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return msgspec.to_builtins(value)
