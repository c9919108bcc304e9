"""Presence: who is on the bus, without agreement. Members come and go; each knows those it heard lately.

Theory of operation
-------------------
Every member says *hello* when it starts, when its groups change and once a period (with jitter, so that members do not
speak in chorus). A hello carries name, address, groups and the fingerprint of the stack. Whoever hears a hello of
somebody new answers it directly, so that a newcomer knows everybody after one round trip. *Bye* takes a member off at
once; silence for ``SILENCE_S`` does too.

A hello with another fingerprint is answered by a *refusal* that names both stacks; the refused member logs it, and
neither counts the other as a member. Frames of strangers are dropped, and the stranger is asked for its hello.

Promises: eventually, in the absence of changes, all members that reach each other know each other's groups. Assumes
nothing but that some datagrams arrive. Live, because hellos are repeated for ever.

Bounded: ``PEERS_MAX`` peers; further ones are counted and ignored.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec

from ..core.errors import TooLarge
from ..core.frame import Frame, Header, Number
from ..core.ids import ALL, MemberId
from ..core.limits import (
    FRAME_OVERHEAD_BYTES,
    GROUPS_PER_MEMBER_MAX,
    HELLO_PERIOD_S,
    NAME_CHARS_MAX,
    PEERS_MAX,
    SILENCE_S,
)
from ..core.ports import Address
from ..stack.events import Addresses, Event, Gone, JoinGroup, LeaveGroup, Members
from ..stack.layer import Layer

log = logging.getLogger(__name__)

GROUP_BYTES = 9  # a group's number in msgpack


class Hello(Header, tag=1):
    """``serial`` grows with every hello of a member, so that one overtaken by a newer is recognised."""

    serial: Number
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    address: Address
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
        self._period_s = period_s
        self._silence_s = silence_s
        self._peers: dict[int, Peer] = {}
        self._groups: dict[int, str] = {}
        self._told: dict[int, Members] = {}
        self._refused: set[int] = set()
        self._asked: set[int] = set()
        self._serial = 0
        self._due_at = 0.0
        self.strangers = 0
        self.refusals = 0
        self.ignored = 0

    def start(self) -> None:
        self._say_hello(ALL, answer=True)
        self._tell_members()
        self._later()

    def stop(self) -> None:
        self.pass_down(Frame(sender=self.node.me, headers=[Bye()]))

    def event_down(self, event: Event) -> None:
        if isinstance(event, JoinGroup):
            room = min((self.ports.engine.path_bytes - FRAME_OVERHEAD_BYTES) // GROUP_BYTES, GROUPS_PER_MEMBER_MAX)
            if len(self._groups) >= room:
                raise TooLarge(f"a member of this path can be in {room} groups: leave one, or use a longer path=")
            self._groups[event.group] = event.name
        elif isinstance(event, LeaveGroup):
            self._groups.pop(event.group, None)
        else:
            self.tell_down(event)
            return
        self._say_hello(ALL, answer=True)
        self._tell_members()

    def up(self, frame: Frame) -> None:
        headers = frame.headers
        if headers:
            header = headers[-1]
            if isinstance(header, Hello):
                self._hear(frame.sender, header)
                return
            if isinstance(header, Bye):
                self._forget(frame.sender, "it left")
                self._tell_members()
                return
            if isinstance(header, Refusal):
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
        assert not self._refused & self._peers.keys()

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
                peer.heard_at += late_s
        limit = now - self._silence_s
        silent = [member for member, peer in self._peers.items() if peer.heard_at < limit]
        for member in silent:
            self._forget(member, f"nothing heard of it for {self._silence_s:g} s")
        if silent:
            self._tell_members()
        self._later()

    def _say_hello(self, to: int, *, answer: bool) -> None:
        self._serial += 1
        hello = Hello(
            self._serial,
            self.node.name,
            self.ports.engine.address,
            self.node.fingerprint,
            sorted(self._groups),
            answer,
        )
        self.pass_down(Frame(sender=self.node.me, to=to, headers=[hello]))

    def _hear(self, member: int, hello: Hello) -> None:
        if hello.fingerprint != self.node.fingerprint:
            self._refuse(member, hello)
            return
        peer = self._peers.get(member)
        new = peer is None
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                self.ignored += 1
                return
            peer = self._peers[member] = Peer()
            self._refused.discard(member)
        peer.heard_at = self.ports.clock.now()
        if hello.serial > peer.serial:
            changed = new or (peer.name, peer.address, peer.groups) != (
                hello.name,
                hello.address,
                frozenset(hello.groups),
            )
            peer.serial = hello.serial
            peer.name = hello.name
            peer.address = hello.address
            peer.groups = frozenset(hello.groups)
            if changed:
                self._tell_members()
        if new or hello.answer:
            self._say_hello(member, answer=False)

    def _meet_stranger(self, member: int) -> None:
        self.strangers += 1
        if member not in self._asked and len(self._asked) < PEERS_MAX and member not in self._refused:
            self._asked.add(member)
            self._say_hello(member, answer=True)

    def _refuse(self, member: int, hello: Hello) -> None:
        self._forget(member, "its stack differs")
        if member in self._refused:
            return
        if len(self._refused) < PEERS_MAX:
            self._refused.add(member)
        self.refusals += 1
        reason = (
            f"stack {hello.fingerprint} of {hello.name!r} is not {self.node.fingerprint} of {self.node.name!r}: "
            "give both the same stack and release"
        )
        log.warning("refused %r: %s", MemberId(member), reason)
        self.pass_down(Frame(sender=self.node.me, to=member, headers=[Refusal(reason)]))

    def _was_refused(self, member: int, reason: str) -> None:
        if member not in self._refused and len(self._refused) < PEERS_MAX:
            self._refused.add(member)
            log.warning("refused by %r: %s", MemberId(member), reason)
        self._forget(member, f"it refused this member: {reason}")
        self._tell_members()

    def _forget(self, member: int, reason: str) -> None:
        if self._peers.pop(member, None) is not None:
            self.tell_up(Gone(member, reason))

    def _tell_members(self) -> None:
        """Tell above and below what changed since they were told last."""
        addresses = {member: peer.address for member, peer in self._peers.items()}
        self.tell_down(Addresses(addresses))
        groups = {0, *self._groups, *self._told}
        for peer in self._peers.values():
            groups |= peer.groups
        for group in sorted(groups):
            members = [m for m, peer in self._peers.items() if group == 0 or group in peer.groups]
            if group == 0 or group in self._groups:
                members.append(self.node.me)
            names = {m: self._peers[m].name if m in self._peers else self.node.name for m in sorted(members)}
            told = Members(group, tuple(sorted(members)), names)
            if told != self._told.get(group):
                if members:
                    self._told[group] = told
                else:
                    self._told.pop(group, None)
                self.tell_up(told)
