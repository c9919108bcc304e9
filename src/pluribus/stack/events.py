"""What layers tell each other besides frames. Events travel up or down the stack until a layer stops them."""

from __future__ import annotations

import msgspec

from ..core.ports import Address


class Event(msgspec.Struct, frozen=True):
    """The root of all events; a layer that does not know one passes it on."""


class JoinGroup(Event, frozen=True):
    """Down: this member wants the group's messages."""

    group: int
    name: str
    own: bool = True
    """Whether it wants to hear itself."""


class LeaveGroup(Event, frozen=True):
    """Down: this member wants them no longer."""

    group: int


class Members(Event, frozen=True):
    """Up and down from whoever knows: the members of a group, this one included if it is one. Group 0 is the bus."""

    group: int
    members: tuple[int, ...]
    names: dict[int, str]
    agreed: bool = False


class Addresses(Event, frozen=True):
    """Down: where the other members of the bus are reached now."""

    addresses: dict[int, Address]


class Credit(Event, frozen=True):
    """Up: how many bytes a stream of this member may still send. At 0 or below it waits."""

    group: int
    to: int
    room_bytes: int


class Consumed(Event, frozen=True):
    """Down: the application took frames of a stream out of its inbox, or nobody will ever take them."""

    sender: int
    group: int
    to: int
    frames: int
    size: int


class Gone(Event, frozen=True):
    """Up: a member left the bus, was silent for too long, or was refused."""

    member: int
    reason: str
