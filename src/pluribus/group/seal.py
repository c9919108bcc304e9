"""The key of a closed group: programs without it are not let in, and could not read or write what its members say.

Theory of operation
-------------------
::

    group key ── HKDF, with the names of bus and group ── root ─┬─ a key for each sender
                                                                └─ the check: eight bytes, part of what is promised

Every member names the check among the promises that it asks for. A program with another key, or none, asks for
something else, and is refused as one who asks for another order is, with the reason on both sides. That is the door.
The lock is AES-256-GCM on the bodies of every frame of the group, above everything that repairs and orders: other
members of the bus, who carry such frames, see how long they are, whose and in which order, and nothing else. Sender,
group, destination and number are authenticated with them, so that no message can be passed off as another.

The nonce is a counter of the process, for all groups and through leaving and joining again; the key of a sender is that
of an incarnation, which never comes back. A snapshot for a joiner is sealed as a whole.

The check lets everybody on the bus try guesses: a key is made by chance, not thought up (``core.secret``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING

import msgspec

from ..core.errors import Damaged
from ..core.frame import Frame
from ..core.secret import Secret
from .state import State

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
SEAL_BYTES = 48
"""What sealing adds to a frame at most: the nonce, the tag, and what msgpack says about them."""
KEYED = "key:"
"""So begins the word that stands for a group's key in its promises."""
SENDERS_MAX = 1_024

_numbers = Struct(">QQQQQ").pack
_decode_bytes = msgspec.msgpack.Decoder(bytes).decode
_encode = msgspec.msgpack.Encoder().encode


class Seal:
    """Of one group in one process. ``nonces`` are those of the process: none is used twice."""

    def __init__(self, key: Secret, bus: str, group: str, me: int, nonces: Iterator[int]) -> None:
        from cryptography.exceptions import InvalidTag  # here, because it takes its time
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

        info = _encode([bus, group])
        self._root = HKDF(SHA256(), KEY_BYTES, b"pluribus group key", info).derive(key.reveal())
        self._derive: Callable[[bytes], bytes] = lambda info: HKDFExpand(SHA256(), KEY_BYTES, info).derive(self._root)
        self._cipher = AESGCM
        self._invalid = InvalidTag
        self._ciphers: dict[int, AESGCM] = {}
        self._nonces = nonces
        self._me = me
        self.word = KEYED + self._derive(b"check")[:8].hex()
        self.refused = 0
        """Frames that were not sealed with this key."""

    def sealed(self, frame: Frame) -> Frame:
        """The same frame for members alone; a frame without messages is a word of the protocols, and stays as it is."""
        if frame.count:
            frame.bodies = msgspec.Raw(_encode(self._seal(frame.sender, _encode(frame.bodies), _bound(frame))))
        return frame

    def opened(self, frame: Frame) -> Frame | None:
        """A copy that can be read; None if it was not made with the key."""
        opened = frame.copy()
        try:
            sealed = _decode_bytes(frame.bodies)
            opened.bodies = msgspec.Raw(self._open(frame.sender, sealed, _bound(frame)))
        except (self._invalid, msgspec.MsgspecError, TypeError, ValueError):
            self.refused += 1
            return None
        return opened

    def _seal(self, sender: int, plain: bytes, bound: bytes) -> bytes:
        nonce = next(self._nonces).to_bytes(NONCE_BYTES, "big")
        return nonce + self._of(sender).encrypt(nonce, plain, bound)

    def _open(self, sender: int, sealed: bytes, bound: bytes) -> bytes:
        return self._of(sender).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)

    def _of(self, sender: int) -> AESGCM:
        cipher = self._ciphers.get(sender)
        if cipher is None:
            if len(self._ciphers) >= SENDERS_MAX:
                del self._ciphers[next(iter(self._ciphers))]
            cipher = self._ciphers[sender] = self._cipher(self._derive(b"sender" + sender.to_bytes(8, "big")))
        return cipher

    def snapshot(self, state: bytes) -> bytes:
        """A state for a joiner; who took it is named in front, because its key is the sender's."""
        return self._me.to_bytes(8, "big") + self._seal(self._me, state, b"state")

    def restore(self, sealed: bytes) -> bytes:
        try:
            return self._open(int.from_bytes(sealed[:8], "big"), sealed[8:], b"state")
        except self._invalid:
            raise Damaged("the state of the group was not made with its key: somebody on the bus made it up") from None

    def __repr__(self) -> str:
        return "<seal>"


class SealedState:
    """A state that leaves the process only sealed."""

    def __init__(self, state: State, seal: Seal) -> None:
        self._state = state
        self._seal = seal

    def snapshot(self) -> bytes:
        state = self._state.snapshot()
        return self._seal.snapshot(state if isinstance(state, bytes) else b"".join(state))

    def restore(self, state: bytes) -> None:
        self._state.restore(self._seal.restore(state) if state else state)


def _bound(frame: Frame) -> bytes:
    """What a message cannot be parted from."""
    return _numbers(frame.sender, frame.group, frame.to, frame.first, frame.count) + _encode(frame.kind)
