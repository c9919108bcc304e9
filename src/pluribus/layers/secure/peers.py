"""What sealing needs to know of another member."""

from __future__ import annotations

from ...core.frame import Frame
from ...core.limits import HELD_PER_STRANGER_MAX, REPLAY_WINDOW
from .headers import Hello
from .keys import AESGCM, Keys
from .replay import ReplayWindow


class Peer:
    """Keys and windows with one member. A *stranger* has shown that it knew the bus secret once; a *proven* peer, that
    it is there now."""

    __slots__ = (
        "bus_cipher",
        "bus_window",
        "challenge",
        "heard_at",
        "held",
        "hello",
        "incoming",
        "knows_us",
        "outgoing",
        "pair_window",
        "proven",
        "tries",
    )

    def __init__(self, member: int, hello: Hello, keys: Keys, challenge: int, now: float, after: int = 0) -> None:
        """``after`` is the highest counter ever accepted from this member. ``BadKey`` if no key can be agreed."""
        self.hello = hello
        self.bus_cipher: AESGCM = keys.bus_cipher(member)
        self.outgoing, self.incoming = keys.pair_ciphers(member, hello.public)
        self.bus_window = ReplayWindow(after)
        self.pair_window = ReplayWindow(after)
        self.challenge = challenge
        self.proven = False
        self.knows_us = False
        """True once it has sealed a frame for us, which shows that it has our public key."""
        self.tries = 0
        self.heard_at = now
        self.held: list[tuple[int, Frame]] = []

    def hold(self, counter: int, frame: Frame) -> None:
        """Hold a frame until the member is proven; only the latest are kept."""
        self.held.append((counter, frame))
        del self.held[:-HELD_PER_STRANGER_MAX]

    def prove(self, counter: int) -> list[Frame]:
        """The member answered our challenge by a frame with this counter. Returns the held frames that are not too old.
        Frames that were sent before this one and come later are refused, because they may be recordings."""
        self.proven = True
        self.bus_window.close(counter)
        self.pair_window.close(counter)
        held, self.held = self.held, []
        return [frame for sent, frame in held if counter - sent < REPLAY_WINDOW]

    @property
    def highest(self) -> int:
        return max(self.bus_window.top, self.pair_window.top)
