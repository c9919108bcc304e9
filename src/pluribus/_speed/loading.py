"""Loads the compiled part, and checks that it fits the classes that it reads as structures.

C finds a field of ``Frame`` and ``Message`` by its offset; Python finds it by name. So the compiled part and its Python
twin first read the same few frames here. If a struct has other fields than C was written for, or if the answers differ,
the whole package uses Python, and a warning says why.
"""

from __future__ import annotations

import importlib
import logging
from collections import deque
from types import ModuleType
from typing import Any

import msgspec

from ..core.frame import Frame, Message
from ..core.ids import MemberId
from . import reading

MESSAGE_FIELDS = ("body", "sender", "id", "parent", "orphan")
"""C makes messages with exactly these."""
FRAME_FIELDS = {"sender", "to", "group", "first", "count", "size", "kind", "headers", "bodies"}

log = logging.getLogger("pluribus")


class Misfit(Exception):
    """The compiled part was made for other structures than there are."""


def loaded() -> tuple[Any, str]:
    """The compiled module and an empty text; or None and the reason."""
    try:
        module = importlib.import_module("pluribus._speed._quick")
    except ImportError:
        return None, "it was not compiled"
    try:
        check(module)
    except Exception as error:  # noqa: BLE001 - whatever it is that does not fit: Python does the same
        reason = f"the compiled part does not fit ({error}), so Python is used, more slowly; install the package anew"
        log.warning(reason)
        return None, reason
    return module, ""


def check(module: ModuleType) -> None:
    """Raise ``Misfit`` if fields or their layout are others, or if an answer differs from the twin's."""
    if Message.__struct_fields__ != MESSAGE_FIELDS:
        raise Misfit(f"Message has the fields {', '.join(Message.__struct_fields__)}")
    if missing := FRAME_FIELDS.difference(Frame.__struct_fields__):
        raise Misfit(f"Frame has no field {', '.join(sorted(missing))}")
    for frame in _samples():
        there, wanted = _read(module.Reading, frame), _read(reading.Reading, frame)
        if there != wanted:
            raise Misfit(f"it reads {there} where {wanted} is written")


def _samples() -> list[Frame]:
    bodies = [b"one", b"", b"three"]
    usual: dict[str, Any] = {"sender": 7, "to": 3, "group": 9, "first": 5, "size": 8, "kind": 2}
    return [
        Frame(**usual, count=3, headers=[], bodies=bodies),
        Frame(**usual, count=3, headers=[], bodies=msgspec.Raw(msgspec.msgpack.encode(bodies))),
        Frame(**usual, count=1, headers=[], bodies=[b"lone"]),
        Frame(**usual, count=2, headers=[], bodies=bodies),
        Frame(**usual, count=3, headers=[0], bodies=bodies),
        Frame(**{**usual, "kind": 1}, count=3, headers=[], bodies=bodies),
        Frame(**{**usual, "sender": 8}, count=3, headers=[], bodies=bodies),
    ]


def _read(kind: Any, frame: Frame) -> tuple[Any, ...]:
    """The messages that a reader makes of a frame, and what it counts."""
    reads = kind()
    reads.inbox, reads.state, reads._taken, reads._people = deque([frame]), None, {}, {7: MemberId(7)}
    reads._taken_bytes, reads._plain, reads._frame_bytes = 0, 2, 100
    reads._busy_bytes = reads._idle_bytes = 1
    found = reads.take_lone()
    messages = list(reads.take_plain() or ()) if found is None else [found]
    shown = [(type(message), *msgspec.structs.astuple(message)) for message in messages]
    return shown, reads._taken, reads._taken_bytes, len(reads.inbox)


compiled, REASON = loaded()
"""The compiled module, or None; and why it is None."""
COMPILED = compiled is not None
