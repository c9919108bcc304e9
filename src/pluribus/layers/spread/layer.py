"""Spread: how a frame that is for everybody gets to everybody. Order and reliability above do not know which way.

Theory of operation
-------------------
Layers above send frames to all members of a group. The members come from the agreed view, in its order, as a list that
all of them have (``lists``). This layer takes one of these ways:

``multicast``  the engine's: one datagram that the medium brings to everybody, or one by one where it cannot.
``unicast``    one by one, to the members of the group alone.
``tree``       the doubling tree (``core.tree``): every member with the message passes it on, so the number of members
               with the message doubles at every step; with ``k`` it grows by k + 1 times. Reliable in itself: see
               ``inheriting`` and the design note on the tree.
``pipeline``   a tree in which nobody sends more than ``degree`` copies: for long messages, which come in many frames.
``gossip``     each member tells some others, picked at random, and digests find members that were left out
(``gossip``). ``auto``       measures and picks one of the first four (``choosing``).

A frame goes up exactly as it went down at its sender, whatever way it took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ...core.errors import BadStack
from ...core.frame import Frame
from ...core.ids import ALL
from ...core.tree import AT_A_TIME_MAX, balanced, median
from ...stack.events import Event, Gone, Install, Regroup, Suspected, Unsuspected
from ...stack.layer import Layer
from .choosing import Chooser
from .gossip import Gossip
from .inheriting import Tree
from .lists import Listed, Lists
from .words import (
    Asked,
    Closed,
    Copy,
    Digest,
    Done,
    DonePlease,
    Down,
    Failed,
    Heard,
    Holding,
    Missing,
    Probe,
    Rumour,
    Submit,
    Taken,
    Up,
    Working,
)

AUTO = "auto"
WAYS = ("multicast", "unicast", "tree", "pipeline", "gossip")
PROXIES = ("sender", "first")
CONTROL = 0


class Spread(Layer):
    """how a message gets to all: multicast, one by one, a tree"""

    name = "spread"
    selective = True
    requires = frozenset({"datagrams"})
    provides = frozenset({"spreading"})
    headers = (
        *(Copy, Down, Up, Working, Missing, Failed, Submit),
        *(Taken, Asked, Holding, Closed, Done, DonePlease, Rumour, Digest, Probe, Heard),
    )

    tree_type: ClassVar[type[Tree]] = Tree
    gossip_type: ClassVar[type[Gossip]] = Gossip

    def __init__(self, by: str = AUTO, k: int = 1, degree: int = 2, proxy: str = "sender", fanout: int = 0) -> None:
        if by not in (AUTO, *WAYS):
            raise BadStack(f"spread(by={by!r}) is no way to spread: use {', '.join((AUTO, *WAYS))}")
        if proxy not in PROXIES:
            raise BadStack(f"spread(proxy={proxy!r}) is nobody: use {' or '.join(PROXIES)}")
        for name, value in (("k", k), ("degree", degree)):
            if not 1 <= value <= AT_A_TIME_MAX:
                raise BadStack(f"spread({name}={value!r}) is out of range: use 1 to {AT_A_TIME_MAX}")
        self.unsettled = False
        self._by = by
        self._first = proxy == "first"
        self._shapes = {"tree": median(k), "pipeline": balanced(degree)}
        self._lists = Lists(lambda: self.ports.clock.now())
        self._tree = self.tree_type(self, self._lists)
        self._gossip = self.gossip_type(self, self._lists, fanout)
        self._chooser = Chooser(self)
        self._handlers: dict[type, Callable[[Frame, Any], None]] = self._words()
        self.ways: dict[str, int] = dict.fromkeys(WAYS, 0)

    def _words(self) -> dict[type, Callable[[Frame, Any], None]]:
        tree = self._tree
        return {
            Copy: self._copied,
            Down: tree.came_down,
            Up: lambda frame, word: tree.came_up(frame.sender, word),
            Working: lambda frame, word: tree.working(frame.sender, word),
            Missing: lambda frame, word: tree.missing(frame.sender, word),
            Failed: lambda frame, word: tree.failed(word),
            Submit: tree.submitted,
            Taken: lambda frame, word: tree.taken(word),
            Asked: lambda frame, word: tree.asked(frame.sender, word),
            Holding: lambda frame, word: tree.holds(frame.sender, word),
            Closed: lambda frame, word: tree.closed(frame.sender, word),
            Done: lambda frame, word: tree.told_done(word),
            DonePlease: lambda frame, word: tree.done_please(frame.sender, word),
            Rumour: self._gossip.rumour,
            Digest: lambda frame, word: self._gossip.digest(frame.sender, word),
            Probe: lambda frame, word: self._chooser.probed(frame.sender, word),
            Heard: lambda frame, word: self._chooser.heard(frame.sender, word),
        }

    # Frames

    def down(self, frame: Frame) -> None:
        if frame.to != ALL:
            self.pass_down(frame)
            return
        listed = self._lists.of(frame.group)
        if listed is None:
            self.pass_down(frame)
            return
        way = self._chooser.way(frame, listed) if self._by == AUTO else self._by
        self.ways[way] += 1
        if way == "multicast":
            self.pass_down(frame)
        elif way == "unicast":
            self._one_by_one(frame, listed)
        elif way == "gossip" and self.node.me in listed.places:
            self._gossip.spread(frame, listed)
        else:
            self._by_tree(frame, listed, self._shapes.get(way, median()))

    def _one_by_one(self, frame: Frame, listed: Listed) -> None:
        frame.headers.append(Copy())
        for member in listed.members:
            if member != self.node.me:
                copy = frame.copy()
                copy.to = member
                self.pass_down(copy)

    def _copied(self, frame: Frame, word: Copy) -> None:
        frame.headers.pop()
        frame.to = ALL
        self.pass_up(frame)

    def _by_tree(self, frame: Frame, listed: Listed, shape: int) -> None:
        """A member is the proxy of its own messages, unless the first of the list is the proxy of all. A sender that is
        not in the list asks a member to be its proxy."""
        me = self.node.me
        if me not in listed.places:
            self._tree.submit(frame, listed, shape, self.ports.random.randrange(len(listed)))
            return
        proxy = self._tree.first_living(listed) if self._first else listed.places[me]
        if listed.members[proxy] == me:
            self._tree.spread(frame, listed, shape)
        else:
            self._tree.submit(frame, listed, shape, proxy)

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        handler = self._handlers.get(type(header))
        if handler is None:
            self.pass_up(frame)
        else:
            self._tree.heard(frame.sender)
            handler(frame, header)

    def settle(self) -> None:
        self.unsettled = False
        self._tree.settle()

    # Lists and the dead

    def event_down(self, event: Event) -> None:
        if isinstance(event, Install):
            self._tree.reset()
            self._gossip.reset()
            self._chooser.reset(event.members)
            self._lists.install(event.stamp, {CONTROL: event.members, **event.groups})
            self._try_early()
        elif isinstance(event, Regroup):
            self._lists.change(event.group, event.members, event.stamp)
            self._tree.forget_lists()
            self._gossip.forget_lists()
            self._try_early()
        self.tell_down(event)

    def _try_early(self) -> None:
        for frame in self._lists.take_early():
            self.up(frame)

    def event_up(self, event: Event) -> None:
        if isinstance(event, Suspected):
            self._tree.suspected(event.member)
            self._gossip.suspected(event.member)
        elif isinstance(event, Unsuspected | Gone):
            self._tree.unsuspected(event.member)
            self._gossip.unsuspected(event.member)
        self.tell_up(event)

    def stats(self) -> dict[str, Any]:
        tree, gossip = self._tree.stats(), self._gossip.stats()
        kept = {"kept": tree["kept"] + gossip["kept"]}
        unreached = {"unreached": len(self._chooser.unreached)}
        return {"by": self._by, **self.ways, **unreached, **gossip, **tree, **kept}

    def validate(self) -> None:
        self._lists.validate()
        self._tree.validate()
        self._gossip.validate()
