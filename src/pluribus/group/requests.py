"""Questions of programs that are not in a group: send to an open group, ask it. ``wire/asking.py`` says how questions
travel."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.ids import MessageId
from ..core.limits import NAME_CHARS_MAX
from ..wire.asking import ANYWHERE, MEMBERS_ONLY, Need, Words

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Kind = Annotated[int, msgspec.Meta(ge=0)] | Name
Seconds = Annotated[float, msgspec.Meta(ge=0)]


STYLES_OF_GROUPS = {"slots": "slots", "conversation": "conversation", "objects": "objects"}
"""Styles that clients use as guests, by the first level of the names of their groups."""
GROUPS_OF_MEMBERS = ("keepers", "topics", "spaces", "ask", "space", "consumers", "queue", "replica", "cache")
"""First levels of the names of groups in which members do the work of styles. Clients may not join these; they have
questions for what is done there."""


def group_need(group: str, verb: str) -> Need:
    """What a client needs to act in a group: ``group:NAME``; ``slots:NAME`` and the like in groups of those styles."""
    first, _, rest = group.partition("/")
    if first in GROUPS_OF_MEMBERS or group.startswith("queue."):
        return MEMBERS_ONLY
    if group == "slots":  # buses are advertised there: a client that may join one of them has to hear of it
        return ("slots", ANYWHERE, verb)
    if first in STYLES_OF_GROUPS:
        return (STYLES_OF_GROUPS[first], rest or "#", verb)
    return ("group", group, verb)


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
    """What one member answered; or the kind and the text of its handler's exception."""

    member: int
    kind: int | str = 0
    body: bytes = b""
    error: tuple[str, str] | None = None


class Replied(msgspec.Struct, array_like=True, frozen=True):
    """``left`` are members that went away and did not answer."""

    replies: list[Reply]
    left: list[int]
    failed: tuple[str, str] | None = None
    """If there were too few answers: the kind of the error and its text. ``replies`` has the answers that came."""


WORDS = Words(
    "groups",
    {SendGroup: MessageId, AskGroup: Replied},
    rights={
        SendGroup: lambda asked: [group_need(asked.group, "send")],
        AskGroup: lambda asked: [group_need(asked.group, "ask")],
    },
)
