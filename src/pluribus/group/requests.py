"""What is asked of groups by those who are in none: send to an open group, ask it. ``wire/asking.py`` says how it
travels."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.ids import MessageId
from ..core.limits import NAME_CHARS_MAX
from ..wire.asking import Words

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Kind = Annotated[int, msgspec.Meta(ge=0)] | Name
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class SendGroup(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Send a message; the answer, its identity, comes when every member of the group has it."""

    group: Name
    kind: Kind
    body: bytes
    timeout_s: Seconds | None = None


class AskGroup(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Ask a question; the answer is ``Replied``. ``replies`` is as in ``Group.ask``."""

    group: Name
    kind: Kind
    body: bytes
    replies: Annotated[int, msgspec.Meta(ge=1)] | Annotated[str, msgspec.Meta(max_length=16)] = "all"
    wait_s: Seconds | None = None
    """How long answers are awaited."""


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """What one member answered; or the kind and the text of what its handler raised."""

    member: int
    kind: int | str = 0
    body: bytes = b""
    error: tuple[str, str] | None = None


class Replied(msgspec.Struct, array_like=True, frozen=True):
    """``left`` are members that went away and did not answer."""

    replies: list[Reply]
    left: list[int]


WORDS = Words("groups", {SendGroup: MessageId, AskGroup: Replied})
