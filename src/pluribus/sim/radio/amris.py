"""AMRIS, ad hoc multicast routing with increasing identities: one tree for all sources. Source: M2MC, 2.4.1.

Theory of operation
-------------------
The first source (Sid) broadcasts *new session*. A node that hears it takes a
number (msm-id) greater than that of the node it heard it from, not consecutive, and broadcasts it with its own number,
once. So numbers increase away from Sid: they say how high a node stands. Every node with a number *beacons* about once
a second, with its number and its parent.

A member joins the tree by asking a neighbour with a smaller number (*join request*, unicast). One that is on the tree
takes it as a child (*join ack*); one that is not first joins itself in the same way, then acknowledges; one that
cannot says *join nak*, and the next neighbour is asked. That is also branch reconstruction BR1, which the child does
when its parent is silent or has moved away. If no neighbour will do, BR2: the request is broadcast over up to
``BRANCH_HOPS`` hops; a node on the tree with a smaller number answers along the way back, the first answer is
confirmed (*join conf*), and all nodes on that way are on the tree.

Messages go along the tree in both directions: a node takes them from its parent and its children only and repeats them
once if it has other tree neighbours. A tree has one path between two nodes: what is lost on it is lost to all behind
it, and while a branch is rebuilt its members get nothing.

No circles: a parent's number is smaller than its child's, always. A node whose parent's beacon shows a number that is
not smaller leaves it.

Decided here. All nodes with a number beacon, or nobody would know who may be asked. Nodes on the way of a BR2 get
numbers between those of its ends (numbers have fractions); none of them has children, so nobody minds. A node that
fails ``BRANCHES_MAX`` times gives up its number and its children and takes a new one, as at a new session: above a
neighbour on the tree, or if it has none, above all its neighbours. So does one that heard no new session. A node
without need (no member, no children) leaves the tree.
"""

from __future__ import annotations

from typing import Any

from .air import Word
from .neighbours import SILENT_S
from .node import ADDRESS_BYTES, HEADER_BYTES, JITTER_S, NUMBER_BYTES, Data, RadioNode

BEACON_S = 1.0
ANSWER_S = 0.8
"""For the answer to a join request; the one who was asked may have to ask on."""
BRANCH_S = 0.5
BRANCH_HOPS = 3
BRANCHES_MAX = 2
GAP = 10.0
"""Numbers of a node and one that took its number from it differ by up to this."""
CHILDREN_MAX = 256


class NewSession(Word, frozen=True):
    number: float

    @property
    def control(self) -> int:
        return HEADER_BYTES + NUMBER_BYTES


class Beacon(Word, frozen=True):
    number: float | None
    parent: int | None
    on_tree: bool

    @property
    def control(self) -> int:
        return HEADER_BYTES + NUMBER_BYTES + ADDRESS_BYTES


class JoinRequest(Word, frozen=True):
    number: float

    @property
    def control(self) -> int:
        return HEADER_BYTES + NUMBER_BYTES


class JoinAck(Word, frozen=True):
    number: float

    @property
    def control(self) -> int:
        return HEADER_BYTES + NUMBER_BYTES


class JoinNak(Word, frozen=True):
    @property
    def control(self) -> int:
        return HEADER_BYTES


class BranchRequest(Word, frozen=True):
    """BR2. ``way`` leads from the asker to the sender of this."""

    count: int
    number: float
    way: tuple[int, ...]

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * NUMBER_BYTES + ADDRESS_BYTES * len(self.way)


class BranchAck(Word, frozen=True):
    """The whole way, from the asker to the node on the tree, whose number this is."""

    count: int
    number: float
    way: tuple[int, ...]

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * NUMBER_BYTES + ADDRESS_BYTES * len(self.way)


class JoinConf(Word, frozen=True):
    """To the next node on the way: it is needed. ``above`` is the number of the end, ``below`` that of the asker."""

    above: float
    below: float
    way: tuple[int, ...]

    @property
    def control(self) -> int:
        return HEADER_BYTES + 2 * NUMBER_BYTES + ADDRESS_BYTES * len(self.way)


class Near:
    """What is known of a neighbour."""

    __slots__ = ("heard_at", "number", "on_tree")

    def __init__(self, number: float, on_tree: bool, heard_at: float) -> None:
        self.number = number
        self.on_tree = on_tree
        self.heard_at = heard_at


class Amris(RadioNode):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.is_root = self.me == min(self.members)
        self.number: float | None = None
        self.parent: int | None = None
        self.children: dict[int, float] = {}
        """When each was last heard."""
        self.near: dict[int, Near] = {}
        self.repairs = 0
        self._asking: int | None = None
        self._tried: set[int] = set()
        self._turn = 0
        """Counts attempts to join, so that a timer knows that it is stale."""
        self._wait_for_me: set[int] = set()
        self._branches = 0
        self._branch_failures = 0
        self._branching = False

    @property
    def on_tree(self) -> bool:
        return self.is_root or self.parent is not None

    def start(self) -> None:
        if self.is_root:
            self.number = 0.0
            self.air.later(0.5, self._announce)
        self.air.later(self.random.random() * BEACON_S, self._beacon)

    def _announce(self) -> None:
        if self.number is not None:
            self.air.broadcast(self.me, NewSession(self.number), JITTER_S)

    # Beacons

    def _beacon(self) -> None:
        now = self.air.now
        for node in [node for node, found in self.near.items() if now - found.heard_at > SILENT_S]:
            del self.near[node]
        for node in [node for node, at in self.children.items() if now - at > SILENT_S]:
            del self.children[node]
        if self.parent is not None and self.parent not in self.near:
            self._lose_parent()
        needed = self.member or self.children or self._wait_for_me
        if not needed:
            self.parent = None
        if self.number is None and self.near:
            self._take_number()
        if needed and not self.on_tree and self.number is not None:
            self._join()
        if self.number is not None or self.children:
            self.air.broadcast(self.me, Beacon(self.number, self.parent, self.on_tree))
        self.air.later(BEACON_S * (0.9 + 0.2 * self.random.random()), self._beacon)

    def _take_number(self) -> None:
        on_tree = [found.number for found in self.near.values() if found.on_tree]
        above = min(on_tree) if on_tree else max(found.number for found in self.near.values())
        self.number = above + 1 + GAP * self.random.random()

    def _lose_parent(self) -> None:
        self.parent = None
        self.repairs += 1

    def receive(self, sender: int, word: Any) -> None:
        if isinstance(word, Data):
            self._got(sender, word)
        elif isinstance(word, Beacon):
            self._beaconed(sender, word)
        elif isinstance(word, NewSession):
            self._new_session(sender, word)
        elif isinstance(word, JoinRequest):
            self._requested(sender, word)
        elif isinstance(word, JoinAck):
            self._acknowledged(sender, word)
        elif isinstance(word, JoinNak):
            self._next_if(sender)
        elif isinstance(word, BranchRequest):
            self._branch_requested(sender, word)
        elif isinstance(word, BranchAck):
            self._branch_acknowledged(word)
        elif isinstance(word, JoinConf):
            self._confirmed(sender, word)

    def _new_session(self, sender: int, session: NewSession) -> None:
        self.near[sender] = Near(session.number, sender == min(self.members), self.air.now)
        if self.number is None:
            self.number = session.number + 1 + GAP * self.random.random()
            self._announce()

    def _beaconed(self, sender: int, beacon: Beacon) -> None:
        if beacon.number is None:
            self.near.pop(sender, None)
        else:
            self.near[sender] = Near(beacon.number, beacon.on_tree, self.air.now)
        if beacon.parent == self.me:  # also if the parent has forgotten it: a beacon is a registration
            if self.number is not None and beacon.number is not None and self.number < beacon.number:
                self.children[sender] = self.air.now
        elif self.air.now - self.children.get(sender, self.air.now) > ANSWER_S:
            del self.children[sender]
        if sender == self.parent and not self._above(beacon.number):
            self._lose_parent()

    def _above(self, number: float | None) -> bool:
        """Whether a node with this number may be the parent of this one."""
        return number is not None and self.number is not None and number < self.number

    # Joining, and BR1

    def _join(self) -> None:
        if self._asking is not None or self._branching:
            return
        self._tried = set()
        self._ask_next()

    def _ask_next(self) -> None:
        self._asking = None
        self._turn += 1
        may = [
            (not found.on_tree, found.number, node)
            for node, found in self.near.items()
            if self._above(found.number) and node not in self._tried and node not in self.children
        ]
        if not may:
            self._nobody()
            return
        asked = self._asking = min(may)[2]
        self._tried.add(asked)
        assert self.number is not None
        self.air.unicast(self.me, asked, JoinRequest(self.number), lambda: self._next_if(asked))
        self.air.later(ANSWER_S, self._next_if, asked, self._turn)

    def _next_if(self, asked: int, turn: int = 0) -> None:
        """That one cannot help, or is silent: ask the next, if it is still waited for."""
        if self._asking == asked and turn in (0, self._turn) and not self.on_tree:
            self._ask_next()

    def _nobody(self) -> None:
        for child in sorted(self._wait_for_me):
            self.air.unicast(self.me, child, JoinNak())
        self._wait_for_me.clear()
        if self.member or self.children:
            self._branch()

    def _requested(self, child: int, request: JoinRequest) -> None:
        if self.number is None or not self.number < request.number or len(self.children) >= CHILDREN_MAX:
            self.air.unicast(self.me, child, JoinNak())
        elif self.on_tree:
            self._adopt(child)
        else:
            self._wait_for_me.add(child)
            self._join()

    def _adopt(self, child: int) -> None:
        assert self.number is not None
        self.children[child] = self.air.now
        self.air.unicast(self.me, child, JoinAck(self.number))

    def _acknowledged(self, sender: int, ack: JoinAck) -> None:
        if self._asking == sender and not self.on_tree and self._above(ack.number):
            self.near[sender] = Near(ack.number, True, self.air.now)
            self._joined(sender)

    def _joined(self, parent: int) -> None:
        self.parent = parent
        self._asking = None
        self._branching = False
        self._branch_failures = 0
        for child in sorted(self._wait_for_me):
            self._adopt(child)
        self._wait_for_me.clear()

    # BR2

    def _branch(self) -> None:
        assert self.number is not None
        self._branching = True
        self._branches += 1
        self.air.broadcast(self.me, BranchRequest(self._branches, self.number, (self.me,)), JITTER_S)
        self.air.later(BRANCH_S, self._branch_over, self._branches)

    def _branch_over(self, count: int) -> None:
        if count != self._branches or not self._branching:
            return
        self._branching = False
        if self.on_tree:
            return
        self._branch_failures += 1
        if self._branch_failures >= BRANCHES_MAX:
            self._branch_failures = 0
            self.number = None
            self.children.clear()
            self.air.broadcast(self.me, Beacon(None, None, False))

    def _branch_requested(self, sender: int, request: BranchRequest) -> None:
        if self.me in request.way or not self._seen.first((BranchRequest, request.way[0], request.count)):
            return
        way = (*request.way, self.me)
        if self.on_tree:
            if self.number is not None and self.number < request.number:
                self.air.unicast(self.me, sender, BranchAck(request.count, self.number, way))
        elif len(way) <= BRANCH_HOPS and not self.children:
            self.air.broadcast(self.me, BranchRequest(request.count, request.number, way), JITTER_S)

    def _branch_acknowledged(self, ack: BranchAck) -> None:
        place = ack.way.index(self.me)
        if place:
            self.air.unicast(self.me, ack.way[place - 1], ack)
        elif self._branching and ack.count == self._branches and not self.on_tree and self._above(ack.number):
            assert self.number is not None
            parent = ack.way[1]
            self.near[parent] = Near(ack.number, True, self.air.now)
            self._confirm(JoinConf(ack.number, self.number, ack.way), parent)
            self._joined(parent)

    def _confirm(self, conf: JoinConf, parent: int) -> None:
        def failed() -> None:
            if self.parent == parent:
                self._lose_parent()

        self.air.unicast(self.me, parent, conf, failed)

    def _confirmed(self, child: int, conf: JoinConf) -> None:
        place = conf.way.index(self.me)
        below = conf.above + (conf.below - conf.above) * (len(conf.way) - place) / (len(conf.way) - 1)
        if self.on_tree:
            if self.number is not None and self.number < below:
                self.children[child] = self.air.now
            return
        if self.children or place == len(conf.way) - 1:
            return  # it has changed meanwhile: the asker finds no beacon that suits it, and asks again
        self.number = conf.above + (conf.below - conf.above) * (len(conf.way) - 1 - place) / (len(conf.way) - 1)
        self.children[child] = self.air.now
        parent = conf.way[place + 1]
        self.near[parent] = Near(conf.above, True, self.air.now)
        self._confirm(conf, parent)
        self._joined(parent)
        self.air.broadcast(self.me, Beacon(self.number, self.parent, True))

    # Messages

    def send(self, data: Data) -> None:
        self.first(data)
        self.air.broadcast(self.me, data)

    def _got(self, sender: int, data: Data) -> None:
        if (sender != self.parent and sender not in self.children) or not self.first(data):
            return
        self.take(data)
        others = len(self.children) + (self.parent is not None) - 1
        if others > 0:
            self.air.broadcast(self.me, data, JITTER_S)

    def validate(self) -> None:
        assert self.parent not in self.children, "nobody is above and below"
        assert self.me not in self.children and len(self.children) <= CHILDREN_MAX
        if self.parent is not None:
            assert self.number is not None and not self.is_root
