"""Secure: every frame is sealed, every member proves that it knows the bus secret and that it is there now.

Theory of operation
-------------------
A frame from above is encoded, sealed (AES-256-GCM) and sent as the body of a frame that shows only sender, destination,
the name of the key and a counter. These four are authenticated with the body. A frame from below that does not open is
counted and dropped. Nothing is ever sent or accepted in clear. ``keys`` draws which key is derived from which.

*Three kinds of keys.* A frame to one member is sealed with the key of the pair, from both ephemeral X25519 keys and the
secret. A frame to everybody that is about groups, or has messages in it, is sealed with the key of the view. The bus's
own housekeeping (group 0, no messages: beats, hellos, stream positions) is sealed with the bus key, because members of
other views and newcomers must read it. A stack without agreed views uses the bus key in place of view keys.

*Strangers.* The first frame of a member carries its public key, with a proof that can only be made with the secret. The
proof shows that a member made it once; a recording would show that too. So the stranger is sent a challenge under the
key of the pair, which only a living member can answer. Until it does, its latest frames are held; then they go up,
unless they are older than a replay window allows.

*Views.* When the membership enters a view it says so (``Rekey``). The leader makes a new key and sends it to each
member under the key of the pair; a member that lacks it asks the leader, then other members. Frames for a view whose
key is not there yet wait. Members that left never get the new key, and newcomers never get an older one. Old keys are
kept for a short while, for frames that are still under way.

*Nonces and replays.* A member has one counter for all its keys, and every sender has keys of its own. So no key is ever
used with the same nonce twice, whatever is forgotten. Receivers keep a window of counters for each key and sender.

*Refusals.* A process with another secret, or with none, is refused; both sides log why. The refused side hears a fixed
code from the transport, in clear.

Promises: without the secret nobody reads a frame, makes a frame that is accepted, has a recorded frame accepted again,
or is in any view. With the secret a member can pretend to be another. Assumes that the random port is fit for keys (the
runtime's is; a simulator's need not be).

Live: beats repeat the public key, challenges are repeated, keys are asked for until they are there or the view is over.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from struct import Struct
from typing import Any

import msgspec

from ...core.errors import BadStack, MalformedFrame
from ...core.frame import Frame, Header
from ...core.ids import ALL, MemberId
from ...core.limits import (
    HELD_BYTES_MAX,
    HELD_FRAMES_MAX,
    LOGGED_PEERS_MAX,
    OLD_KEY_S_MAX,
    PEERS_MAX,
    STRANGERS_MAX,
)
from ...core.ports import Timer
from ...core.secret import Secret
from ...stack.events import Addresses, Event, Refuse, Rekey
from ...stack.layer import Layer
from ...wire.codec import VERSION
from .headers import BUS, PAIR, Greet, Hello, KeyWanted, Sealed, ViewKey
from .keys import AESGCM, BadKey, InvalidTag, Keys
from .peers import Peer
from .replay import ReplayWindow
from .views import Keyrings

log = logging.getLogger(__name__)

ANOTHER_SECRET = 1
"""The reason of a refusal, as the transport tells it."""
GREET_S = 0.1
GREETINGS_MAX = 4
"""Challenges in a row to a stranger that does not answer; its next frame starts over."""
KEY_S = 0.06
FORGET_S = 60.0
"""A member that no layer above knows any more, and that is silent for so long, must prove itself again."""

_authenticated = Struct(">BIQQQQ").pack
_nonce = Struct(">IQ").pack
_decode_bodies = msgspec.msgpack.Decoder(tuple[memoryview]).decode


class Secure(Layer):
    """seals every frame; members prove the bus secret"""

    name = "secure"
    requires = frozenset({"datagrams"})
    provides = frozenset({"secrecy"})
    headers = (Sealed, Greet, ViewKey, KeyWanted)

    def __init__(self, secret: Secret | None = None, **others: Any) -> None:
        if others or (secret is not None and not isinstance(secret, Secret)):
            # What was given is not repeated here: it may be the secret.
            raise BadStack("secure takes no options in a stack: give the secret to connect(..., secret=)")
        if secret is None:
            raise BadStack("secure needs the bus secret: give it to connect(..., secret=) or set $PLURIBUS_SECRET")
        self._secret: Secret | None = secret
        self._keys: Keys
        self._bus_cipher: AESGCM
        self._counter = 0
        self._peers: dict[int, Peer] = {}
        self._strangers: dict[int, Peer] = {}
        self._known: Container[int] = ()
        """Members that a layer above knows; they are not forgotten."""
        self._forgotten: dict[int, int] = {}
        """By forgotten member: the highest counter that was accepted from it."""
        self._rings = Keyrings()
        self._with_views = False
        self._waiting: list[Frame] = []
        self._unknown: list[Frame] = []
        self._unknown_bytes = 0
        self._asking: Timer | None = None
        self._asked = 0
        self._logged: set[tuple[int, str]] = set()
        self.sealed = 0
        self.opened = 0
        self.refused = 0
        self.replayed = 0
        self.unopened = 0
        self.unsent = 0

    def start(self) -> None:
        assert self._secret is not None, "a stack starts once"
        self._keys = Keys(self._secret, self.node.bus, self.node.me, self.ports.random)
        self._secret = None
        self._bus_cipher = self._keys.bus_cipher(self.node.me)

    # Sealing

    def down(self, frame: Frame) -> None:
        if frame.to != ALL:
            self._send_to_one(frame)
        elif self._with_views and (frame.count or frame.group):
            ring = self._rings.current
            seat = ring.seat(self.node.me) if ring is not None else None
            if ring is not None and seat is not None:
                self._seal(frame, ring.name, seat[0], None)
            elif len(self._waiting) < HELD_FRAMES_MAX:
                self._waiting.append(frame)
            else:
                self.unsent += 1  # the layers above repeat it, to each member by itself
        else:
            self._seal(frame, BUS, self._bus_cipher, self._keys.hello)

    def _send_to_one(self, frame: Frame) -> None:
        peer = self._peers.get(frame.to) or self._strangers.get(frame.to)
        if peer is None:
            self.unsent += 1
        else:
            self._seal(frame, PAIR, peer.outgoing, None if peer.knows_us else self._keys.hello)

    def _seal(self, frame: Frame, key: int, cipher: AESGCM, hello: Hello | None) -> None:
        codec, to, me = self.node.codec, frame.to, self.node.me
        self._counter += 1
        counter = self._counter
        about = _authenticated(VERSION, codec.tag, me, to, key, counter)
        sealed = cipher.encrypt(_nonce(0, counter), codec.encode(frame), about)
        self.sealed += 1
        self.pass_down(Frame(sender=me, to=to, headers=[Sealed(key, counter, hello)], bodies=[sealed]))

    # Opening

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        if type(header) is not Sealed or len(frame.headers) != 1:
            self._refuse(frame.sender, "its frames are in clear", tell=True)
        elif frame.group or frame.first or frame.count or frame.size or frame.kind:
            self._refuse(frame.sender, "its frame was changed on its way")
        elif header.key > PAIR:
            self._up_from_view(frame, header)
        else:
            self._up_from_peer(frame, header)

    def _up_from_view(self, frame: Frame, header: Sealed) -> None:
        ring = self._rings.by_name.get(header.key)
        if ring is None:
            # Of a view that we have not entered yet, or of another part of the bus.
            self._hold(frame)
            return
        seat = ring.seat(frame.sender)
        if seat is None:
            self._refuse(frame.sender, "it uses the key of a view that it is not in")
            return
        inner = self._open(frame, header, *seat)
        if inner is not None:
            self.pass_up(inner)

    def _hold(self, frame: Frame) -> None:
        """Hold a frame until its key is here; only the latest are kept."""
        self._unknown.append(frame)
        self._unknown_bytes += len(frame.bodies)
        while len(self._unknown) > HELD_FRAMES_MAX or self._unknown_bytes > HELD_BYTES_MAX:
            self._unknown_bytes -= len(self._unknown.pop(0).bodies)
            self.unopened += 1

    def _up_from_peer(self, frame: Frame, header: Sealed) -> None:
        sender = frame.sender
        peer = self._peers.get(sender) or self._strangers.get(sender)
        if peer is None:
            peer = self._meet(sender, header.hello)
            if peer is None:
                return
        elif header.hello is not None and header.hello != peer.hello:
            self._refuse(sender, "it shows another public key than before")
            return
        if header.key == BUS:
            inner = self._open(frame, header, peer.bus_cipher, peer.bus_window)
        else:
            inner = self._open(frame, header, peer.incoming, peer.pair_window)
        if inner is None:
            return
        peer.heard_at = self.ports.clock.now()
        if header.key == PAIR:
            peer.knows_us = True
            word = inner.headers[-1] if inner.headers else None
            if isinstance(word, Greet | ViewKey | KeyWanted):
                self._word(sender, peer, word, header.counter)
                return
        if peer.proven:
            self.pass_up(inner)
        else:
            peer.hold(header.counter, inner)
            if peer.tries == 0:
                self._challenge(sender, peer)

    def _open(self, frame: Frame, header: Sealed, cipher: AESGCM, window: ReplayWindow) -> Frame | None:
        counter = header.counter
        if not window.fresh(counter):
            self.replayed += 1
            return None
        try:
            (sealed,) = _decode_bodies(frame.bodies)
            about = _authenticated(frame.version, frame.bus, frame.sender, frame.to, header.key, counter)
            plain = cipher.decrypt(_nonce(0, counter), sealed, about)
            inner = self.node.codec.decode(plain)
        except (InvalidTag, MalformedFrame, msgspec.MsgspecError, UnicodeDecodeError):
            self._refuse(frame.sender, "its frame was changed on its way")
            return None
        window.note(counter)
        if inner.sender != frame.sender or inner.to != frame.to:
            self._refuse(frame.sender, "its frame is not what it says")
            return None
        self.opened += 1
        return inner

    # Members

    def _meet(self, member: int, hello: Hello | None) -> Peer | None:
        """A new member: its hello shows that it knew the bus secret at some time, or it is refused."""
        if hello is None:
            self.unopened += 1  # its next beat says who it is
            return None
        if not self._keys.is_proven(member, hello):
            self._refuse(member, "it has another bus secret", tell=True)
            return None
        try:
            challenge = self.ports.random.getrandbits(62) | 1
            after = self._forgotten.get(member, 0)
            peer = Peer(member, hello, self._keys, challenge, self.ports.clock.now(), after)
        except BadKey:
            self._refuse(member, "its public key is of no use")
            return None
        if len(self._strangers) >= STRANGERS_MAX:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[member] = peer
        return peer

    def _challenge(self, member: int, peer: Peer) -> None:
        if peer.proven or self._strangers.get(member) is not peer:
            return
        if peer.tries >= GREETINGS_MAX:
            peer.tries = 0
            return
        peer.tries += 1
        self._tell(member, Greet(peer.challenge, 0))
        self.after(GREET_S, lambda: self._challenge(member, peer))

    def _word(self, member: int, peer: Peer, word: Greet | ViewKey | KeyWanted, counter: int) -> None:
        match word:
            case Greet(challenge, answer):
                if answer == peer.challenge and not peer.proven:
                    self._proven(member, peer, counter)
                if challenge:
                    self._tell(member, Greet(0 if peer.proven else peer.challenge, challenge))
            case ViewKey(view, key) if peer.proven:
                if view == self._rings.view and self._rings.current is None and member in self._rings.members:
                    self._take_key(key)
                elif view > self._rings.view and view[1] == member:
                    self._rings.keep_early(view, key)
            case KeyWanted(view) if peer.proven:
                ring = self._rings.current
                if ring is not None and ring.view == view and member in ring.members:
                    self._tell(member, ViewKey(view, ring.key))
            case _:
                pass

    def _proven(self, member: int, peer: Peer, counter: int) -> None:
        if len(self._peers) >= PEERS_MAX:
            self._forget()  # who only asked something and is gone was never known above, so nobody said so
        if len(self._peers) >= PEERS_MAX:
            return
        held = peer.prove(counter)
        self._forgotten.pop(member, None)
        self._strangers.pop(member, None)
        self._peers[member] = peer
        for frame in held:
            self.pass_up(frame)

    def _tell(self, member: int, word: Header) -> None:
        self._send_to_one(Frame(sender=self.node.me, to=member, headers=[word]))

    # Views

    def event_down(self, event: Event) -> None:
        if isinstance(event, Rekey):
            self._enter(event)
            return
        if isinstance(event, Addresses):
            self._known = event.addresses
            self._forget()
        self.tell_down(event)

    def _enter(self, event: Rekey) -> None:
        rings = self._rings
        self._with_views = True
        self._waiting.clear()  # of the view that is over
        old = rings.current
        key = rings.enter(event.view, event.members)
        if old is not None:
            self.after(OLD_KEY_S_MAX, lambda: rings.retire(old))
        if event.view[1] == self.node.me:
            key = self._keys.new_key(b"view")
            for member in event.members:
                if member != self.node.me:
                    self._tell(member, ViewKey(event.view, key))
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if key is not None:
            self._take_key(key)
        else:
            self._asked = 0
            self._asking = self.after(KEY_S, self._ask_for_key)

    def _ask_for_key(self) -> None:
        """Ask the leader for the key of the view; if it does not answer, ask other members."""
        self._asking = None
        rings = self._rings
        if rings.current is not None:
            return
        others = [member for member in rings.members if member != self.node.me]
        self._asked += 1
        target = rings.view[1] if self._asked % 3 or not others else self.ports.random.choice(others)
        self._tell(target, KeyWanted(rings.view))
        self._asking = self.after(KEY_S, self._ask_for_key)

    def _take_key(self, key: bytes) -> None:
        self._rings.take(key)
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self.down(frame)
        unknown, self._unknown, self._unknown_bytes = self._unknown, [], 0
        for frame in unknown:
            self.up(frame)

    def _forget(self) -> None:
        before = self.ports.clock.now() - FORGET_S
        for member in [m for m, peer in self._peers.items() if m not in self._known and peer.heard_at < before]:
            self._forgotten[member] = self._peers.pop(member).highest
        while len(self._forgotten) > PEERS_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    # Refusing

    def _refuse(self, member: int, reason: str, *, tell: bool = False) -> None:
        """Count a refusal, and log the first. With ``tell``, the other side hears that its secret is not ours."""
        self.refused += 1
        if (member, reason) not in self._logged and len(self._logged) < LOGGED_PEERS_MAX:
            self._logged.add((member, reason))
            log.warning("%s refused %s: %s (said once)", MemberId(self.node.me), MemberId(member), reason)
        if tell and member not in self._peers:
            self.tell_down(Refuse(member, ANOTHER_SECRET))

    def stats(self) -> dict[str, Any]:
        return {
            "sealed": self.sealed,
            "opened": self.opened,
            "refused": self.refused,
            "replayed": self.replayed,
            "unopened": self.unopened,
            "unsent": self.unsent,
            "proven": len(self._peers),
            "strangers": len(self._strangers),
            "view_keys": len(self._rings.by_name),
        }

    def validate(self) -> None:
        assert not self._peers.keys() & self._strangers.keys()
        assert all(peer.proven and not peer.held for peer in self._peers.values())
        assert not any(peer.proven for peer in self._strangers.values())
        assert len(self._strangers) <= STRANGERS_MAX and len(self._peers) <= PEERS_MAX >= len(self._forgotten)
        assert not self._peers.keys() & self._forgotten.keys()
        assert len(self._waiting) <= HELD_FRAMES_MAX and len(self._unknown) <= HELD_FRAMES_MAX
        assert self._unknown_bytes == sum(len(frame.bodies) for frame in self._unknown) <= HELD_BYTES_MAX
        assert not self._waiting or (self._with_views and self._rings.current is None)
        self._rings.validate()
