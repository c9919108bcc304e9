"""What a bus tells its application besides messages: ``bus.events()`` yields these, ``bus.on_event`` calls with them.

Layers use the same root for what they tell each other (``stack.events``); what stands here is for everybody.
"""

from __future__ import annotations

import msgspec

from .ids import MemberId, MessageId
from .view import View


class Event(msgspec.Struct, frozen=True):
    """The root of all events."""


class Suspected(Event, frozen=True):
    """Nothing is heard of a member, by us or by those whom we asked. It may be wrong."""

    member: MemberId
    name: str = ""


class Unsuspected(Event, frozen=True):
    """It was wrong: the member is heard again."""

    member: MemberId
    name: str = ""


class Gone(Event, frozen=True):
    """A member left the bus, was silent for too long, or was refused."""

    member: MemberId
    reason: str
    name: str = ""


class ViewInstalled(Event, frozen=True):
    """A new agreed view of the bus. Everything that was delivered before belongs to the one before."""

    view: View
    primary: bool


class Merged(Event, frozen=True):
    """The new view was formed from several that had been apart. Nothing is delivered afterwards of what the other sides
    said among themselves: whoever keeps a state compares it now. Newcomers are no side."""

    sides: tuple[tuple[MemberId, ...], ...]
    """Who came from each of the views, the leader's own first."""


class BecamePrimary(Event, frozen=True):
    """This member is in the primary view: total and safe order go on."""

    view: View


class LostPrimary(Event, frozen=True):
    """This member is not in the primary view any more: total and safe order wait."""

    view: View


class Excluded(Event, frozen=True):
    """The primary went on without this member, which is back as a joiner; or it was asked to leave a group that it did
    not read. Readers of these groups are raised ``errors.Excluded`` in the place of what they missed."""

    groups: tuple[str, ...]


class JoinRefused(Event, frozen=True):
    """A process asked to be in a group with other promises or another key than its members have. It was not let in, and
    has been told; this is told by the member of the bus that decides about it."""

    member: MemberId
    name: str
    group: str
    reason: str


class Uncertain(Event, frozen=True):
    """Messages that this member had sent to a totally ordered group when it was cut off: it does not know whether the
    primary delivered them. Who waits for one of them is raised ``errors.Uncertain``."""

    group: str
    ids: tuple[MessageId, ...]


Run = tuple[int, int, int]
"""Identities in a row: of a member's messages or a session's calls, the first and one behind the last."""


class Dissolved(Event, frozen=True):
    """Two primaries that were founded apart have met, and the one that this member was in gave way. What it had
    acknowledged to this member is not in the order of the other, and nobody goes on with it."""

    what: str
    """``messages`` of a totally ordered group, or ``calls`` of a replica."""
    name: str
    """Of the group or the replica."""
    count: int
    """How many of this member's own had been acknowledged."""
    ids: tuple[Run, ...]
    """Which; of very many, those that came last."""


class Reverted(Event, frozen=True):
    """A totally ordered group with a state goes on with an older one: everybody who had a later one is gone. What was
    applied since is lost, and this is told by those who had applied the older one, where their readers come to it."""

    group: str


class Stalled(Event, frozen=True):
    """A member of a group does not read, or reads too slowly: for a while it has left this member no room to send."""

    member: MemberId
    name: str
    group: str


class Resumed(Event, frozen=True):
    """A member that was ``Stalled`` leaves room again, or is not waited for any more."""

    member: MemberId
    name: str
    group: str


class Missed(Event, frozen=True):
    """Events that a subscription of this member did not get: ``reason`` is ``late`` (after its deadline) or ``slow``
    (it was not read in time). Told a run of events at a time."""

    pattern: str
    count: int
    reason: str


class Skipped(Event, frozen=True):
    """Whoever iterates did so too slowly, and missed so many events."""

    count: int
