"""What a bus tells its application besides messages: ``bus.events()`` yields these events, and the listeners of
``bus.on_event`` are called with them. Events between layers are in ``stack.events``; they have the same root.
"""

from __future__ import annotations

import msgspec

from .ids import MemberId, MessageId
from .view import View


class Event(msgspec.Struct, frozen=True):
    """The root of all events."""


class Suspected(Event, frozen=True):
    """Neither this member nor those whom it asked hear from another member. The suspicion may be wrong."""

    member: MemberId
    name: str = ""


class Unsuspected(Event, frozen=True):
    """The suspicion was wrong: the member is heard again."""

    member: MemberId
    name: str = ""


class Gone(Event, frozen=True):
    """A member left the bus, was silent for too long, or was refused."""

    member: MemberId
    reason: str
    name: str = ""


class ViewInstalled(Event, frozen=True):
    """A new agreed view of the bus. Everything that was delivered before this event belongs to the view before."""

    view: View
    primary: bool


class Merged(Event, frozen=True):
    """The new view joins several views that had been apart. Messages that the other sides exchanged meanwhile are not
    delivered here, so a program that keeps a state compares it now. A newcomer does not count as a side."""

    sides: tuple[tuple[MemberId, ...], ...]
    """The members that came from each of the views; the leader's view is first."""


class BecamePrimary(Event, frozen=True):
    """This member is in the primary view: total and safe order go on."""

    view: View


class LostPrimary(Event, frozen=True):
    """This member is not in the primary view any more: total and safe order wait."""

    view: View


class Excluded(Event, frozen=True):
    """The primary went on without this member, which has come back as a newcomer; or this member was excluded from a
    group that it did not read. Readers of these groups get ``errors.Excluded`` in the place of what they missed."""

    groups: tuple[str, ...]


class JoinRefused(Event, frozen=True):
    """A process asked to join a group with other promises, or with another key, than the group's members have. It was
    refused, and told so. Only the member that decides about joining has this event."""

    member: MemberId
    name: str
    group: str
    reason: str


class Uncertain(Event, frozen=True):
    """This member was cut off after it had sent these messages to a totally ordered group. It does not know whether the
    primary delivered them. Callers that wait for one of them get ``errors.Uncertain``."""

    group: str
    ids: tuple[MessageId, ...]


Run = tuple[int, int, int]
"""A run of identities: a member or session, its first number, and the number behind its last."""


class Dissolved(Event, frozen=True):
    """Two primaries that were founded apart have met, and the primary of this member gave way. Messages or calls that
    it had acknowledged to this member are not in the other primary's order: they are lost."""

    what: str
    """``messages`` of a totally ordered group, or ``calls`` of a replica."""
    name: str
    """Of the group or the replica."""
    count: int
    """How many messages or calls of this member had been acknowledged and are lost."""
    ids: tuple[Run, ...]
    """Their identities; if there are very many, the last of them."""


class Reverted(Event, frozen=True):
    """A totally ordered group with a state goes on with an older state, because all members with a later one are gone.
    What was applied since then is lost. Members with the older state have this event, in its place among messages."""

    group: str


class Stalled(Event, frozen=True):
    """A member of a group reads too slowly, or not at all: for some seconds this member could send nothing to it."""

    member: MemberId
    name: str
    group: str


class Resumed(Event, frozen=True):
    """A member that was ``Stalled`` reads again, or is not waited for any more."""

    member: MemberId
    name: str
    group: str


class Missed(Event, frozen=True):
    """Events that a subscription of this member did not get: ``reason`` is ``late`` (after its deadline) or ``slow``
    (the subscription was not read in time). One of these stands for a whole run of missed events."""

    pattern: str
    count: int
    reason: str


class Skipped(Event, frozen=True):
    """The iteration over the bus's events was too slow, and missed so many of them."""

    count: int
