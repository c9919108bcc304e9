"""Accounts: whether the beliefs of senders about their receivers are true, checked whenever one of them sends a
datagram.

Receivers report the messages that they have and their room, for themselves or, summed, for all below them in a tree. A
world knows both sides, so it can compare: every receiver has the messages that a sender takes for stable, and no sender
believes in more room at a receiver than that receiver granted or every receiver has at the beginning.

Both are compared between members that are in the same view of a group. Members that are about to enter the view, or
have left it, are left to the membership.
"""

from __future__ import annotations

from ...core.errors import Violation
from ...core.ids import ALL, MemberId
from ...core.ports import Address
from ...core.tree import median, reached
from ...layers.reliable import Reliable
from ...layers.reliable.outgoing import Outgoing
from ...layers.reliable.streams import CONTROL, INITIAL_BYTES, InKey
from ..machinery.history import Happening, History
from ..machinery.world import World

Beginning = tuple[int, int]
"""The stamp of a group's view, and the offset at which the sender was first seen in it."""


class Accounts:
    """Watches the datagrams of a world, and audits their senders."""

    def __init__(self, world: World, history: History) -> None:
        self._world = world
        self._history = history
        self._layers: dict[int, Reliable] = {}
        self._began: dict[tuple[int, int], Beginning] = {}
        self._answering: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}
        self._granted: dict[int, dict[InKey, int]] = {}
        """By receiver: everything that it ever granted of each stream; its own word may come late, and is its own."""
        self._checks = 0
        self._carry = world.network.carry
        world.network.carry = self.carry  # type: ignore[method-assign]

    def carry(self, source: Address, target: Address, data: bytes) -> None:
        self._carry(source, target, data)
        bus = next((host.bus for host in self._world.hosts if host.address == source), None)
        if bus is not None:
            me = int(bus.me)
            layer = self._layers.get(me)
            if layer is None:
                found = bus._stack.find(Reliable)
                assert isinstance(found, Reliable)
                layer = self._layers[me] = found
            granted = self._granted.setdefault(me, {})
            for key, stream in (*layer._in.items(), *layer._ended.items()):
                granted[key] = max(stream.granted, granted.get(key, 0))
            self._audit(me, layer)

    def close(self) -> None:
        """Write down how much was compared."""
        self._history.add(Happening(self._world.now, 0, "audited", body=str(self._checks).encode()))

    def _audit(self, sender: int, mine: Reliable) -> None:
        for (group, to), out in mine._out.items():
            if to != ALL or group == CONTROL:
                continue
            stamp, key = mine._stamps.get(group, mine._stamp), (sender, group)
            if self._began.get(key, (-1, 0))[0] != stamp:
                self._began[key] = (stamp, out.offset)
                self._answering[key] = _answering(mine, group)
            for answering, covered in self._answering[key].items():
                if answering in out.limits:
                    for member in covered:
                        other = self._layers.get(member)
                        if other is not None and other._stamps.get(group, other._stamp) == stamp:
                            self._compare(sender, group, out, answering, member, other)

    def _compare(self, sender: int, group: int, out: Outgoing, answering: int, member: int, other: Reliable) -> None:
        key = (sender, group, ALL)
        stream = other._in.get(key)
        if stream is None:
            return
        self._checks += 1
        limit, granted = out.limits[answering], max(stream.granted, self._granted.get(member, {}).get(key, 0))
        if out.stable > stream.next:
            self._found(sender, f"takes {out.stable} for stable, and {MemberId(member)!r} has {stream.next}")
        elif limit > max(granted, self._began[(sender, group)][1] + INITIAL_BYTES):
            room = f"{limit:,} bytes, and it granted {granted:,}"
            self._found(sender, f"takes it that {MemberId(member)!r} has room up to {room}")

    def _found(self, sender: int, sentence: str) -> None:
        self._history.add(Happening(self._world.now, sender, "misjudged", body=sentence.encode()))


def _answering(layer: Reliable, group: int) -> dict[int, tuple[int, ...]]:
    """The members for which each one answers: itself, or all below it in the tree of this member."""
    me = layer.node.me
    if not layer._summing.applies(me, group, me):
        return {member: (member,) for member in layer._members.get(group, frozenset()) - {me}}
    order = layer._summing._order[group]
    below: dict[int, list[int]] = {}
    head: dict[int, int] = {}
    for parent, child in reached(len(order), order.index(me), median()):
        head[child] = head.get(parent, child)
        below.setdefault(order[head[child]], []).append(order[child])
    return {child: tuple(members) for child, members in below.items()}


def accounts(history: History) -> int:
    """No sender takes a message for stable that a receiver lacks, and none sends further than a receiver has room."""
    for h in history.of("misjudged"):
        raise Violation(f"{MemberId(h.member)!r} {h.body.decode()} at {h.at:.6f}")
    return sum(int(h.body) for h in history.of("audited"))
