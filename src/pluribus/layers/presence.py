"""Presence: who is on the bus, without agreement. Each member knows the members that it heard lately.

Theory of operation
-------------------
Every member says *hello* when it starts, when its groups change and once a period (with jitter, so that members do not
all speak at once). A hello carries name, address, groups and the fingerprint of the stack. A hello from a new member is
answered directly, so that the newcomer knows everybody after one round trip. *Bye* removes a member at once and for
good: its incarnation never returns, and a hello that the bye overtook is ignored. Silence for ``SILENCE_S`` removes it
until it is heard again.

Changes are gathered during a stimulus and told once, when it settles: a hundred hellos in one batch of datagrams make
one new view. The layers above are told of the bus (group 0) and of the groups that this member is in.

A hello with another fingerprint is answered by a *refusal* that names both stacks; the refused member logs it, and
neither counts the other as a member. Frames of strangers are dropped, and the stranger is asked for its hello.

Promises: when nothing changes any more, all members that reach each other will know each other's groups. Assumes only
that some datagrams arrive. Live, because hellos are repeated for ever.

Bounded: ``PEERS_MAX`` peers that together are in ``MEMBERSHIPS_MAX`` groups; what goes beyond is counted and ignored.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec

from ..core.errors import BadStack, TooLarge
from ..core.frame import Frame, Header, Number
from ..core.ids import ALL, MemberId
from ..core.limits import (
    GROUPS_PER_MEMBER_MAX,
    HELLO_PERIOD_S,
    HOST_CHARS_MAX,
    LEFT_MAX,
    MEMBERSHIPS_MAX,
    NAME_CHARS_MAX,
    PEERS_MAX,
    SILENCE_S,
)
from ..core.ports import Address
from ..stack.events import Addresses, Event, Gone, Introduced, JoinGroup, LeaveGroup, Members
from ..stack.layer import Layer

log = logging.getLogger(__name__)

REASON_BYTES_MAX = 256
"""The length of a refusal's reason: it quotes a stranger's hello, and must fit the shortest path."""

HELLO_GROWTH_BYTES = 16
"""Serial and addressee take one byte each in a member's first hello, and up to nine later."""

Host = Annotated[str, msgspec.Meta(max_length=HOST_CHARS_MAX)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class Hello(Header, tag=1):
    """``serial`` grows with every hello of a member, so that a hello which a newer one overtook is recognised."""

    serial: Number
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    address: tuple[Host, Port]
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)]
    groups: Annotated[list[Number], msgspec.Meta(max_length=GROUPS_PER_MEMBER_MAX)]
    answer: bool


class Bye(Header, tag=2):
    pass


class Refusal(Header, tag=3):
    reason: Annotated[str, msgspec.Meta(max_length=1_024)]


class Peer:
    __slots__ = ("address", "groups", "heard_at", "name", "serial")

    def __init__(self) -> None:
        self.serial = -1
        self.heard_at = 0.0
        self.name = ""
        self.address: Address = ("", 0)
        self.groups: frozenset[int] = frozenset()


class Presence(Layer):
    """members by hello and silence, not agreed"""

    name = "presence"
    requires = frozenset({"datagrams"})
    provides = frozenset({"members"})
    headers = (Hello, Bye, Refusal)

    def __init__(self, period_s: float = HELLO_PERIOD_S, silence_s: float = SILENCE_S) -> None:
        if not 0 < period_s < silence_s:
            raise BadStack(
                f"presence(period_s={period_s}, silence_s={silence_s}): silence must be longer than a period"
            )
        self._period_s = period_s
        self._silence_s = silence_s
        self._peers: dict[int, Peer] = {}
        self._groups: dict[int, str] = {}
        self._in_group: dict[int, set[int]] = {}
        self._memberships = 0
        self._changed: set[int] = set()
        self._moved = False
        self._refused: set[int] = set()
        self._left: dict[int, None] = {}
        self._asked: set[int] = set()
        self._serial = 0
        self._due_at = 0.0
        self.strangers = 0
        self.refusals = 0
        self.ignored = 0

    def start(self) -> None:
        if not self._hello_fits():
            path = self.ports.engine.path_bytes
            raise TooLarge(f"the name {self.node.name!r} is too long for a path of {path} bytes: shorten it, or path=")
        self._changed.add(0)
        self.unsettled = True
        self._moved = True
        self._say_hello(ALL, answer=True)
        self._later()

    def stop(self) -> None:
        self.pass_down(Frame(sender=self.node.me, headers=[Bye()]))

    def event_down(self, event: Event) -> None:
        if isinstance(event, JoinGroup):
            self._groups[event.group] = event.name
            if len(self._groups) > GROUPS_PER_MEMBER_MAX or not self._hello_fits():
                del self._groups[event.group]
                room = len(self._groups)
                raise TooLarge(f"a member of this path can be in {room} groups: leave one, or use a longer path=")
        elif isinstance(event, LeaveGroup):
            self._groups.pop(event.group, None)
        else:
            self.tell_down(event)
            return
        self._changed.add(event.group)
        self.unsettled = True
        self._say_hello(ALL, answer=True)

    def event_up(self, event: Event) -> None:
        if isinstance(event, Introduced):
            self._say_hello(ALL, answer=True)
        else:
            self.tell_up(event)

    def settle(self) -> None:
        self.unsettled = False
        if self._moved:
            self._moved = False
            self.tell_down(Addresses({member: peer.address for member, peer in self._peers.items()}))
        if self._changed:
            changed, self._changed = self._changed, set()
            for group in sorted(changed):
                self._tell_members(group)

    def up(self, frame: Frame) -> None:
        headers = frame.headers
        header = headers[-1] if headers else None
        if type(header) in self.headers:
            if isinstance(header, Hello):
                self._hear(frame.sender, header)
            elif isinstance(header, Bye):
                self._hear_bye(frame.sender)
            elif isinstance(header, Refusal):
                self._was_refused(frame.sender, header.reason)
            return
        peer = self._peers.get(frame.sender)
        if peer is None:
            self._meet_stranger(frame.sender)
            return
        peer.heard_at = self.ports.clock.now()
        self.pass_up(frame)

    def stats(self) -> dict[str, Any]:
        return {
            "peers": len(self._peers),
            "strangers": self.strangers,
            "refusals": self.refusals,
            "ignored": self.ignored,
        }

    def validate(self) -> None:
        assert self.node.me not in self._peers
        assert len(self._peers) <= PEERS_MAX
        assert len(self._refused) <= PEERS_MAX and len(self._asked) <= PEERS_MAX and len(self._left) <= LEFT_MAX
        assert not self._refused & self._peers.keys()
        assert not self._left.keys() & self._peers.keys()
        told = {(group, member) for group, members in self._in_group.items() for member in members}
        assert told == {(group, member) for member, peer in self._peers.items() for group in peer.groups}
        assert self._memberships == len(told) <= MEMBERSHIPS_MAX
        assert all(self._in_group.values()), "a group without members is forgotten"

    def _later(self) -> None:
        delay_s = self._period_s * (0.8 + 0.4 * self.ports.random.random())
        self._due_at = self.ports.clock.now() + delay_s
        self.after(delay_s, self._tick)

    def _tick(self) -> None:
        self._asked.clear()
        self._say_hello(ALL, answer=False)
        now = self.ports.clock.now()
        # If this member was held up (a pause, a long computation), the others' hellos wait unread: its own lateness is
        # no silence of theirs.
        late_s = now - self._due_at
        if late_s > self._period_s:
            for peer in self._peers.values():
                peer.heard_at = min(peer.heard_at + late_s, now)  # who was read just before is no later than now
        limit = now - self._silence_s
        silent = [member for member, peer in self._peers.items() if peer.heard_at < limit]
        for member in silent:
            self._forget(member, f"nothing heard of it for {self._silence_s:g} s")
        self._later()

    def _say_hello(self, to: int, *, answer: bool) -> None:
        self._serial += 1
        self.pass_down(self._hello(to, answer=answer))

    def _hello_fits(self) -> bool:
        size = len(self.node.codec.encode(self._hello(ALL, answer=True)))
        return size + HELLO_GROWTH_BYTES <= self.ports.engine.path_bytes

    def _hello(self, to: int, *, answer: bool) -> Frame:
        node, groups = self.node, sorted(self._groups)
        hello = Hello(self._serial, node.name, self.ports.engine.address, node.fingerprint, groups, answer)
        return Frame(sender=node.me, to=to, headers=[hello])

    def _hear(self, member: int, hello: Hello) -> None:
        if hello.fingerprint != self.node.fingerprint:
            self._refuse(member, hello)
            return
        peer = self._peers.get(member)
        new = peer is None
        if peer is None:
            if len(self._peers) >= PEERS_MAX or member in self._left:
                self.ignored += 1
                return
            peer = self._peers[member] = Peer()
            self._refused.discard(member)
            self._changed.add(0)
        self.unsettled = True
        peer.heard_at = self.ports.clock.now()
        if hello.serial > peer.serial:
            peer.serial = hello.serial
            self._learn(member, peer, hello)
        if new or hello.answer:
            self._say_hello(member, answer=False)

    def _learn(self, member: int, peer: Peer, hello: Hello) -> None:
        groups = frozenset(hello.groups)
        if groups != peer.groups:
            self._move(member, peer, groups)
        if hello.name != peer.name:
            peer.name = hello.name
            self._changed |= {0, *peer.groups}
            self.unsettled = True
        if hello.address != peer.address:
            peer.address = hello.address
            self._moved = True
            self.unsettled = True

    def _move(self, member: int, peer: Peer, groups: frozenset[int]) -> None:
        """A peer is in these groups from now on. If that would exceed the bound, its groups stay as they were."""
        gained, lost = groups - peer.groups, peer.groups - groups
        if self._memberships + len(gained) - len(lost) > MEMBERSHIPS_MAX:
            self.ignored += 1
            return
        for group in lost:
            members = self._in_group[group]
            members.remove(member)
            if not members:
                del self._in_group[group]
        for group in gained:
            self._in_group.setdefault(group, set()).add(member)
        self._memberships += len(gained) - len(lost)
        self._changed |= gained | lost
        self.unsettled = True
        peer.groups = groups

    def _hear_bye(self, member: int) -> None:
        if member not in self._left:
            if len(self._left) >= LEFT_MAX:
                del self._left[next(iter(self._left))]
            self._left[member] = None
        self._forget(member, "it left")

    def _meet_stranger(self, member: int) -> None:
        self.strangers += 1
        known = member in self._asked or member in self._refused or member in self._left
        if not known and len(self._asked) < PEERS_MAX:
            self._asked.add(member)
            self._say_hello(member, answer=True)

    def _refuse(self, member: int, hello: Hello) -> None:
        self._forget(member, "its stack differs")
        if member in self._refused or len(self._refused) >= PEERS_MAX:
            self.ignored += 1
            return
        self._refused.add(member)
        self.refusals += 1
        reason = (
            f"stack {hello.fingerprint} of {hello.name!r} is not {self.node.fingerprint} of {self.node.name!r}: "
            "give both the same stack and release"
        )
        log.warning("refused %r: %s", MemberId(member), reason)
        short = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
        self.pass_down(Frame(sender=self.node.me, to=member, headers=[Refusal(short)]))

    def _was_refused(self, member: int, reason: str) -> None:
        if member not in self._refused and len(self._refused) < PEERS_MAX:
            self._refused.add(member)
            log.warning("refused by %r: %s", MemberId(member), reason)
        self._forget(member, f"it refused this member: {reason}")

    def _forget(self, member: int, reason: str) -> None:
        peer = self._peers.get(member)
        if peer is None:
            return
        self._move(member, peer, frozenset())
        del self._peers[member]
        self._changed.add(0)
        self.unsettled = True
        self._moved = True
        self.tell_up(Gone(MemberId(member), reason, peer.name))

    def _tell_members(self, group: int) -> None:
        """Tell the layers above who is on the bus, or in one of this member's groups; nobody, if it has left the
        group."""
        peers = self._peers
        if group == 0:
            members = sorted([*peers, self.node.me])
        elif group in self._groups:
            members = sorted([*self._in_group.get(group, ()), self.node.me])
        else:
            members = []
        names = {member: peers[member].name if member in peers else self.node.name for member in members}
        self.tell_up(Members(group, tuple(members), names))
