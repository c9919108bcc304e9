"""What is asked of machines on the log host, whatever their kind, from any program. ``wire/asking.py`` says how it
travels."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.limits import NAME_CHARS_MAX
from ...wire.asking import Words
from ..sessions import Entry

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * NAME_CHARS_MAX)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]


class Open(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A machine of this kind, in this version at least; made if it is not there. The answer is its number."""

    name: Text
    kind: Text
    version: Whole


class Call(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A command of a machine, with its identity (``group.sessions.Command``); the answer is an ``Entry``."""

    name: Text
    command: bytes


class Inspect(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """A question to a machine, which changes nothing; the answer is bytes. Empty: only see that all is applied."""

    name: Text
    question: bytes
    stale: bool = False


WORDS = Words("machines", {Open: int, Call: Entry, Inspect: bytes})
