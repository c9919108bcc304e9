"""The vocabulary of a software bus on the wire: one struct for each message of the report, and some that the report
lacks.

Requests are multicast, because no occupant has to know where the router is: ``Enroll``, ``Dropout``, ``KeepAlive``,
``SendData`` (one table of the report calls it REQ_DATA), ``ReqRoute``, ``AddRoute``, ``DelRoute``. Answers go to one
member: ``Alive``, ``Ticket``, ``Dropped``, ``CountTtl``, ``AckData``, ``AnsRoute``, ``AckRoute``, ``NegAck``.
Information is multicast and acknowledged: ``RouteAdded``, ``RouteDeleted``.

Added here: ``AckInfo`` acknowledges information; ``SlotChanged`` is information about the occupants of a slot;
``Challenge`` asks for the proof of a passphrase. The communications manager's are ``Advertise``, ``Cancel``,
``Enquire``, ``ReqMap`` and ``AnsMap``.

A ``nonce`` is a number by which an answer finds its request. ``report_name`` names each word as the report does.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..core.frame import Number
from ..core.limits import SLOT_CONNECTIONS_MAX, SLOT_OCCUPANTS_MAX
from ..wire.bodies import register
from ..wire.questions import Wrapped
from .plan import Connection, Count, End, Name, Plan, Seconds, Text

Version = tuple[Number, Number]
"""A version of the map: the epoch of its router, and the number of changes of routes."""
Id = tuple[Number, Number]
"""The identity of a message: its origin, which an occupant keeps when it moves, and a number that the origin never uses
twice."""
Live = Annotated[tuple[Number, ...], msgspec.Meta(max_length=SLOT_OCCUPANTS_MAX)]
"""Tickets that are valid in a slot."""
Proofs = Annotated[tuple[tuple[Name, bytes], ...], msgspec.Meta(max_length=64)]
Claims = Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] | None
"""The roles that a client claims from the access list of the bus. Its door removes those that the list does not give.
None: the word is from a member."""


class Leg(msgspec.Struct, array_like=True, frozen=True):
    """A connection, as one message uses it: its target, its bounds, and the occupants of the slot there."""

    target: End
    capacity: Count
    ttl_s: Seconds
    tickets: Live = ()
    """The tickets of the occupants; empty: the slot is empty, and one acknowledgement of the next occupant is
    enough."""
    generation: Number = 0
    """The generation of the slot: a later answer about it has a greater one."""

    @property
    def count(self) -> int:
        return max(len(self.tickets), 1)


Legs = Annotated[tuple[Leg, ...], msgspec.Meta(max_length=SLOT_CONNECTIONS_MAX)]


# Requests


class Enroll(msgspec.Struct, array_like=True, frozen=True):
    """ENROLL: may I occupy this slot?"""

    nonce: Number
    slot: Name
    name: Text = ""
    challenge: bytes = b""
    proofs: Proofs = ()
    keyed: bool = False
    """I may have roles: challenge me."""
    claims: Claims = None


class Dropout(msgspec.Struct, array_like=True, frozen=True):
    """DROPOUT: I leave. ``end``: for good, so routes that depend on me go too; else I move, and they stay."""

    ticket: Number
    slot: Name
    end: bool = False


class KeepAlive(msgspec.Struct, array_like=True, frozen=True):
    """KEEP_ALIVE: the router asks every occupant whether it is there."""

    epoch: Number


class SendData(msgspec.Struct, array_like=True, frozen=True):
    """SEND_DATA: a message on a port."""

    id: Id
    ticket: Number
    source: End
    body: Wrapped
    generation: Number = 0
    """The generation of the sender's slot, as the sender knows it."""
    version: Version = (0, 0)
    """The version of the map, as the sender knows it."""
    floor: Number = 0
    """Every message of this origin below this number is settled."""
    age_s: Seconds = 0.0
    asks: bool = False
    destinations: Annotated[tuple[End, ...], msgspec.Meta(max_length=SLOT_CONNECTIONS_MAX)] = ()
    """Source routing: the targets, in the sender's opinion."""
    wanted: Annotated[tuple[tuple[End, Live], ...], msgspec.Meta(max_length=SLOT_CONNECTIONS_MAX)] | None = None
    """In a repetition: the tickets that have not acknowledged; no tickets: any occupant of that slot."""


class ReqRoute(msgspec.Struct, array_like=True, frozen=True):
    """REQ_ROUTE: is a message from this port for me?"""

    ticket: Number
    slot: Name
    source: End


class AddRoute(msgspec.Struct, array_like=True, frozen=True):
    """ADD_ROUTE."""

    nonce: Number
    ticket: Number
    slot: Name
    connection: Connection


class DelRoute(msgspec.Struct, array_like=True, frozen=True):
    """DEL_ROUTE."""

    nonce: Number
    ticket: Number
    slot: Name
    source: End
    target: End


# Answers


class Alive(msgspec.Struct, array_like=True, frozen=True):
    """ALIVE: I still occupy this slot. ``epoch`` is that of the latest router that I know."""

    ticket: Number
    slot: Name
    epoch: Number = 0


class Ticket(msgspec.Struct, array_like=True, frozen=True):
    """TICKET: you occupy the slot from now on."""

    nonce: Number
    number: Number
    slot: Name
    generation: Number
    version: Version
    plan: Plan
    waiting: Annotated[tuple[Name, ...], msgspec.Meta(max_length=1_000)] = ()
    """Required slots that lack occupants."""
    by: Text = "router"
    roles: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()


class Dropped(msgspec.Struct, array_like=True, frozen=True):
    """DROPPED: you occupy the slot no more."""

    ticket: Number


class CountTtl(msgspec.Struct, array_like=True, frozen=True):
    """COUNT_TTL: how many acknowledgements a message needs, for how long it is kept, and on which connections."""

    id: Id
    count: Count
    ttl_s: Seconds
    legs: Legs
    version: Version
    generation: Number


class AckData(msgspec.Struct, array_like=True, frozen=True):
    """ACK_DATA: a message was accepted on a port. On a port that answers, it has the answer."""

    id: Id
    ticket: Number
    target: End
    answer: Wrapped | None = None
    failure: Text = ""
    """The exception of the answering program."""


class AnsRoute(msgspec.Struct, array_like=True, frozen=True):
    """ANS_ROUTE: whether a message from this port is for the asker, and every port that it goes to."""

    ticket: Number
    source: End
    accept: bool
    destinations: Legs
    generation: Number
    live: Live
    version: Version


class AckRoute(msgspec.Struct, array_like=True, frozen=True):
    """ACK_ROUTE: the route was added or deleted."""

    nonce: Number
    version: Version


STALE, PUT_OFF, DENIED, FENCED = "stale", "put off", "denied", "fenced"


class NegAck(msgspec.Struct, array_like=True, frozen=True):
    """NEG_ACK: a refusal, with the reason. ``about`` is the nonce, ticket or message number that is refused."""

    about: Number
    kind: Text
    reason: Text
    epoch: Number = 0
    """The epoch of the refusing router."""


# Information


class RouteAdded(msgspec.Struct, array_like=True, frozen=True):
    """ROUTE_ADDED."""

    version: Version
    connection: Connection


class RouteDeleted(msgspec.Struct, array_like=True, frozen=True):
    """ROUTE_DELETED."""

    version: Version
    source: End
    target: End


class SlotChanged(msgspec.Struct, array_like=True, frozen=True):
    """The occupants of a slot from now on."""

    epoch: Number
    slot: Name
    generation: Number
    live: Live
    waiting: Annotated[tuple[Name, ...], msgspec.Meta(max_length=1_000)] = ()


class AckInfo(msgspec.Struct, array_like=True, frozen=True):
    """The acknowledgement of information: a version of the map, or a slot and its generation."""

    ticket: Number
    version: Version = (0, 0)
    slot: Text = ""
    generation: Number = 0


# Keys


class Challenge(msgspec.Struct, array_like=True, frozen=True):
    """Prove your passphrase for this number."""

    nonce: Number
    challenge: bytes
    salts: Annotated[tuple[tuple[Name, Number, bytes], ...], msgspec.Meta(max_length=64)] = ()
    """Roles, with the rounds and the salt of their verifiers."""
    listed: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()
    """Roles that the access list may give."""


# The communications manager's


class Advertise(msgspec.Struct, array_like=True, frozen=True):
    """A bus is here. ``waiting``: a required slot is empty."""

    bus: Name
    epoch: Number
    by: Text
    waiting: bool
    slots: Count
    occupants: Count
    router: Text = ""
    """The name of the advertising member."""


class Cancel(msgspec.Struct, array_like=True, frozen=True):
    """The bus has ended."""

    bus: Name
    epoch: Number


class Enquire(msgspec.Struct, array_like=True, frozen=True):
    """Which buses are there? Routers advertise at once."""


class ReqMap(msgspec.Struct, array_like=True, frozen=True):
    """Asks for the present state of this bus."""

    nonce: Number
    bus: Name
    challenge: bytes = b""
    proofs: Proofs = ()
    keyed: bool = False
    hand_over: bool = False
    """Stop, and give me the map: I go on as the router."""
    claims: Claims = None


class Seat(msgspec.Struct, array_like=True, frozen=True):
    """One occupant, as a map shows it."""

    number: Number
    slot: Name
    member: Number
    name: Text = ""
    roles: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()
    nonce: Number = 0


class AnsMap(msgspec.Struct, array_like=True, frozen=True):
    """The plan with the present connections, and the occupants."""

    nonce: Number
    plan: Plan
    seats: Annotated[tuple[Seat, ...], msgspec.Meta(max_length=SLOT_OCCUPANTS_MAX)]
    version: Version
    waiting: Annotated[tuple[Name, ...], msgspec.Meta(max_length=1_000)] = ()
    by: Text = "router"
    state: bytes = b""
    """The whole map, if it is handed over."""
    router: Text = ""
    """The name of the member in the router's own slot; empty if there is no router."""


REQUESTS = (Enroll, Dropout, KeepAlive, SendData, ReqRoute, AddRoute, DelRoute)
RESPONSES = (Alive, Ticket, Dropped, CountTtl, AckData, AnsRoute, AckRoute, NegAck)
INFORMATION = (RouteAdded, RouteDeleted, SlotChanged)
OTHERS = (AckInfo, Challenge, Advertise, Cancel, Enquire, ReqMap, AnsMap)
WORDS = (*REQUESTS, *RESPONSES, *INFORMATION, *OTHERS)
DATA_PATH = (SendData, CountTtl, AckData, ReqRoute, AnsRoute)
"""The words of one send; the others come whether programs send or not."""
Word = Any
"""One of ``WORDS``."""

for word in WORDS:
    register(word, f"pluribus.slots.{word.__name__}")


def report_name(word: type) -> str:
    """As the report writes it: ``SendData`` is SEND_DATA."""
    found = "".join(f"_{letter}" if letter.isupper() else letter for letter in word.__name__)
    return found.strip("_").upper()
