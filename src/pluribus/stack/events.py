"""What layers tell each other besides frames. An event travels up or down the stack until a layer stops it; a layer
passes on events that it does not know. Events for applications are in ``core.events``."""

from __future__ import annotations

import msgspec

from ..core.events import Event as Event
from ..core.events import Gone as Gone
from ..core.events import Suspected as Suspected
from ..core.events import Unsuspected as Unsuspected
from ..core.frame import Frame
from ..core.ports import Address

UNHEARD = ("none", "fifo", "causal")
"""Promises for which a member's own messages need not come back to it."""


class JoinGroup(Event, frozen=True):
    """Down: this member wants the group's messages."""

    group: int
    name: str
    own: bool = True
    """Whether it wants to hear itself."""
    first: int = 0
    """The number of its next message there."""
    promises: str = "none"
    """Order and safety, as one word: every member of a group must ask for the same."""
    drops: bool = False
    """True: a receiver that does not read is not waited for; it loses what it has no room for."""

    @property
    def deaf(self) -> bool:
        """Whether this member's own messages do not come back to it."""
        return not self.own and self.promises in UNHEARD


class LeaveGroup(Event, frozen=True):
    """Down: this member does not want the group's messages any more."""

    group: int


class Members(Event, frozen=True):
    """Up and down, from the layer that knows: the members of a group, this member included if it is in the group. Group
    0 is the bus."""

    group: int
    members: tuple[int, ...]
    names: dict[int, str]
    agreed: bool = False
    promises: str = "none"
    """As its members asked for them when they joined."""
    stamp: int = 0
    """Names this view of the group: the same stamp means the same members, at every member."""
    starts: dict[int, int] = msgspec.field(default_factory=dict)
    """By sender: its first message that does not belong to the view before. Senders that have just left are
    included."""


Places = tuple[int, int]
"""Two positions in a total order: of all messages, and of the messages of safe groups, which may be before or behind
the other."""
NOWHERE = (0, 0)


class ViewChanged(Event, frozen=True):
    """Up: a new agreed view of the bus. Messages that came before belong to the view before."""

    number: int
    leader: int
    """Number and leader together name the view: when the bus is parted, different leaders may use the same number."""
    members: tuple[int, ...]
    primary: bool
    continues: bool = False
    """The view is primary and follows directly after the view from which this member comes, and so do all members that
    were in that view and are in this one."""
    delivered: Places = (0, 0)
    """The furthest position in the old view's total order that any of the members that left it together has
    delivered."""
    lineage: int = 0
    """Of a primary: the number of the chain of primaries to which it belongs."""
    epoch: int = 0
    """Its place in that chain."""
    sides: tuple[tuple[int, ...], ...] = ()
    """Of a view that joins several older views: the members that came from each."""
    excluded: bool = False
    """The view is primary, and there was another primary between it and the last one that this member was in."""
    after: tuple[int, int] = (0, 0)
    """Of a primary: the view of the link before it in its chain."""
    limbo: Places = (0, 0)
    """The position in the total order of the view ``after`` up to which everybody who was in that view, and is here,
    holds its messages."""


class CollectDelivered(Event, frozen=True):
    """Up, answered at once: how far this member has delivered the total order of this view."""

    into: list[Places]


class CollectHeld(Event, frozen=True):
    """Up, answered at once: how far this member could deliver the last primary's total order with what it holds, and
    how far it has delivered it."""

    into: list[Places]


class Dropped(Event, frozen=True):
    """Up: messages of this member that had no place in the total order when it was cut off. It is not known here
    whether the primary gave them one."""

    group: int
    ids: tuple[tuple[int, int], ...]


class Blocked(Event, frozen=True):
    """Up: the view is about to change; send nothing until it has."""

    blocked: bool


class ForcePrimary(Event, frozen=True):
    """Down: found a new primary with the members that are here. A person says that most members of the last primary are
    gone for good."""


class Addresses(Event, frozen=True):
    """Down: where the other members of the bus are reached now."""

    addresses: dict[int, Address]


class Credit(Event, frozen=True):
    """Up: how many bytes a stream of this member may still send. At 0 or below it waits."""

    group: int
    to: int
    room_bytes: int


class NoRoom(Event, frozen=True):
    """Up: a receiver has left a stream of this member no room for some seconds; repeated while that lasts. ``over``: it
    leaves room again."""

    group: int
    to: int
    member: int
    over: bool


class CollectFull(Event, frozen=True):
    """Down, answered at once: the receivers that leave a stream of this member no room now."""

    group: int
    to: int
    into: list[int]


class Consumed(Event, frozen=True):
    """Down: the application took frames of a stream out of its inbox, or they were dropped unread."""

    sender: int
    group: int
    to: int
    frames: int
    size: int


# From introductions and the detector


class Visitor(Event, frozen=True):
    """Down: a process that is no member asks for all members."""

    member: int


class Introduced(Event, frozen=True):
    """Up: there are addresses to which no hello of this member has gone yet."""


class Found(Event, frozen=True):
    """Up: somebody is on the bus, with a stack like ours."""

    member: int
    name: str


class Tell(Event, frozen=True):
    """Down: a few bytes that every other member should know of this one; the latest counts."""

    word: bytes


class Told(Event, frozen=True):
    """Up: what another member wants to be known."""

    member: int
    word: bytes


class LastWord(Event, frozen=True):
    """Up: what a member wanted to be known when it left for good."""

    member: int
    word: bytes


# Between the membership and the reliability below it: a view change in four steps

StreamOf = tuple[int, int]
"""A multicast stream: sender and group."""


class Freeze(Event, frozen=True):
    """Down: pass nothing more up of multicast streams until ``Reach`` says how far, or ``Install`` lets go."""


class AnyOrder(Event, frozen=True):
    """Down: a layer above orders the messages of this group, so a frame need not wait for those before it in its stream
    if it has no headers but these. It comes up with ``Ahead``. It ends with ``LeaveGroup``."""

    group: int
    headers: frozenset[type]


class CollectDigest(Event, frozen=True):
    """Down, answered at once: how far this member has received every multicast stream of its groups, its own included;
    and, by group, where its own streams go on, also of groups that it is only about to join."""

    into: dict[StreamOf, int]
    own: dict[int, int]


class Reach(Event, frozen=True):
    """Down: receive and pass up every stream to here, asking the named holders for what is missing."""

    upto: dict[StreamOf, int]
    holders: dict[StreamOf, int]


class Reached(Event, frozen=True):
    """Up: every stream has been passed up as far as ``Reach`` said."""


class Watch(Event, frozen=True):
    """Down: tell above, and without delay, what of this group's streams is stable. Group 0 is the control streams."""

    group: int
    watched: bool


class Stable(Event, frozen=True):
    """Up: every receiver has this stream up to here."""

    sender: int
    group: int
    upto: int


class Confirm(Event, frozen=True):
    """Down: tell above when every receiver has this member's stream up to here, and hasten it."""

    group: int
    to: int
    upto: int


class Confirmed(Event, frozen=True):
    """Up: every receiver has this member's stream up to here."""

    group: int
    to: int
    upto: int


class Unconfirmed(msgspec.Struct, frozen=True):
    """Messages of one stream of this member that not every receiver has."""

    group: int
    to: int
    upto: int
    messages: int = 0
    lacking: tuple[int, ...] = ()
    """Receivers that are not known to have them."""


class Paused(Event, frozen=True):
    """Up: this member may not send to a group now, and why; an empty reason lets it go on."""

    group: int
    reason: str


class Install(Event, frozen=True):
    """Down: a new view. Everything older is settled; streams go on from ``starts``, to the new receivers."""

    stamp: int
    """Frames of this view carry it."""
    members: tuple[int, ...]
    groups: dict[int, tuple[int, ...]]
    starts: dict[StreamOf, int]


# A group that changes inside a view: the same in small


class GroupBlocked(Event, frozen=True):
    """Up: the group is about to change; send nothing to it until it has."""

    group: int
    blocked: bool


class GroupRefused(Event, frozen=True):
    """Up: this member cannot be in the group, and why."""

    group: int
    reason: str


class CollectEnds(Event, frozen=True):
    """Down, answered at once: the next numbers of this member's streams in these groups, and which streams some
    receiver may still lack a part of."""

    groups: tuple[int, ...]
    into: dict[int, int]
    unstable: set[int]


class ReachGroup(Event, frozen=True):
    """Down: answer ``GroupReached`` when these streams, by sender, have been passed up as far as given here. Nothing of
    the group's next view is passed up before ``Regroup``."""

    group: int
    ends: dict[int, int]


class GroupReached(Event, frozen=True):
    """Up: they have been."""

    group: int


class Regroup(Event, frozen=True):
    """Down: the group's next view. Streams of members that stay go on; those of new members begin at ``starts``; those
    of members that left are kept until everybody has them."""

    group: int
    members: tuple[int, ...]
    starts: dict[int, int]
    stamp: int


# To and from the lowest layers


class Rekey(Event, frozen=True):
    """Down: this member has entered a view; frames from now on are for the members of that view alone."""

    view: tuple[int, int]
    """Number and leader. The leader makes the key."""
    members: tuple[int, ...]


class Hurry(Event, frozen=True):
    """Down: another member waits for the frame that was just handed down; send it before anything else is done."""


class Refuse(Event, frozen=True):
    """Down: tell a process why its frames are not accepted. It is told in clear, because the two share no key."""

    member: int
    reason: int


class TooLong(Event, frozen=True):
    """Up, answered at once: an encoded frame is longer than the path. A layer that can cut it puts frames that fit into
    ``into``."""

    to: int
    datagram: bytes
    into: list[Frame]


# Between the inquiry and the runtime


class Inquired(Event, frozen=True):
    """Up: somebody, who may be no member, wants to know how this member is."""

    member: int
    question: int


class Inform(Event, frozen=True):
    """Down: the answer."""

    member: int
    question: int
    report: bytes
