"""The words between members of a space of the kind *views*. Every word carries its epoch."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..templates import Template
from ..values import Item
from ..watching import Watched
from ..words import HAND_BACK_BYTES_MAX

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Name = tuple[Number, Number]
"""The name of a tuple: the worker that wrote it, and the number of that operation."""
HandBack = Annotated[bytes, msgspec.Meta(max_length=HAND_BACK_BYTES_MAX)]
Many = Annotated[list[tuple[Name, Item, Number]], msgspec.Meta(max_length=1_000_000)]
"""Tuples with their names, and the rest of their leases (microseconds; 0: for ever)."""


class Listening(msgspec.Struct, frozen=True, array_like=True):
    """A registration is made; its name is that of the operation."""

    template: Template
    lease_us: Number
    hand_back: HandBack


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """A listener has these events of a registration, and was told that so many were missed. ``renews``: the lease
    begins anew. ``ends``: the registration is over."""

    registration: Name
    names: list[Name]
    missed: Number = 0
    renews: bool = False
    lease_us: Number = 0
    ends: bool = False


class KeptListener(msgspec.Struct, frozen=True, array_like=True):
    """A registration at a replica, with its events and the rest of its lease."""

    name: Name
    template: Template
    hand_back: HandBack
    left_us: Number
    seen: Number
    dropped: Number
    events: list[tuple[Name, Item]]
    early: list[Name]
    """Events that were acknowledged before the write came here."""


class Op(msgspec.Struct, frozen=True, array_like=True):
    """One operation of a worker: it removes ``name``, taken by ``request``, or writes ``item`` as (worker, number), or
    does both; or it is about a registration. ``again``: the item was there before, with another lease."""

    number: Number
    item: Item | None = None
    lease_us: Number = 0
    name: Name = (0, 0)
    request: Number = 0
    again: bool = False
    listening: Listening | None = None
    heard: Heard | None = None


class Do(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Operations of a worker, in their order."""

    epoch: Number
    worker: Number
    ops: list[Op]


class Did(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """All operations of the worker up to this one are executed here."""

    epoch: Number
    worker: Number
    number: Number


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Read: answer with a match, when operations of this worker up to ``after`` are executed."""

    epoch: Number
    worker: Number
    request: Number
    template: Template
    after: Number
    probe: bool = False
    """Answer even if there is no match."""


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=4):
    epoch: Number
    request: Number
    name: Name = (0, 0)
    item: Item | None = None


class Lock(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Phase 1 of a take. ``most``: the taker has most of the locks already."""

    epoch: Number
    worker: Number
    request: Number
    template: Template
    after: Number
    attempt: Number
    most: bool = False
    only: Name = (0, 0)
    """If given, only this tuple is wanted."""


class Locked(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Granted, with the tuples that match."""

    epoch: Number
    request: Number
    attempt: Number
    matches: Many


class Denied(msgspec.Struct, frozen=True, array_like=True, tag=7):
    epoch: Number
    request: Number
    attempt: Number


class Unlock(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The taker gives its lock back. ``waits``: tell it when a match comes."""

    epoch: Number
    worker: Number
    request: Number
    attempt: Number
    waits: bool


class Unlocked(msgspec.Struct, frozen=True, array_like=True, tag=9):
    epoch: Number
    request: Number
    attempt: Number


class Stir(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A match has come for a take that waits."""

    epoch: Number
    request: Number


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A request is over: its caller does not wait for it."""

    epoch: Number
    worker: Number
    request: Number


class Report(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """To the eldest, when an epoch begins: the state of this member, and its unfinished operations."""

    epoch: Number
    worker: Number
    state: int
    """The epoch of its tuples; -1 if it has none."""
    count: Number
    """How many tuples it has."""
    names: list[Name]
    """Their names, of many only the first: the eldest asks for the others (``Tell``)."""
    marks: dict[Number, Number]
    """By worker: its last operation that was executed here."""
    ahead: dict[Number, list[Number]]
    """By worker: removals beyond that mark that were executed when an epoch began."""
    removing: list[tuple[Number, Name, Number]]
    """Its own takes that are not finished: the operation, the tuple, and the epoch in which it was decided."""
    first: Number
    """Its first operation that is not finished."""
    sent: Number
    """The last operation that a replica may have executed."""
    replacing: dict[Number, tuple[Item, Number]] = {}
    """By operation of ``removing``: the tuple that it writes in place of the removed one, and for how long."""
    again: list[Number] = []
    """Operations of ``replacing`` that only renew a lease."""
    listeners: list[KeptListener] = []


class Want(msgspec.Struct, frozen=True, array_like=True, tag=13):
    epoch: Number
    names: list[Name]


class Here(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The answer to ``Want``: as many of the tuples as fit into one word, at least one."""

    epoch: Number
    tuples: Many


class Install(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """How this member's tuples become those of the epoch: ``at`` tuples came before (``More``), here are the others.
    ``void`` are takes of its worker that did not happen."""

    epoch: Number
    drop: list[Name]
    at: Number
    add: Many
    marks: dict[Number, Number]
    ahead: dict[Number, list[Number]]
    void: list[Name]
    lost: bool
    """No replica of the last epoch is left: the space is empty."""
    listeners: list[KeptListener] = []
    """All registrations, in the place of those that are there."""
    leaving: list[Number] = []
    """If no member of the epoch has a replica: those about to leave that keep the tuples until then."""


class Installed(msgspec.Struct, frozen=True, array_like=True, tag=16):
    epoch: Number


class Tell(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Report the names of your tuples from this one on."""

    epoch: Number
    at: Number


class Names(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """The answer to ``Tell``."""

    epoch: Number
    at: Number
    names: list[Name]


class More(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Tuples that this member lacks; ``at`` came before. The other ones come in further words, the last in
    ``Install``."""

    epoch: Number
    at: Number
    add: Many


class Got(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """So many of the tuples that this member lacked are here."""

    epoch: Number
    count: Number


class Listen(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Answer when there are events of a registration, and operations of this worker up to ``after`` are executed.
    ``probe``: answer even if there are none."""

    epoch: Number
    worker: Number
    request: Number
    registration: Name
    after: Number
    probe: bool = False


class Told(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """The answer to ``Listen``."""

    epoch: Number
    request: Number
    watched: Watched


Word = (
    Do
    | Did
    | Ask
    | Answer
    | Lock
    | Locked
    | Denied
    | Unlock
    | Unlocked
    | Stir
    | Forget
    | Report
    | Want
    | Here
    | Install
    | Installed
    | Listen
    | Told
    | Tell
    | Names
    | More
    | Got
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Word).decode
