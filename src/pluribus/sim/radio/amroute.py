"""AMRoute, the ad hoc multicast routing protocol: a tree of members over a mesh of tunnels. Source: M2MC, 2.4.2.

Theory of operation
-------------------
Only members take part; other nodes carry unicast words (``unicast``), and pass on floods. Every member begins as the
*core* of a mesh of one. A core floods a *join request* once in a while, over a few hops at first and more if nobody
answers. A member of another mesh that hears it answers with a *join acknowledgement*, and both have a mesh link: a
tunnel, however many hops long. So meshes grow together.

A core sends a *tree create* along its mesh links once in a while. A node that gets it for the first time passes it on
along its other links; links that it took are the tree. A node that gets it again answers with a *tree create nak*, and
that link is in the mesh only. Messages go along the tree, in both directions, from tunnel to tunnel.

Two cores that meet in one mesh: the one with the greater number resigns. A member that hears of no tree create for
``CORE_SILENT_S`` becomes a core itself, so a mesh that broke has a core again, and the core moves. A node that leaves
says *join nak* to its mesh neighbours.

As long as the routing finds ways, the tree need not change when nodes move; but tunnels that were short grow long, and
when the routing fails, so does this. Where the survey is silent: a member that answers a join request does not pass it
on, so that links join members that are close; a link whose end is unreachable is dropped; a message is taken from
whichever member sent it and passed on along the tree only.
"""

from __future__ import annotations

from typing import Any

from .air import Word
from .node import ADDRESS_BYTES, HEADER_BYTES, JITTER_S, NUMBER_BYTES, Data, RadioNode
from .unicast import ROUTING, Unicast

JOIN_S = 6.0
TREE_S = 4.0
CORE_SILENT_S = 3 * TREE_S
HOPS_FIRST, HOPS_MAX = 2, 16
MESH_MAX = 64


class JoinRequest(Word, frozen=True):
    core: int
    number: int
    hops: int
    """How many more it may go."""

    @property
    def control(self) -> int:
        return HEADER_BYTES + NUMBER_BYTES


class JoinAck(Word, frozen=True):
    core: int
    """The core that the answering node follows."""

    @property
    def control(self) -> int:
        return HEADER_BYTES


class JoinNak(Word, frozen=True):
    @property
    def control(self) -> int:
        return HEADER_BYTES


class TreeCreate(Word, frozen=True):
    core: int
    number: int

    @property
    def control(self) -> int:
        return HEADER_BYTES + ADDRESS_BYTES + NUMBER_BYTES


class TreeCreateNak(Word, frozen=True):
    core: int
    number: int

    @property
    def control(self) -> int:
        return HEADER_BYTES + ADDRESS_BYTES + NUMBER_BYTES


class AmRoute(RadioNode):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.unicast = Unicast(self.me, self.air, self.random, self._arrived, self._unreachable)
        self.core = self.me
        """The core that this member follows; itself if it is a core."""
        self.mesh: set[int] = set()
        self.tree: set[int] = set()
        self.naks = 0
        self._hops = HOPS_FIRST
        self._requests = 0
        self._creates = 0
        self._created = (-1, -1)
        self._above = -1
        """From whom the last tree create came."""
        self._heard_of_core_at = 0.0

    @property
    def is_core(self) -> bool:
        return self.member and self.core == self.me

    def start(self) -> None:
        if self.member:
            self.air.later(self.random.random() * 2.0, self._search)
            self.air.later(self.random.random() * TREE_S, self._create)

    def leave(self) -> None:
        """Say so to the mesh neighbours and forward nothing any more."""
        for other in sorted(self.mesh):
            self.unicast.send(other, JoinNak())
        self.mesh.clear()
        self.tree.clear()
        self.member = False

    # The core's work

    def _search(self) -> None:
        if not self.member:
            return
        if self.is_core:
            self._requests += 1
            self._seen.first((JoinRequest, self.me, self._requests))
            self.air.broadcast(self.me, JoinRequest(self.me, self._requests, self._hops))
            self._hops = min(2 * self._hops, HOPS_MAX)
        wait_s = JOIN_S if self._hops == HOPS_MAX else 1.0
        self.air.later(wait_s * (0.75 + 0.5 * self.random.random()), self._search)

    def _create(self) -> None:
        if not self.member:
            return
        if not self.is_core and self.air.now - self._heard_of_core_at > CORE_SILENT_S:
            self.core = self.me
            self._hops = HOPS_FIRST
        if self.is_core:
            self._creates += 1
            self._created = (self.me, self._creates)
            self._above = -1
            self.tree = set(self.mesh)
            for other in sorted(self.mesh):
                self.unicast.send(other, TreeCreate(self.me, self._creates))
        self.air.later(TREE_S * (0.9 + 0.2 * self.random.random()), self._create)

    # What comes

    def receive(self, sender: int, word: Any) -> None:
        if isinstance(word, ROUTING):
            self.unicast.receive(sender, word)
        elif isinstance(word, JoinRequest):
            self._requested(word)

    def _requested(self, request: JoinRequest) -> None:
        if not self._seen.first((JoinRequest, request.core, request.number)):
            return
        if self.member and request.core not in (self.core, self.me):
            if request.core not in self.mesh and self._link(request.core):
                self.unicast.send(request.core, JoinAck(self.core))
            return
        if request.hops > 1:
            further = JoinRequest(request.core, request.number, request.hops - 1)
            self.air.broadcast(self.me, further, JITTER_S)

    def _link(self, other: int) -> bool:
        if len(self.mesh) < MESH_MAX:
            self.mesh.add(other)
        return other in self.mesh

    def _arrived(self, origin: int, word: Word) -> None:
        if not self.member:
            return
        if isinstance(word, Data):
            self._got(origin, word)
        elif isinstance(word, TreeCreate):
            self._tree_create(origin, word)
        elif isinstance(word, TreeCreateNak):
            if (word.core, word.number) == self._created:
                self.tree.discard(origin)
        elif isinstance(word, JoinAck):
            self._link(origin)
        elif isinstance(word, JoinNak):
            self._unreachable(origin)

    def _tree_create(self, origin: int, create: TreeCreate) -> None:
        if not self._link(origin):
            return
        alone = self.air.now - self._heard_of_core_at > CORE_SILENT_S and not self.is_core
        if create.core > self.core and not alone:
            return  # that one will hear of ours and resign
        self.core = create.core
        self._heard_of_core_at = self.air.now
        if not self._seen.first((TreeCreate, create.core, create.number)) or create.core == self.me:
            self.naks += 1
            if origin != self._above:
                self.tree.discard(origin)
            self.unicast.send(origin, TreeCreateNak(create.core, create.number))
            return
        self._created = (create.core, create.number)
        self._above = origin
        self.tree = set(self.mesh)
        for other in sorted(self.mesh - {origin}):
            self.unicast.send(other, create)

    def _unreachable(self, other: int) -> None:
        self.mesh.discard(other)
        self.tree.discard(other)

    # Messages

    def send(self, data: Data) -> None:
        self.first(data)
        for other in sorted(self.tree):
            self.unicast.send(other, data)

    def _got(self, origin: int, data: Data) -> None:
        if self.first(data):
            self.take(data)
            for other in sorted(self.tree - {origin}):
                self.unicast.send(other, data)

    def validate(self) -> None:
        assert self.tree <= self.mesh and self.me not in self.mesh
        assert self.member or not self.mesh, "a node that is no member has no links"
        self.unicast.validate()
