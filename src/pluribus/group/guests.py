"""The words between a client and its member about groups in which the client is a *guest*: the member runs another
member of the bus for the client, and passes on the messages of its groups. ``wire/asking.py`` says how words travel."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.ids import MessageId
from ..core.limits import CALL_ARGUMENTS_MAX
from ..wire.asking import Words
from ..wire.questions import Wrapped
from .requests import Kind, Name, Replied, Seconds, group_need

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Enter(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Join a group under a number of the client's own; the answer is ``Entered``."""

    number: Number
    name: Name
    order: Annotated[str, msgspec.Meta(max_length=16)] = ""
    safe: bool = False
    own: bool = True
    open: bool = False
    as_name: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """How others see the guest."""


class Utter(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Send to the group, or to one member; the answer is the identity of the message."""

    number: Number
    kind: Kind
    body: bytes
    to: Number | None = None
    parent: MessageId | None = None
    stable: bool = False
    timeout_s: Seconds | None = None


class Question(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Ask the group, or some of it; the answer is ``Replied``."""

    number: Number
    kind: Kind
    body: bytes
    replies: Annotated[int, msgspec.Meta(ge=1)] | Annotated[str, msgspec.Meta(max_length=16)] = "all"
    wait_s: Seconds | None = None
    to: Number | None = None
    of: list[Number] = []
    parent: MessageId | None = None


class GuestReply(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Answer a question; ``error`` is the kind and text of an exception, ``absent``: this member answers no such
    question."""

    number: Number
    question: Number
    kind: Kind = 0
    body: bytes = b""
    error: tuple[str, str] | None = None
    absent: bool = False


class Taken(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The client has read so many messages, and has room for more. It is not answered."""

    number: Number
    count: Number


class Exit(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Leave a group."""

    number: Number


class Invoke(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Call a method of the objects that members of the group serve; the answer is ``Replied``."""

    number: Number
    method: Name
    args: Annotated[tuple[Wrapped, ...], msgspec.Meta(max_length=CALL_ARGUMENTS_MAX)] = ()
    named: Annotated[dict[Name, Wrapped], msgspec.Meta(max_length=CALL_ARGUMENTS_MAX)] = {}
    replies: Annotated[int, msgspec.Meta(ge=1)] | Annotated[str, msgspec.Meta(max_length=16)] = "all"
    wait_s: Seconds | None = None
    to: Number | None = None


class Seen(msgspec.Struct, array_like=True, frozen=True):
    """A view."""

    number: int
    members: list[int]
    names: dict[int, str]
    agreed: bool = False


class Entered(msgspec.Struct, array_like=True, frozen=True):
    """The guest's identity in the group, and the group's view."""

    me: int
    view: Seen
    longest_bytes: int
    """The longest body that the group carries in one piece."""
    cuts: bool
    """Whether longer bodies are cut; else they are refused."""


class Uttered(msgspec.Struct, array_like=True, frozen=True):
    """A message; ``question`` is a number by which it can be answered, 0 if it asks nothing."""

    kind: int | str
    body: bytes
    sender: int
    id: MessageId
    parent: MessageId | None = None
    orphan: bool = False
    question: int = 0


class GroupHeard(msgspec.Struct, array_like=True, frozen=True):
    """Pushed: messages, a view, or an error in the place of messages (an exception's kind and text)."""

    number: int
    messages: list[Uttered] = []
    view: Seen | None = None
    error: tuple[str, str] | None = None
    closed: bool = False


IN_THE_GROUP = "it is said in a group that this connection was allowed to join; when it is not any more, it is cut"

WORDS = Words(
    "guests",
    {Enter: Entered, Utter: MessageId, Question: Replied, GuestReply: None, Taken: None, Exit: None, Invoke: Replied},
    pushed=GroupHeard,
    rights={
        Enter: lambda asked: [group_need(asked.name, "join")],
        Utter: IN_THE_GROUP,
        Question: IN_THE_GROUP,
        Invoke: IN_THE_GROUP,
        GuestReply: IN_THE_GROUP,
        Taken: IN_THE_GROUP,
        Exit: "who leaves does nothing more",
    },
)
