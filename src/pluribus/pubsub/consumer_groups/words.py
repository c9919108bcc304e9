"""What is asked of a consumer group, as it stands in the keepers' log; and what comes of it.

Each command may be asked for again after any break: it says in full what is wanted, or names assignments, and a number
of an assignment is given once.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.errors import MalformedFrame
from ...group.host.rights import MachineRights
from ...wire.asking import Need
from ..durable.commands import Text, Whole

DONE, AGAIN, REFUSED, ENDED = 0, 1, 2, 3
"""``ENDED``: the member is not in the group in this epoch; it joins again."""
SETTLES_MAX = 8_192
"""Assignments, or stretches of them, in one command."""
AHEAD_EVENTS_MAX = 4_096
"""Events that one ``Ahead`` brings."""
REASON_CHARS_MAX = 128


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    status: int
    number: int = 0
    """Of a member that joined, its epoch; of ``Redrive``, how many."""
    reason: str = ""
    held: list[int] = []
    """Of a member that joined: the assignments that it holds."""


class Join(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A member is here, or here again, with room for so much. The first one says what the group reads; all others must
    say the same."""

    consumer: Whole
    owner: Whole
    lease_us: Whole
    patterns: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=1_024)]
    where: Annotated[str, msgspec.Meta(max_length=65_536)] = ""
    tries_max: Whole = 0
    """Deliveries after which an event becomes a dead letter; 0: never."""
    starts: dict[Text, Whole] = {}
    """Where a new group begins in the topics that are there; in later ones it begins with their first event."""
    things_max: Whole = 0
    bytes_max: Whole = 0


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A member goes; what it held is free, and was not tried."""

    consumer: Whole


class Settle(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A member is done with these assignments, as stretches; or gives some back, each with the reason."""

    consumer: Whole
    epoch: Whole
    acked: Annotated[list[tuple[Whole, Whole]], msgspec.Meta(max_length=SETTLES_MAX)] = []
    back: Annotated[
        list[tuple[Whole, Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)]]],
        msgspec.Meta(max_length=SETTLES_MAX),
    ] = []


class Ahead(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """What stands in a topic from ``start`` to ``end``: of the events that the group wants, the offset, the bytes and
    the number of the key (0: none). The leading keeper reads it from its log and brings it."""

    topic: Text
    start: Whole
    end: Whole
    events: Annotated[list[tuple[Whole, Whole, Whole]], msgspec.Meta(max_length=AHEAD_EVENTS_MAX)]


class Redrive(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Dead letters are handed out again, behind everything else: these, or as many of the oldest."""

    count: Whole
    events: Annotated[list[tuple[Text, Whole]], msgspec.Meta(max_length=65_536)] = []
    """Topic and offset."""


Command = Join | Leave | Settle | Ahead | Redrive


class Dead(msgspec.Struct, array_like=True):
    """A dead letter: an event that was handed out too often. The event itself stays in its topic."""

    topic: str
    offset: int
    tries: int
    reason: str
    size: int
    key: int = 0


class Position(msgspec.Struct, array_like=True, frozen=True):
    """How far a group is in one topic."""

    topic: str
    settled: int
    """All events below this offset are settled."""
    seen: int
    """The group was shown all events below this offset."""
    open: int
    """Events between both that are not settled."""


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """A group, for people and tools."""

    patterns: list[str]
    members: int
    held: int
    """Events that members hold."""
    positions: list[Position]
    dead: list[Dead]


encode = msgspec.msgpack.Encoder().encode
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def command_of(data: bytes) -> Command:
    try:
        return _command.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"a command that no release gives: {error}") from None


# Rights.


def _joins(data: bytes, group: str) -> list[Need]:
    command = command_of(data)
    assert isinstance(command, Join)
    return [("consumers", group, "use"), *(("topic", pattern, "subscribe") for pattern in command.patterns)]


RIGHTS = MachineRights(
    "consumers",
    "consumers/",
    "consumer-group",
    {Join: _joins, Leave: "use", Settle: "use", Ahead: None, Redrive: "manage"},
    {},
    awaits="use",
)
