"""The contents of an interconnection file, as data: slots, ports, connections, roles. ``language.py`` makes it from
text."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.limits import NAME_CHARS_MAX, SLOT_CONNECTIONS_MAX, SLOT_OCCUPANTS_MAX, SLOT_PORTS_MAX, SLOTS_MAX

REQUIRED, TRANSIENT, INVOKED, SHADOW = "required", "transient", "invoked", "shadow"
SLOT_KINDS = (REQUIRED, TRANSIENT, INVOKED, SHADOW)
"""A required slot is occupied while the bus runs; a transient one may be empty; a message to an invoked one starts its
program; occupants of a shadow slot watch and reconfigure, and have no ports."""

OUT, IN, ASKS, ANSWERS = "out", "in", "asks", "answers"
PORT_KINDS = (OUT, IN, ASKS, ANSWERS)
"""``out`` and ``in`` are asynchronous; ``asks`` and ``answers`` are request and response."""
FITS = {OUT: IN, ASKS: ANSWERS}
"""The kind of port that a connection leads to, by the kind that it comes from."""

ROUTER = "router"
"""The slot that the router occupies; a file cannot name it."""
MANY = SLOT_OCCUPANTS_MAX
CAPACITY = 1_000
TTL_S = 60.0
"""The defaults of a connection: how many messages may wait, and for how long."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=1_024)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class End(msgspec.Struct, array_like=True, frozen=True, order=True):
    """One end of a connection: a port of a slot."""

    slot: Name
    port: Name

    def __str__(self) -> str:
        return f"{self.slot}.{self.port}"


class Port(msgspec.Struct, array_like=True, frozen=True):
    name: Name
    kind: str
    type: Text = ""
    """The type of the messages: ``bytes``, ``text``, ``data`` or the name of a registered type; empty: any."""
    answer: Text = ""
    """The type of the answers, for a port that asks or answers."""

    @property
    def sends(self) -> bool:
        return self.kind in FITS


class Slot(msgspec.Struct, array_like=True, frozen=True):
    name: Name
    kind: str = TRANSIENT
    least: Count = 0
    greatest: Count = 1
    program: Text = ""
    """The command of the slot's tool; an invoked slot's command is started for a message."""
    about: Text = ""
    ports: Annotated[tuple[Port, ...], msgspec.Meta(max_length=SLOT_PORTS_MAX)] = ()
    enrol: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()
    """Roles that may enrol; empty: everybody."""

    def port(self, name: str) -> Port | None:
        return next((port for port in self.ports if port.name == name), None)


class Connection(msgspec.Struct, array_like=True, frozen=True):
    source: End
    target: End
    capacity: Count = CAPACITY
    ttl_s: Seconds = TTL_S

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class Role(msgspec.Struct, array_like=True, frozen=True):
    name: Name
    verifier: Text = ""
    """Proves a passphrase without revealing it; ``keys.py`` makes it. Empty: no passphrase is right."""
    listed: bool = False
    """True if the access list of the bus gives it as well: to users whom it allows ``slot-role:BUS/ROLE hold``."""


class Plan(msgspec.Struct, array_like=True, frozen=True):
    """A whole file."""

    name: Name
    static: bool = False
    """True: its connections never change. Else they are the first shape."""
    announces: bool = True
    """Occupants are told of changes of routes."""
    slots: Annotated[tuple[Slot, ...], msgspec.Meta(max_length=SLOTS_MAX)] = ()
    connections: Annotated[tuple[Connection, ...], msgspec.Meta(max_length=SLOT_CONNECTIONS_MAX)] = ()
    roles: Annotated[tuple[Role, ...], msgspec.Meta(max_length=64)] = ()
    see: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()
    """Roles that may see slots and occupants; empty: everybody."""
    reconfigure: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()
    """Roles that may change routes; empty: every occupant."""

    def slot(self, name: str) -> Slot | None:
        return next((slot for slot in self.slots if slot.name == name), None)
