"""The words between members of a partitioned space. Every word carries its epoch.

A request is named by its worker and a number. ``floor`` is the worker's first request that is not over: servers forget
the results of those below.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..templates import Template
from ..values import Item
from ..watching import Mark, Watched
from ..words import HAND_BACK_BYTES_MAX

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
RANGES = 64
Range = Annotated[int, msgspec.Meta(ge=0, lt=RANGES)]
Name = tuple[Number, Number]
"""The name of a tuple: the worker that wrote it, and the number of that request."""
Version = tuple[Number, Number]
"""The epoch and the steps of a range."""
Ranges = Annotated[list[Range], msgspec.Meta(max_length=RANGES)]


class Watching(msgspec.Struct, frozen=True, array_like=True):
    """A registration. ``wide``: it stands at all ranges."""

    template: Template
    lease_us: Number
    hand_back: Annotated[bytes, msgspec.Meta(max_length=HAND_BACK_BYTES_MAX)]
    wide: bool


class KeptWatch(msgspec.Struct, frozen=True, array_like=True):
    """A registration at a range, with the rest of its lease and its events; ``watches.Watch`` explains the fields."""

    name: Name
    made: Watching
    seen: Number
    last: Number
    count: Number
    gap: bool
    events: list[tuple[Number, Item]]


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """The tuple that a take writes in place of the one that it gets, in the range of the new one. ``first``: the epoch
    in which it was first sent."""

    item: Item
    lease_us: Number
    range: Range
    first: Number


class Owed(msgspec.Struct, frozen=True, array_like=True):
    """A tuple that replaces a taken one, and that is not in its own range yet."""

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
    """The epoch in which it was first sent."""
    owed_by: int = -1
    """The range in which the replacing take was made: its owner sends this word."""


class Kept(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A tuple is in its range, and in all copies of it. ``unknown``: it may have been, but the range was lost since the
    tuple was first sent."""

    epoch: Number
    number: Number
    unknown: bool = False


class Seek(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Find a match in these ranges of yours. A take gets it at once; if there is none, an interest is left, unless it
    is a ``probe``. ``recall``: only answer which tuple this request was given here before."""

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
    """The match that was found; no item: there was none."""

    epoch: Number
    number: Number
    attempt: Number
    name: Name = (0, 0)
    item: Item | None = None
    lease_us: Number = 0
    """The rest of its lease, if that is known; 0: it had no end."""


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A match for an interest. For a take it is set aside until the take claims it, or withdraws."""

    epoch: Number
    number: Number
    range: Range
    name: Name
    item: Item


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Take the offered tuple; the answer is ``Sought``."""

    epoch: Number
    worker: Number
    number: Number
    attempt: Number
    floor: Number
    range: Range
    name: Name
    carried: Carried | None = None


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A request is over: its interests end, and a tuple that was set aside for it goes to others."""

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
    """One step of a range's state. Every field that is not None takes effect, in the order of the fields."""

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
    watch: tuple[Name, Watching] | None = None
    hears: tuple[Name, Number] | None = None
    """A listener has acknowledged events of a registration, up to this one."""
    rewatch: tuple[Name, Number] | None = None
    """The lease of a registration begins anew."""
    unwatch: Name | None = None


class Copy(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Steps of a range, for the members that have a copy of it; the first has this number."""

    epoch: Number
    range: Range
    first: Number
    changes: list[list[Change]]


class Copied(msgspec.Struct, frozen=True, array_like=True, tag=10):
    epoch: Number
    range: Range
    steps: Number


class Holdings(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """When an epoch begins, to every member: the ranges that this member has, each with the epoch of its state, how
    many steps and tuples that has, and the epoch in which the range began."""

    epoch: Number
    ranges: dict[Range, tuple[Number, Number, Number, Number]]


class Pull(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Send me this piece of a range; I have those before."""

    epoch: Number
    range: Range
    piece: Number = 0


class State(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """One piece of a range: tuples with the rest of their leases, interests in their order, tuples that are set aside,
    results of requests, registrations. What is in a piece may refer to the pieces before."""

    epoch: Number
    range: Range
    steps: Number
    tuples: list[tuple[Name, Item, Number]]
    waiting: list[Interest]
    aside: list[tuple[Name, Number, Number]]
    done: list[tuple[Number, Number, Name, Item | None]]
    floors: dict[Number, Number]
    """In the first piece only."""
    born: Number
    """The epoch in which the range began, empty."""
    owed: list[Owed] = []
    watches: list[KeptWatch] = []
    """A registration with many events comes in several parts, which follow each other."""
    piece: Number = 0
    last: bool = True


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """A copy of a range is here."""

    epoch: Number
    range: Range


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """To the eldest: this member has all its ranges, and so have the members that keep copies of them. ``lost``: ranges
    of which no copy was left, each with about how many tuples it had."""

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
    """To every member, before the epoch is opened: ranges that are lost."""

    epoch: Number
    ranges: dict[Range, int]


class Heard(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """The answer to ``Lost``."""

    epoch: Number


class Relet(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Renew the lease of a tuple with this length, or end it now."""

    epoch: Number
    worker: Number
    number: Number
    floor: Number
    range: Range
    name: Name
    lease_us: Number
    ends: bool = False


class Let(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """The answer to ``Relet``; not ``done``: the tuple is gone, or a take is about to get it."""

    epoch: Number
    number: Number
    done: bool


class Paid(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """The answer to a ``Put`` of a tuple that was owed by a range."""

    epoch: Number
    range: Range
    worker: Number
    number: Number


class Register(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """A registration is to stand at these ranges of yours; its name is that of the request."""

    epoch: Number
    worker: Number
    number: Number
    floor: Number
    ranges: Ranges
    made: Watching


class Stands(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """The answer to ``Register``; ``full``: there are too many."""

    epoch: Number
    number: Number
    ranges: Ranges
    full: bool = False


class Listen(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Answer when there are events of a registration after ``seen``, which acknowledges those up to there, at each of
    these ranges. ``probe``: answer even if there are none."""

    epoch: Number
    worker: Number
    number: Number
    registration: Name
    seen: list[Mark]
    probe: bool = False


class Told(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """The answer to ``Listen``, of the ranges of one server."""

    epoch: Number
    number: Number
    watched: Watched


class Renew(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """Renew the lease of a registration with this length, or end it now."""

    epoch: Number
    worker: Number
    number: Number
    floor: Number
    registration: Name
    lease_us: Number
    ends: bool = False


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """The answer to ``Renew``; not ``done``: the registration does not stand here."""

    epoch: Number
    number: Number
    done: bool


class Inquire(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """The owner of a lost range asks every member for registrations that stand at all ranges."""

    epoch: Number


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The owner of a range has all of it: pull your copy of it, unless you have this version. When you have all of it,
    the answer is ``Stored``."""

    epoch: Number
    range: Range
    version: Version | None


class Counts(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """How many tuples some ranges of the sender have, for what is told if they are lost."""

    epoch: Number
    ranges: dict[Range, Number]


class Registered(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """The answer to ``Inquire``."""

    epoch: Number
    watches: list[tuple[Name, Watching]]


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
    | Fetch
    | Counts
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
    | Register
    | Stands
    | Listen
    | Told
    | Renew
    | Renewed
    | Inquire
    | Registered
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Word).decode
