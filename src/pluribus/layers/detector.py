"""Discovery and failure detection: who is on the bus and who seems to be gone.

Theory of operation
-------------------
Every member sends a *beat* once a period, to everybody: name, address, the fingerprint of its stack, and a few bytes
that the membership above wants others to know (its view). A newcomer's first beat is answered at once, so that it knows
everybody after one round trip. Any other frame counts as a sign of life as well.

A member that is silent for ``silence_s`` is pinged directly, and two other members are asked for a second opinion: they
ping it and pass on its answer. Only when no answer comes is it *suspected*. A sign of life ends the suspicion:
*unsuspected*.

Most false suspicions are the observer's fault. A member that was held up (a pause, a garbage collection, a long
computation) notices that its own timer fired late, and does not count that time as the others' silence. If it was held
up for more than half the time after which others suspect it, they may have gone on without it. So every beat checks for
that, and so does every protocol that acts on a view (``stack.waking``).

A member that leaves says *bye*. A beat with another fingerprint is answered by a refusal, which both sides log; its
sender is not counted as a member.

Promises: a member that is up and reachable is found, and if it was suspected it is unsuspected, eventually; one that is
down is suspected within ``silence_s`` + ``opinion_s`` of its last sign of life and stays so. Suspicions may be wrong;
nothing above may take them for facts.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any

import msgspec

from ..core.frame import Frame, Header, Number
from ..core.ids import ALL, MemberId
from ..core.limits import HOST_CHARS_MAX, LEFT_MAX, NAME_CHARS_MAX, PEERS_MAX
from ..core.ports import Address
from ..stack.events import Addresses, Event, Found, Gone, Introduced, LastWord, Suspected, Tell, Told, Unsuspected
from ..stack.layer import Layer

log = logging.getLogger(__name__)

BEAT_S = 0.3
SILENCE_S = 1.0
OPINION_S = 0.3
OPINIONS = 2
FORGET_S = 30.0
"""A suspected member that no view needs is forgotten after this long."""

Host = Annotated[str, msgspec.Meta(max_length=HOST_CHARS_MAX)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class Beat(Header, tag=30):
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
    address: tuple[Host, Port]
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)]
    word: Annotated[bytes, msgspec.Meta(max_length=512)]
    answer: bool


class Leaving(Header, tag=31):
    """This member leaves the bus for good; its incarnation never comes back."""

    word: bytes = b""
    """A last word for the memberships of the others; this member will do nothing more."""


class Ping(Header, tag=32):
    """Are you there? Sent on behalf of ``asker``."""

    asker: Number


class Look(Header, tag=35):
    """Please ping the target for me, and pass on its answer."""

    target: Number


class Pong(Header, tag=33):
    """The target is there. Sent by the target itself, or by the member that pinged it."""

    target: Number
    asker: Number


class Refusal(Header, tag=34):
    reason: Annotated[str, msgspec.Meta(max_length=512)]


class Peer:
    __slots__ = ("address", "asked_at", "heard_at", "name", "suspected", "word")

    def __init__(self, name: str, address: Address, heard_at: float) -> None:
        self.name = name
        self.address = address
        self.heard_at = heard_at
        self.asked_at = -1.0
        self.suspected = False
        self.word = b""


class Detector(Layer):
    """who is there, who seems gone: beats and second opinions"""

    name = "detector"
    requires = frozenset({"datagrams"})
    provides = frozenset({"detection"})
    headers = (Beat, Leaving, Ping, Pong, Refusal, Look)

    def __init__(self, beat_s: float = BEAT_S, silence_s: float = SILENCE_S, opinion_s: float = OPINION_S) -> None:
        self._beat_s = beat_s
        self._silence_s = silence_s
        self._opinion_s = opinion_s
        self._peers: dict[int, Peer] = {}
        self._left: dict[int, None] = {}
        self._refused: set[int] = set()
        self._word = b""
        self._due_at = 0.0
        self.suspicions = 0
        self.false_suspicions = 0
        self.refusals = 0
        self.strangers = 0

    def start(self) -> None:
        self._due_at = self.ports.clock.now()
        self.node.waking.watch(max((self._silence_s + self._opinion_s) / 2, 1.5 * self._beat_s))
        self._say(ALL, answer=True)
        self._later()

    def stop(self) -> None:
        self.pass_down(Frame(sender=self.node.me, headers=[Leaving(self._word)]))

    def event_up(self, event: Event) -> None:
        if isinstance(event, Introduced):
            self._say(ALL, answer=True)
        else:
            self.tell_up(event)

    def event_down(self, event: Event) -> None:
        if isinstance(event, Tell):
            if event.word != self._word:
                self._word = event.word
                self._say(ALL, answer=False)
        else:
            self.tell_down(event)

    def up(self, frame: Frame) -> None:
        sender = frame.sender
        peer = self._peers.get(sender)
        if peer is not None:
            peer.heard_at = self.ports.clock.now()
            if peer.suspected or peer.asked_at >= 0:
                self._alive(sender, peer)
        header = frame.headers[-1] if frame.headers else None
        if type(header) not in self.headers:
            if peer is None:
                self.strangers += 1
            else:
                self.pass_up(frame)
            return
        match header:
            case Beat():
                self._beat(sender, header)
            case Leaving(word):
                if word and sender in self._peers:
                    self.tell_up(LastWord(sender, word))
                self._leaves(sender)
            case Ping(asker):
                self.pass_down(Frame(sender=self.node.me, to=sender, headers=[Pong(self.node.me, asker)]))
            case Look(target):
                if target in self._peers:
                    self.pass_down(Frame(sender=self.node.me, to=target, headers=[Ping(sender)]))
            case Pong(target, asker):
                self._pong(sender, target, asker)
            case Refusal(reason):
                self._was_refused(sender, reason)

    def stats(self) -> dict[str, Any]:
        return {
            "peers": len(self._peers),
            "suspected": sum(peer.suspected for peer in self._peers.values()),
            "suspicions": self.suspicions,
            "false_suspicions": self.false_suspicions,
            "refusals": self.refusals,
            "strangers": self.strangers,
        }

    def validate(self) -> None:
        assert self.node.me not in self._peers
        assert len(self._peers) <= PEERS_MAX and len(self._left) <= LEFT_MAX
        assert not self._left.keys() & self._peers.keys()

    # Beats

    def _later(self) -> None:
        delay_s = self._beat_s * (0.9 + 0.2 * self.ports.random.random())
        self._due_at = self.ports.clock.now() + delay_s
        self.after(delay_s, self._tick)

    def _tick(self) -> None:
        self.node.waking.look()
        now = self.ports.clock.now()
        late_s = now - self._due_at
        if self._is_late(self._due_at):
            for peer in self._peers.values():
                # Not beyond now: a peer that was read just before, and was gone by then, would not be missed for as
                # long again.
                peer.heard_at = min(peer.heard_at + late_s, now)
                if peer.asked_at >= 0:
                    peer.asked_at = now  # what it answered may wait unread
        self._say(ALL, answer=False)
        for member, peer in list(self._peers.items()):
            self._look_at(member, peer, now)
        self._later()

    def _is_late(self, due_at: float) -> bool:
        """Whether this member was held up when a timer was due: then it has not read what came meanwhile."""
        return self.ports.clock.now() - due_at > self._beat_s / 2

    def _look_at(self, member: int, peer: Peer, now: float) -> None:
        silent_s = now - peer.heard_at
        if peer.suspected:
            if silent_s > FORGET_S:
                del self._peers[member]
                self._tell_addresses()
                self.tell_up(Gone(MemberId(member), f"nothing heard of it for {FORGET_S:g} s", peer.name))
        elif peer.asked_at >= 0:
            if now - peer.asked_at >= self._opinion_s:
                peer.suspected = True
                self.suspicions += 1
                self.tell_up(Suspected(MemberId(member), peer.name))
        elif silent_s > self._silence_s:
            self._ask_about(member, peer, now)

    def _ask_about(self, member: int, peer: Peer, now: float) -> None:
        peer.asked_at = now
        me = self.node.me
        self.pass_down(Frame(sender=me, to=member, headers=[Ping(me)]))
        others = [other for other, known in self._peers.items() if other != member and not known.suspected]
        for other in self.ports.random.sample(others, min(OPINIONS, len(others))):
            self.pass_down(Frame(sender=me, to=other, headers=[Look(member)]))
        # Looked at again when the opinions are due, and not only at the next beat.
        self.after(self._opinion_s, lambda: self._opinions_due(member, peer, now + self._opinion_s))

    def _opinions_due(self, member: int, peer: Peer, due_at: float) -> None:
        if self._is_late(due_at):
            return
        if self._peers.get(member) is peer and peer.asked_at >= 0 and not peer.suspected:
            self._look_at(member, peer, self.ports.clock.now())

    def _say(self, to: int, *, answer: bool) -> None:
        beat = Beat(self.node.name, self.ports.engine.address, self.node.fingerprint, self._word, answer)
        self.pass_down(Frame(sender=self.node.me, to=to, headers=[beat]))

    def _beat(self, member: int, beat: Beat) -> None:
        if member in self._left:
            return
        if beat.fingerprint != self.node.fingerprint:
            self._refuse(member, beat)
            return
        peer = self._peers.get(member)
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                return
            peer = self._peers[member] = Peer(beat.name, beat.address, self.ports.clock.now())
            self._tell_addresses()
            self._say(member, answer=False)
            self.tell_up(Found(member, beat.name))
        elif peer.address != beat.address:
            peer.address = beat.address
            self._tell_addresses()
        if beat.answer:
            self._say(member, answer=False)
        if beat.word != peer.word:
            peer.word = beat.word
            self.tell_up(Told(member, beat.word))

    def _alive(self, member: int, peer: Peer) -> None:
        peer.asked_at = -1.0
        if peer.suspected:
            peer.suspected = False
            self.false_suspicions += 1
            self.tell_up(Unsuspected(MemberId(member), peer.name))

    def _leaves(self, member: int) -> None:
        if len(self._left) >= LEFT_MAX:
            del self._left[next(iter(self._left))]
        self._left[member] = None
        peer = self._peers.pop(member, None)
        if peer is not None:
            self._tell_addresses()
            self.tell_up(Gone(MemberId(member), "it left", peer.name))

    def _tell_addresses(self) -> None:
        self.tell_down(Addresses({member: peer.address for member, peer in self._peers.items()}))

    # Second opinions

    def _pong(self, sender: int, target: int, asker: int) -> None:
        """A pong to our own ping is a sign of life by itself. A pong that we asked for on behalf of another member is
        passed on to it; a pong that another member passed on to us ends the suspicion of the target."""
        if target == sender and asker != self.node.me:
            if asker in self._peers:
                self.pass_down(Frame(sender=self.node.me, to=asker, headers=[Pong(target, asker)]))
        elif target != sender and asker == self.node.me:
            peer = self._peers.get(target)
            if peer is not None:
                peer.heard_at = self.ports.clock.now()
                self._alive(target, peer)

    # Refusals

    def _refuse(self, member: int, beat: Beat) -> None:
        if member in self._refused or len(self._refused) >= PEERS_MAX:
            return
        self._refused.add(member)
        self.refusals += 1
        reason = (
            f"stack {beat.fingerprint} of {beat.name!r} is not {self.node.fingerprint} of {self.node.name!r}: "
            "give both the same stack and release"
        )
        log.warning("refused %r: %s", MemberId(member), reason)
        self.pass_down(Frame(sender=self.node.me, to=member, headers=[Refusal(reason[:512])]))

    def _was_refused(self, member: int, reason: str) -> None:
        if member not in self._refused and len(self._refused) < PEERS_MAX:
            self._refused.add(member)
            log.warning("refused by %r: %s", MemberId(member), reason)
