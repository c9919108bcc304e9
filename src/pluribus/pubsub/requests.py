"""Questions of a client to its member about live topics, and what is pushed to it. ``wire/asking.py`` says how they
travel.

Everything that a client may choose is a typed field here, and is checked before anything is done with it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..core.ids import MessageId
from ..core.limits import BACKLOG_EVENTS, NAME_CHARS_MAX, TOPIC_CHARS_MAX, TYPES_MAX
from ..wire.asking import ANYWHERE, WAIT_S_MAX, Words
from .durable.rights import published

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_CHARS_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Guarantee = Literal["best effort", "reliable", "ordered", "fifo", "causal", "total"]
Slow = Literal["wait", "tell", "buffer", "disconnect", "sample"]
CLIENT_BACKLOG_EVENTS_MAX = 1_000_000


class Tell(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Publish live, packed as durable batches are; the answer has the identities of the events. ``timeout_s``:
    ``Overflow`` instead of waiting longer for slow readers."""

    batches: list[bytes]
    retain: bool = False
    timeout_s: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Listen(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A live subscription under a number of the client's own; the options are those of ``bus.subscribe``."""

    number: Number
    pattern: Text
    where: str = ""
    guarantee: Guarantee = "reliable"
    deadline_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    backlog: Annotated[int, msgspec.Meta(ge=1, le=CLIENT_BACKLOG_EVENTS_MAX)] = BACKLOG_EVENTS
    slow: Slow = "tell"
    retain: bool = True
    shared: Text | None = None
    bodies: Name = ""
    """Of a shared subscription: the name of the type of bodies. Of others the client checks the type itself."""
    kinds: Annotated[list[Name], msgspec.Meta(max_length=TYPES_MAX)] = []
    """The names under which such types are registered; empty if it is a type of plain data."""


class Unlisten(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """End a live subscription."""

    number: Number


class Read(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """The client has read so many events of a live subscription, and has room for more. If it is shared: the client has
    finished the event that it had, and asks for one; with 0 it gives back the one that it has. It is not answered."""

    number: Number
    count: Number


class SetWhere(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Set another condition for a live subscription; empty: none. It is not answered."""

    number: Number
    where: str = ""


class Advertise(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Advertise what the client will publish, until it goes; ``withdrawn``: withdraw that."""

    pattern: Text
    bodies: str = ""
    """The name of their type."""
    about: str = ""
    withdrawn: bool = False


class Adverts(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """What members advertise under topics that the pattern may match; the answer is a list of ``Advertised``."""

    pattern: Text


class Gather(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Wait until so many members publish or subscribe; the answer has those that do, by name."""

    members: Annotated[int, msgspec.Meta(ge=1)]
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)] = 0.0


class Subscribers(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Wait until there are so many live subscriptions to a topic; the answer is how many there are."""

    topic: Text
    count: Number
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)] = 0.0


class Advertised(msgspec.Struct, array_like=True, frozen=True):
    pattern: str
    type: str
    about: str
    members: dict[int, str]


class Live(msgspec.Struct, array_like=True, frozen=True):
    """One event."""

    topic: str
    kind: int | str
    body: bytes
    sender: int
    id: MessageId
    time: float
    headers: dict[str, Any] | None = None
    parent: MessageId | None = None
    retained: bool = False
    again: bool = False


class Heard(msgspec.Struct, array_like=True, frozen=True):
    """Pushed: live events of one subscription. ``missed`` were dropped before them because the client was slow,
    ``late`` because of the deadline; ``ended`` says why there will be no more."""

    number: int
    events: list[Live]
    missed: int = 0
    ended: str = ""
    late: int = 0


WORDS = Words(
    "topics",
    {
        Tell: list[tuple[int, int]],
        Listen: None,
        Unlisten: None,
        Read: None,
        SetWhere: None,
        Advertise: None,
        Adverts: list[Advertised],
        Gather: dict[int, str],
        Subscribers: int,
    },
    pushed=Heard,
    rights={
        Tell: lambda asked: published(asked.batches),
        Listen: lambda asked: [("topic", asked.pattern, "subscribe")],
        Unlisten: "who stops listening hears nothing more",
        Read: "it only says that there is room in a subscription that was allowed",
        SetWhere: "it chooses among the events of a subscription that was allowed",
        Advertise: lambda asked: [("topic", asked.pattern, "publish")],
        Adverts: lambda asked: [("topic", asked.pattern, "any")],
        Gather: lambda asked: [("topic", ANYWHERE, "any")],
        Subscribers: lambda asked: [("topic", asked.topic, "any")],
    },
)
