"""What a browser asks, and messages as it is given them. What comes from a browser is checked here."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...conversations.words import BODY_CHARS_MAX, DESCRIPTION_CHARS_MAX, Entry
from ...core.errors import BadInput
from ...core.ids import MessageId
from ...core.limits import NAME_CHARS_MAX

READ_MAX = 10_000
"""Messages that a browser says to be read at once."""

RoomName = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Identity = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}-[0-9a-f]{16}$")]
"""Of a message, so written that text sorts as numbers do; a browser's own numbers are too short for it."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A browser is there, for the first time or after its line was broken: tell it everything."""

    room: RoomName = ""


class Open(msgspec.Struct, frozen=True, tag="open"):
    room: RoomName


class Say(msgspec.Struct, frozen=True, tag="say"):
    room: RoomName
    text: Annotated[str, msgspec.Meta(max_length=2 * BODY_CHARS_MAX)]
    parent: Identity | None = None


class Write(msgspec.Struct, frozen=True, tag="write"):
    """The person is writing, or has stopped."""

    room: RoomName
    going: bool


class Create(msgspec.Struct, frozen=True, tag="create"):
    room: RoomName
    about: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_CHARS_MAX)] = ""


class Join(msgspec.Struct, frozen=True, tag="join"):
    room: RoomName


class Refuse(msgspec.Struct, frozen=True, tag="refuse"):
    room: RoomName


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    room: RoomName


class Read(msgspec.Struct, frozen=True, tag="read"):
    """These messages were seen."""

    room: RoomName
    ids: Annotated[list[Identity], msgspec.Meta(max_length=READ_MAX)]


class Earlier(msgspec.Struct, frozen=True, tag="earlier"):
    """More messages of before."""

    room: RoomName


Asked = Hello | Open | Say | Write | Create | Join | Refuse | Leave | Read | Earlier


def asked(given: Any) -> Asked:
    try:
        word: Asked = msgspec.convert(given, Asked)
    except msgspec.ValidationError as error:
        raise BadInput(f"the browser asked for something that is not known: {error}; load the page again") from None
    return word


def written(message: MessageId) -> str:
    return f"{message[0]:016x}-{message[1]:016x}"


def identity(text: str) -> MessageId:
    return int(text[:16], 16), int(text[17:], 16)


def row(entry: Entry, unread: bool) -> list[Any]:
    """A message for a browser, short, because there are thousands."""
    parent = None if entry.parent is None else written(entry.parent)
    return [written(entry.id), parent, entry.by, entry.at, entry.body, int(unread)]
