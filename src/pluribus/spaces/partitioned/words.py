"""What members of a partitioned space say to each other. Every word carries the epoch that it belongs to.

A request is named by its worker and a number. ``floor`` is the worker's first request that is not over: servers forget
what came of those below.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..templates import Template
from ..values import Item

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Range = Annotated[int, msgspec.Meta(ge=0, lt=1_024)]
Name = tuple[Number, Number]
"""Of a tuple: the worker that wrote it, and the number of that request."""
Ranges = Annotated[list[Range], msgspec.Meta(max_length=1_024)]


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """What a take writes in place of the tuple that it gets, in the range of the new one. ``first``: the epoch in which
    it was said first."""

    item: Item
    lease_us: Number
    range: Range
    first: Number


class Owed(msgspec.Struct, frozen=True, array_like=True):
    """A tuple that a take has to be replaced by, and that is not in its own range yet."""

    worker: Number
    number: Number
    carried: Carried


class Put(msgspec.Struct, frozen=True, array_like=True, tag=1):
    epoch: Number
    worker: Number
    number: Number
    floor: Number
    range: Range
    item: Item
    lease_us: Number
    first: Number
    """The epoch in which it was said first."""
    owed_by: int = -1
    """The range in which a take was made that this tuple replaces: its owner says this word."""


class Kept(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A tuple is in its range, and in all copies of it. ``unknown``: nobody can tell whether it was, because the range
    was lost since it was first said."""

    epoch: Number
    number: Number
    unknown: bool = False


class Seek(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Find a match in these ranges of yours. A take gets it at once; if there is none, an interest is left, unless it
    is a ``probe``. ``recall``: only say what this request was given here before."""

    epoch: Number
    worker: Number
    number: Number
    attempt: Number
    floor: Number
    ranges: Ranges
    template: Template
    takes: bool
    probe: bool = False
    recall: bool = False
    carried: Carried | None = None


class Sought(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """What was found; no item: nothing."""

    epoch: Number
    number: Number
    attempt: Number
    name: Name = (0, 0)
    item: Item | None = None
    lease_us: Number = 0
    """What its lease had left, if that is known; 0: it had no end."""


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A match has come for an interest. For a take it is set aside until that claims it, or withdraws."""

    epoch: Number
    number: Number
    range: Range
    name: Name
    item: Item


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Take what was offered; the answer is ``Sought``."""

    epoch: Number
    worker: Number
    number: Number
    attempt: Number
    floor: Number
    range: Range
    name: Name
    carried: Carried | None = None


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A request is over: its interests end, and what was set aside for it goes to others."""

    epoch: Number
    worker: Number
    number: Number


class Withdrawn(msgspec.Struct, frozen=True, array_like=True, tag=8):
    epoch: Number
    number: Number


class Interest(msgspec.Struct, frozen=True, array_like=True):
    """A request that waits at a range."""

    worker: Number
    number: Number
    template: Template
    takes: bool


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One step of a range's state. What is not None happens, in the order of the fields."""

    add: tuple[Name, Item, Number] | None = None
    remove: Name | None = None
    wait: Interest | None = None
    leave: tuple[Number, Number] | None = None
    set_aside: tuple[Name, Number, Number] | None = None
    done: tuple[Number, Number, Name, Item | None] | None = None
    floor: tuple[Number, Number] | None = None
    relet: tuple[Name, Number] | None = None
    """The lease of a tuple begins anew."""
    owe: Owed | None = None
    paid: tuple[Number, Number] | None = None


class Copy(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Steps of a range, for those who have a copy of it; the first has this number."""

    epoch: Number
    range: Range
    first: Number
    changes: list[list[Change]]


class Copied(msgspec.Struct, frozen=True, array_like=True, tag=10):
    epoch: Number
    range: Range
    steps: Number


class Holdings(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """When an epoch begins, to everybody: which ranges this member has, of which epoch, after how many steps, and with
    how many tuples."""

    epoch: Number
    ranges: dict[Range, tuple[Number, Number, Number]]


class Pull(msgspec.Struct, frozen=True, array_like=True, tag=12):
    epoch: Number
    range: Range


class State(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A range in full: tuples with what their leases have left, interests in their order, what is set aside, what came
    of requests."""

    epoch: Number
    range: Range
    steps: Number
    tuples: list[tuple[Name, Item, Number]]
    waiting: list[Interest]
    aside: list[tuple[Name, Number, Number]]
    done: list[tuple[Number, Number, Name, Item | None]]
    floors: dict[Number, Number]
    born: Number
    """The epoch in which the range began, empty."""
    owed: list[Owed] = []


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """A copy of a range is here."""

    epoch: Number
    range: Range


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """To the eldest: this member has all its ranges, and so has whoever keeps copies of them. ``lost``: ranges of which
    no copy was left, each with how many tuples it had when an epoch last began."""

    epoch: Number
    lost: dict[Range, int]


class Tally(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """How many tuples match, and the first ``most`` of them."""

    epoch: Number
    number: Number
    template: Template
    most: Number


class Tallied(msgspec.Struct, frozen=True, array_like=True, tag=17):
    epoch: Number
    number: Number
    count: Number
    items: list[Item]


class Lost(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """To everybody, before the epoch is opened: what is not there any more."""

    epoch: Number
    ranges: dict[Range, int]


class Heard(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """The answer to ``Lost``."""

    epoch: Number


class Relet(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """The lease of a tuple begins anew with this length, or ends now."""

    epoch: Number
    worker: Number
    number: Number
    floor: Number
    range: Range
    name: Name
    lease_us: Number
    ends: bool = False


class Let(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """The answer to ``Relet``; not ``done``: the tuple is gone, or somebody is about to take it."""

    epoch: Number
    number: Number
    done: bool


class Paid(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """The answer to a ``Put`` of a tuple that was owed by a range."""

    epoch: Number
    range: Range
    worker: Number
    number: Number


Word = (
    Put
    | Kept
    | Seek
    | Sought
    | Offer
    | Claim
    | Withdraw
    | Withdrawn
    | Copy
    | Copied
    | Holdings
    | Pull
    | State
    | Stored
    | Ready
    | Tally
    | Tallied
    | Lost
    | Heard
    | Relet
    | Let
    | Paid
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Word).decode
