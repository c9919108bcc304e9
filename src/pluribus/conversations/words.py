"""The words of conversations on the wire, and the form of a message. Everything from outside is decoded here, and
bounded.

``Said``, ``Request``, ``Answer`` and ``Writing`` travel in the group of one conversation; the others in the lobby, to
every member.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from ..core.errors import BadInput
from ..core.frame import Number, Position
from ..core.ids import MessageId
from ..core.intervals import Intervals, Span
from ..core.limits import NAME_CHARS_MAX

BODY_CHARS_MAX = 32_768
DESCRIPTION_CHARS_MAX = 512
CLOCK_MAX_S = 1e12
"""Seconds since 1970, by any clock; a later time is refused as absurd."""
ENTRIES_PER_WORD_MAX = 65_536
SPANS_PER_WORD_MAX = 65_536
MEMBERS_MAX = 4_096
"""Persons of a conversation whose membership is known, at most."""
GROUPS_PER_WORD_MAX = 1_024

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Identity = tuple[Number, Position]
POSITION_MAX = 1 << 62
NUMBER_MAX = (1 << 63) - 1
COUNTER_MAX = 1 << 40
Counter = Annotated[int, msgspec.Meta(ge=0, le=COUNTER_MAX)]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One message of a conversation. The identity is the member that wrote it, and its number."""

    id: Identity
    parent: Identity | None
    by: Name
    """The person that wrote it."""
    at: float
    """Seconds since 1970, by the writer's clock."""
    body: Annotated[str, msgspec.Meta(max_length=BODY_CHARS_MAX)] | None
    """None at a member that keeps identities alone; it is never sent so."""

    @property
    def size(self) -> int:
        """Bytes that it takes to keep, about."""
        return ENTRY_BYTES + (len(self.body) if self.body is not None else 0)


ENTRY_BYTES = 128

Known = Annotated[
    list[tuple[Number, Annotated[list[tuple[Position, Position]], msgspec.Meta(max_length=SPANS_PER_WORD_MAX)]]],
    msgspec.Meta(max_length=SPANS_PER_WORD_MAX),
]
"""Identities: by writer, intervals of numbers."""


class Said(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """New messages of the member that sends this."""

    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_WORD_MAX)]


class Request(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The identities that the sender has, of the writers from ``low`` to ``high``. A member that has more gives them; a
    member that has fewer asks."""

    number: Number
    """Of two requests of a member for one part the greater counts."""
    part: Number
    low: Number
    high: Number
    have: Known
    """Identities that the sender does not need: it has them, or had them and does not want them again."""
    lost: Known = []
    """Those of them that it cannot give."""
    first: Position = 0
    last: Position = POSITION_MAX
    """It is about messages with numbers from ``first`` to ``last`` only: of a writer with many gaps."""


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Messages that the request of ``asker`` lacked. Every member may use them."""

    asker: Number
    number: Number
    part: Number
    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_PER_WORD_MAX)]


class Writing(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The sender is writing a message, or has stopped without sending it."""

    going: bool


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One person in a conversation: the greater counter is the later news."""

    person: Name
    counter: Counter
    here: bool
    """True: in the conversation, present or away. False: it left."""


class GroupInfo(msgspec.Struct, frozen=True, array_like=True):
    """A conversation, as the sender knows it."""

    gid: Name
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_CHARS_MAX)]
    since: float
    """When it was created. Of two that were created independently under one name, the older description counts."""
    rows: Annotated[list[Row], msgspec.Meta(max_length=MEMBERS_MAX)] = []
    total: Number = 0
    """How many rows the sender knows; a word may hold only some of them."""

    @property
    def members(self) -> list[str]:
        return sorted(row.person for row in self.rows if row.here)


class Advertise(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """This person is on the network, again or for the first time: tell it the conversations."""

    person: Name


class Groups(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Conversations that the sender knows, joined or not."""

    groups: Annotated[list[GroupInfo], msgspec.Meta(max_length=GROUPS_PER_WORD_MAX)]


class Join(msgspec.Struct, frozen=True, array_like=True, tag=13):
    gid: Name
    person: Name
    counter: Counter


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=14):
    gid: Name
    person: Name
    counter: Counter


RoomWord = Said | Request | Answer | Writing
LobbyWord = Advertise | Groups | Join | Leave

encode = msgspec.msgpack.encode
decode_room = msgspec.msgpack.Decoder(RoomWord).decode
decode_lobby = msgspec.msgpack.Decoder(LobbyWord).decode
decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode


def longest_word_bytes(entry: Entry) -> int:
    """Bytes of the longest word that carries this message alone: an answer, which may be needed to whoever comes."""
    return len(encode(Answer(NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, [entry])))


def checked_body(body: Any) -> str:
    """The body itself; ``BadInput`` says what a body may be."""
    if not isinstance(body, str):
        raise BadInput(f"a message of a conversation is text, not {type(body).__name__}: encode it, as JSON perhaps")
    if len(body) > BODY_CHARS_MAX:
        raise BadInput(f"a message of {len(body):,} characters is too long: the limit is {BODY_CHARS_MAX:,}, cut it")
    return _checked_text(body, "a message")


def checked_description(text: Any) -> str:
    """The description itself; ``BadInput`` says what a description may be."""
    if not isinstance(text, str):
        raise BadInput(f"a description is text, not {type(text).__name__}")
    if len(text) > DESCRIPTION_CHARS_MAX:
        raise BadInput(f"a description of {len(text)} characters is too long: {DESCRIPTION_CHARS_MAX} is most")
    return _checked_text(text, "a description")


def _checked_text(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{what} with half a character at {error.start} is no text: leave out surrogates") from None
    return text


def packed(
    known: dict[int, Intervals], low: int = 0, high: int = (1 << 63) - 1, first: int = 0, last: int = POSITION_MAX
) -> list[tuple[int, list[Span]]]:
    """The identities of these writers, with these numbers."""
    if low == high:
        numbers = known.get(low, Intervals()).between(first, last)
        return [(low, numbers.spans())] if numbers else []
    return [(writer, known[writer].spans()) for writer in sorted(known) if low <= writer <= high and known[writer]]


def unpacked(known: list[tuple[int, list[Span]]]) -> dict[int, Intervals]:
    """Intervals by writer; a span whose end is before its start is left out."""
    found: dict[int, Intervals] = {}
    for writer, spans in known:
        found.setdefault(writer, Intervals()).update(spans)
    return found


def minus(known: dict[int, Intervals], other: dict[int, Intervals]) -> dict[int, Intervals]:
    """The identities of the one that are not in the other."""
    found: dict[int, Intervals] = {}
    for writer, numbers in known.items():
        taken = other.get(writer)
        left = numbers if taken is None else Intervals(numbers.without(taken))
        if left:
            found[writer] = left.copy() if taken is None else left
    return found


def add_identity(known: dict[int, Intervals], identity: MessageId) -> None:
    found = known.get(identity[0])
    if found is None:
        found = known[identity[0]] = Intervals()
    found.add(identity[1], identity[1])


def identities_of(entries: Iterable[Entry]) -> dict[int, Intervals]:
    """The identities of these messages."""
    found: dict[int, Intervals] = {}
    for entry in entries:
        add_identity(found, entry.id)
    return found
