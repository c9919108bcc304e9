"""The vocabulary of a replicated space: commands, questions, outcomes.

Commands are ordered, and each is done once. Questions change nothing. Numbers of tuples say which is older; they are
the names of leases, too. A *consumer* is one take that waits, a *registration* one ``notify``; the caller draws its
number. ``transaction`` 0 is none.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.errors import MalformedFrame
from ..group.host.rights import MachineRights
from ..wire.asking import ANY, ANYWHERE, Need
from .templates import Template
from .values import Item

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
FOR_EVER_US = 0
"""The lease of a tuple that stays until it is taken."""
MANY_MAX = 10_000
"""Tuples in one command, and in one answer."""
HAND_BACK_BYTES_MAX = 65_536


class Write(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Put tuples into the space, all with the same lease."""

    items: Annotated[list[Item], msgspec.Meta(max_length=MANY_MAX)]
    lease_us: Microseconds = FOR_EVER_US
    transaction: Number = 0


class Take(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Take up to ``most`` tuples. If there is none: with ``wait`` the take stands in line as ``consumer``, which
    belongs to ``owner`` and ends when that is silent for ``owner_lease_us``. ``if_exists``: wait only while a match is
    hidden by a transaction. ``keep``: read it and lock it for the transaction. ``write`` is written in the place of the
    taken tuple, in the same command, if a match is taken at once."""

    template: Template
    most: Annotated[int, msgspec.Meta(ge=1, le=MANY_MAX)] = 1
    wait: bool = False
    consumer: Number = 0
    owner: Number = 0
    owner_lease_us: Microseconds = 0
    transaction: Number = 0
    if_exists: bool = False
    keep: bool = False
    write: list[Item] = []
    lease_us: Microseconds = FOR_EVER_US


class Finish(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A waiting take takes the tuple that it was given, or gives up if it was given none. Either way it is over."""

    consumer: Number
    write: list[Item] = []
    lease_us: Microseconds = FOR_EVER_US


class Renew(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The lease of a tuple begins anew, with this length."""

    number: Number
    lease_us: Microseconds


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The lease of a tuple ends now."""

    number: Number


class Notify(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Remember every matching tuple that is written from now on, for the registration. ``again``: also tuples that
    become visible again."""

    registration: Number
    template: Template
    lease_us: Microseconds
    hand_back: Annotated[bytes, msgspec.Meta(max_length=HAND_BACK_BYTES_MAX)] = b""
    transaction: Number = 0
    again: bool = False


class Seen(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Events of a registration up to this one are acknowledged. ``lease_us``, if given, renews its lease."""

    registration: Number
    sequence: Number
    lease_us: Microseconds = 0


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A registration is over."""

    registration: Number


class Join(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A transaction acts in this space from now on, or goes on acting: its lease begins anew."""

    transaction: Number
    lease_us: Microseconds


class Commit(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The transaction is committed: tuples that it wrote are there, and tuples that it took are gone."""

    transaction: Number


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The transaction is aborted: as if it had not been."""

    transaction: Number


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The transaction does not end by its lease any more: its coordinator decides."""

    transaction: Number


class Release(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A waiting take is given up; the tuple that it was given comes back."""

    consumer: Number


Command = Write | Take | Finish | Renew | Cancel | Notify | Seen | Forget | Join | Commit | Abort | Prepare | Release


class Find(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The oldest tuples that match and are younger than ``after``; without ``after``, the one that a take would get.
    With ``transaction``, tuples that it has written are included; none is locked."""

    template: Template
    most: Annotated[int, msgspec.Meta(ge=1, le=MANY_MAX)] = 1
    after: int = -1
    transaction: Number = 0


class Count(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """How many match. With ``transaction``, tuples that it has written are included."""

    template: Template
    transaction: Number = 0


class Events(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The events of a registration that come after a given one."""

    registration: Number
    after: Number = 0


class Look(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The size of the space."""


Question = Find | Count | Events | Look


class Done(msgspec.Struct, frozen=True, array_like=True, tag=1):
    count: int = 0


class Written(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The numbers of the tuples, and the lease that was granted, which may be shorter than asked."""

    numbers: list[int]
    lease_us: int


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The taken tuples. ``left_us``: the rest of the lease of each, ``FOR_EVER_US`` for no end; empty if none of them
    has an end."""

    numbers: list[int]
    items: list[Item]
    left_us: list[int] = []


class Waiting(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The take stands in line."""

    epoch: int


class Nothing(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """No match. ``hidden``: a transaction hides or locks one."""

    hidden: bool = False


class Leased(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The lease that was granted; of a registration also the sequence of its last event, and the epoch in which it is
    told of events."""

    lease_us: int
    sequence: int = 0
    epoch: int = 0


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The named thing is over: ``lease``, ``transaction``, ``registration`` or ``consumer``."""

    what: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=8):
    reason: str


class Happened(msgspec.Struct, frozen=True, array_like=True):
    """One event of a registration."""

    sequence: int
    number: int
    item: Item


class Told(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Events of a registration in their order. ``missed``: so many before the first of them were dropped. ``seen``: the
    last event that was acknowledged. ``lease_us``: the rest of its lease."""

    events: list[Happened]
    missed: int
    hand_back: bytes
    seen: int = 0
    epoch: int = 0
    lease_us: int = FOR_EVER_US


class Contents(msgspec.Struct, frozen=True, array_like=True, tag=10):
    tuples: int
    size_bytes: int
    waiting: int
    registrations: int
    transactions: int


Outcome = Done | Written | Taken | Waiting | Nothing | Leased | Ended | Refused | Told | Contents

encode = msgspec.msgpack.Encoder().encode
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_outcome: msgspec.msgpack.Decoder[Outcome] = msgspec.msgpack.Decoder(Outcome)


def command_of(data: bytes) -> Command:
    try:
        return _command.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a command of a space that no release gives: {error}") from None


def question_of(data: bytes) -> Question:
    try:
        return _question.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a question to a space that no release asks: {error}") from None


def outcome_of(data: bytes) -> Outcome:
    try:
        return _outcome.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"an answer of a space that no release gives: {error}") from None


# Rights.


def _takes(data: bytes, space: str) -> list[Need]:
    command = command_of(data)
    assert isinstance(command, Take)
    needs: list[Need] = [("space", space, "read" if command.keep else "take")]
    return [*needs, ("space", space, "write")] if command.write else needs


def _finishes(data: bytes, space: str) -> list[Need]:
    """A waiting take needs the rights that were checked when it began."""
    command = command_of(data)
    assert isinstance(command, Finish)
    return [("space", space, "write")] if command.write else [("space", space, "take|read")]


RIGHTS = MachineRights(
    "space",
    "space/",
    "space",
    {
        Write: "write",
        Take: _takes,
        Finish: _finishes,
        Renew: "write",
        Cancel: "write",
        Notify: "read",
        Seen: "read",
        Forget: "read",
        Join: ANY,
        Commit: ANY,
        Abort: ANY,
        Prepare: ANY,
        Release: ANY,
    },
    {Find: "read", Count: "read", Events: "read", Look: ANY},
    awaits="take|read",
    bodies="read",
    identified=True,
)


def _listed(data: bytes, space: str) -> list[Need]:
    return [("space", ANYWHERE, ANY)]


LIST_RIGHTS = MachineRights(
    "space",
    "spaces",
    "space",
    {**dict.fromkeys(RIGHTS.commands), Write: _listed, Release: _listed},
    dict.fromkeys(RIGHTS.questions, _listed),
    makes=_listed,
    identified=True,
    single="spaces",
)
"""The list of spaces: a program that may use a space may enter that space in the list."""
