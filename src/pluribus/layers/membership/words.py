"""The words of the membership on the wire. A view's identity is the ballot that made it: (number, leader)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number
from ...core.ids import ALL
from ...core.limits import GROUPS_PER_MEMBER_MAX, NAME_CHARS_MAX, VIEW_MEMBERS_MAX

BallotNumber = Annotated[int, msgspec.Meta(ge=0, le=1 << 28)]
"""Far more than a bus will ever need; bounded so that stamps made from it still travel."""

REGROUPS_MAX = 1 << 18
"""Changes of groups in one view of the bus; then the view changes, and counting starts again."""
ROSTERS_PER_FRAME_MAX = 64

Ballot = tuple[BallotNumber, Number]
"""Number and leader; greater ones win."""

NO_BALLOT: Ballot = (0, 0)
FIRST_NUMBER = 1
"""The number of the view in which a member starts, alone."""

Members = Annotated[list[Number], msgspec.Meta(max_length=VIEW_MEMBERS_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]


class Link(msgspec.Struct, array_like=True, frozen=True):
    """One primary view in the chain of primaries, formed or attempted: (epoch, members), and the chain it is of."""

    lineage: Number
    epoch: Number
    view: Ballot
    members: tuple[Number, ...]
    after: Ballot = NO_BALLOT
    """The view of the link before. In a chain that was forced: the latest primary from which any member comes."""


class Past(msgspec.Struct, array_like=True, frozen=True):
    """What a member remembers of primaries: the last that it was in, and later ones to which it agreed without seeing
    them formed; others may have seen that."""

    last: Link | None
    attempts: tuple[Link, ...] = ()
    left: tuple[Number, ...] = ()
    """Members of ``last`` that left the bus for good from it, and had agreed to nothing later."""


class Wish(msgspec.Struct, array_like=True, frozen=True):
    """A group that a member wants to be in, with what it was promised there."""

    group: Number
    name: Name
    promises: Annotated[str, msgspec.Meta(max_length=64)]


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """How far a multicast stream has come."""

    sender: Number
    group: Number
    upto: Number


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """How far a stream must come before the new view, and a member that has all of that."""

    sender: Number
    group: Number
    upto: Number
    holder: Number


class Roster(msgspec.Struct, array_like=True, frozen=True):
    """A group in a view."""

    group: Number
    name: Name
    promises: Annotated[str, msgspec.Meta(max_length=64)]
    members: Members


class Proposal(msgspec.Struct, array_like=True, frozen=True):
    """A view as its leader proposes it. It has a ``link`` if it is to be a primary. ``starts`` says where streams go
    on."""

    ballot: Ballot
    members: Members
    names: list[Name]
    link: Link | None
    rosters: Annotated[list[Roster], msgspec.Meta(max_length=GROUPS_PER_MEMBER_MAX)]
    starts: list[Progress]
    sides: list[Members] = []
    """The members that come from each older view, if the proposal joins several."""
    recent: Ballot = NO_BALLOT
    """The latest primary that any of the members was in; members that were not in it have missed messages."""


def can_be(view: Proposal) -> bool:
    """Whether a proposal can be a view. It comes from another process, and everything above relies on it."""
    members = set(view.members)
    if len(view.names) != len(view.members) or len(members) != len(view.members) or ALL in members:
        return False
    return all(
        len(set(roster.members)) == len(roster.members) and members.issuperset(roster.members)
        for roster in view.rosters
    )


def stamp_of(view: Ballot, number: int = 0) -> int:
    """The stamp that frames carry: of a view of the bus, and of a group after ``number`` changes inside that view. A
    later stamp is greater. Between views of one number the upper bits of the leader decide, as in their ballots."""
    return (view[0] << 16 | view[1] >> 47 & 0xFFFF) * REGROUPS_MAX + number


def bus_stamp_of(stamp: int) -> int:
    """The stamp of the bus's view in which a group has a view with this stamp."""
    return stamp - stamp % REGROUPS_MAX


class Invite(Header, tag=40):
    """Step 1, leader to all: stop and tell me how far you are."""

    ballot: Ballot


Places = tuple[Number, Number]
"""``stack.events.Places`` on the wire."""


class Joined(Header, tag=41):
    """Step 1, the answer: my view, the one I agreed to if that is later, how far I am, where I want to be."""

    ballot: Ballot
    view: Ballot
    agreed: Ballot
    members: Members
    progress: list[Progress]
    own: list[tuple[Number, Number]]
    """By group, where this member's own stream goes on."""
    delivered: Places
    """How far it has delivered the total order of its view."""
    wishes: Annotated[list[Wish], msgspec.Meta(max_length=GROUPS_PER_MEMBER_MAX)]
    past: Past
    held: Places = (0, 0)
    """How far it could deliver the total order of the last primary that it was in, with what it holds."""
    reached: Places = (0, 0)
    """How far it has delivered that order."""
    founders: Number = 1
    """How many members a first primary needs, according to this member."""


class Busy(Header, tag=42):
    """I promised a greater ballot."""

    promised: Ballot


class Propose(Header, tag=43):
    """Step 2, leader to all: reach this, then agree to that."""

    proposal: Proposal
    cut: list[Piece]
    delivered: Places
    """How far anybody of the addressee's old view has delivered its total order."""
    limbo: Places | None = None
    """How far the members of the last primary deliver its total order. It is given if one of them was cut off and comes
    back before there is another primary, or if a primary is forced."""


class Agree(Header, tag=44):
    """Step 2, the answer: I have reached the cut and remember the proposal."""

    ballot: Ballot


class Enter(Header, tag=45):
    """Step 3, leader to all: everybody agreed; the view is real."""

    ballot: Ballot


class Entered(Header, tag=46):
    """Step 3, the answer."""

    ballot: Ballot


class GroupWishes(Header, tag=47):
    """A member to the eldest of its view: the groups that I want to be in. Repeated until it is so."""

    view: Ballot
    serial: Number
    """Of two such messages the later counts."""
    wishes: Annotated[list[Wish], msgspec.Meta(max_length=GROUPS_PER_MEMBER_MAX)]


class NewRosters(Header, tag=48):
    """The eldest to all, in order: these groups change."""

    number: Annotated[int, msgspec.Meta(ge=1, lt=REGROUPS_MAX)]
    """Counts such changes in a view of the bus."""
    rosters: Annotated[list[Roster], msgspec.Meta(max_length=ROSTERS_PER_FRAME_MAX)]


class Ends(Header, tag=49):
    """Old and new members of those groups, to all, in order: by group, where my stream ends in the old view of the
    group and begins in the new one. I send nothing to the group until the new view is there."""

    number: Annotated[int, msgspec.Meta(ge=1, lt=REGROUPS_MAX)]
    ends: Annotated[list[tuple[Number, Number]], msgspec.Meta(max_length=ROSTERS_PER_FRAME_MAX)]


class Otherwise(Header, tag=39):
    """The eldest to a member: this group was opened with other promises than you ask for."""

    group: Number
    promises: Annotated[str, msgspec.Meta(max_length=64)]


class Word(msgspec.Struct, array_like=True, frozen=True):
    """What every member wants to be known of its view, carried by the detector's beats."""

    view: Ballot
    agreed: Ballot
    size: Number
    epoch: Number
    primary: bool
    unfounded: bool
    """It was never in a primary, nor agreed to one."""
    founders: Number = 1
    """As in ``Joined``."""
