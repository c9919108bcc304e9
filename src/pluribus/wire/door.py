"""How a program that is no member speaks to one: frames on a stream, and the handshake that opens it.

A frame is its length in four bytes, little-endian, and so many bytes. The first three frames are the handshake::

    client   Hello     version, bus, nonce, and, if it has the secret, an ephemeral key
    member   Welcome   version, who it is, nonce, ephemeral key, proof; or why it refuses
    client   Proof

With a secret, each side proves that it knows the secret, by an authentication code over everything that was said. All
that follows is sealed with keys agreed from the ephemeral ones, so that somebody who learns the secret later cannot
read what was said before. Without a secret, the stream is as open as the network it runs on, unless it is TLS. This
file does no I/O: the owner of the socket hands in what came, and sends what is returned.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import msgspec

from ..core.errors import MalformedFrame, Refused, TooLarge
from ..core.limits import CLIENT_FRAME_BYTES_MAX, CLIENT_GREETING_BYTES_MAX
from ..core.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAJOR, MINOR = 1, 0
LENGTH_BYTES = 4
NONCE_BYTES = 16
SEAL_BYTES = 16
"""Bytes that sealing adds to a frame."""


class Hello(msgspec.Struct, array_like=True, frozen=True):
    major: int
    minor: int
    bus: str
    nonce: bytes
    key: bytes = b""
    name: str = ""


class Welcome(msgspec.Struct, array_like=True, frozen=True):
    """``refused`` is the reason of a refusal, else empty."""

    major: int
    minor: int
    member: int
    nonce: bytes
    key: bytes = b""
    proof: bytes = b""
    refused: str = ""


class Proof(msgspec.Struct, array_like=True, frozen=True):
    proof: bytes


_encode = msgspec.msgpack.Encoder().encode
_hello = msgspec.msgpack.Decoder(Hello)
_welcome = msgspec.msgpack.Decoder(Welcome)
_proof = msgspec.msgpack.Decoder(Proof)


def frame(data: bytes) -> bytes:
    """The data behind its length."""
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def length_of(head: bytes, *, greeting: bool = False) -> int:
    """The length of the frame that follows. ``MalformedFrame`` if it is over the limit, which is small in a
    greeting."""
    length, most = int.from_bytes(head, "little"), CLIENT_GREETING_BYTES_MAX if greeting else CLIENT_FRAME_BYTES_MAX
    if length > most:
        raise MalformedFrame(f"a frame of {length:,} bytes: the limit is {most:,}")
    return length


class Seal:
    """Seals and opens frames after the handshake; without keys it leaves them as they are. Each direction counts its
    frames."""

    def __init__(self, outgoing: AESGCM | None = None, incoming: AESGCM | None = None) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._sent = self._received = 0

    def seal(self, data: bytes) -> bytes:
        """The sealed frame. ``TooLarge`` if the other side would refuse it; then it does not count as sent."""
        most = CLIENT_FRAME_BYTES_MAX - SEAL_BYTES
        if len(data) > most:
            raise TooLarge(f"a frame of {len(data):,} bytes: the limit is {most:,}; ask for less, or send less at once")
        if self._outgoing is None:
            return data
        self._sent += 1
        return self._outgoing.encrypt(self._sent.to_bytes(12, "little"), data, None)

    def open(self, data: bytes) -> bytes:
        if self._incoming is None:
            return data
        from cryptography.exceptions import InvalidTag

        self._received += 1
        try:
            return self._incoming.decrypt(self._received.to_bytes(12, "little"), data, None)
        except InvalidTag:
            raise MalformedFrame("a frame that was not sealed by the other side") from None


class ClientSide:
    """Send ``hello``; hand ``welcomed`` the answer, and send what it returns; then use ``seal``."""

    def __init__(self, bus: str, name: str, secret: Secret | None, nonce: bytes) -> None:
        self._private = _ephemeral() if secret is not None else None
        self._secret = secret
        self._hello = Hello(MAJOR, MINOR, bus, nonce, _public(self._private), name)
        self.hello = _encode(self._hello)
        self.seal = Seal()
        self.member = 0
        """The program at the other end."""

    def welcomed(self, data: bytes) -> bytes:
        """The client's proof. ``Refused`` if the member refuses, or does not know the secret."""
        try:
            welcome = _welcome.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedFrame(f"what answered is no member of a bus: {error}") from None
        if welcome.refused:
            raise Refused(welcome.refused)
        if welcome.major != MAJOR:
            raise Refused(f"the member speaks version {welcome.major}, this release {MAJOR}: install the same major")
        self.member = welcome.member
        if self._secret is None or self._private is None:
            return _encode(Proof(b""))
        keys = _Keys(self._secret, self._private, welcome.key, self._hello, welcome)
        if not hmac.compare_digest(welcome.proof, keys.member_proof):
            raise Refused("the member does not know the bus secret: look at the address and the secret")
        self.seal = keys.seal(client=True)
        return _encode(Proof(keys.client_proof))


class MemberSide:
    """Hand ``greeted`` the hello and send what it returns; hand ``proven`` the proof; then use ``seal``."""

    def __init__(self, bus: str, member: int, secret: Secret | None, nonce: bytes) -> None:
        self._bus = bus
        self._member = member
        self._secret = secret
        self._nonce = nonce
        self._keys: _Keys | None = None
        self.seal = Seal()
        self.name = ""

    def greeted(self, data: bytes) -> tuple[bytes, str]:
        """The answer, and the reason if this member refuses the client, else empty."""
        try:
            hello = _hello.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedFrame(f"what knocked is no client: {error}") from None
        self.name = hello.name
        refused = self._reason(hello)
        if refused:
            return _encode(Welcome(MAJOR, MINOR, 0, b"", refused=refused)), refused
        private = _ephemeral() if self._secret is not None else None
        welcome = Welcome(MAJOR, MINOR, self._member, self._nonce, _public(private))
        if self._secret is not None and private is not None:
            self._keys = _Keys(self._secret, private, hello.key, hello, welcome)
            welcome = msgspec.structs.replace(welcome, proof=self._keys.member_proof)
        return _encode(welcome), ""

    def _reason(self, hello: Hello) -> str:
        if hello.major != MAJOR:
            return f"a client of version {hello.major}, this member speaks {MAJOR}: install the same major"
        if hello.bus != self._bus:
            return f"this member is on the bus {self._bus!r}, not {hello.bus!r}: look at the URL"
        if self._secret is not None and len(hello.key) != 32:
            return "this bus has a secret: connect with secret=, or set $PLURIBUS_SECRET"
        if self._secret is None and hello.key:
            return "this bus has no secret: connect without one"
        return ""

    def proven(self, data: bytes) -> None:
        """``Refused`` if the client does not know the secret."""
        try:
            proof = _proof.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedFrame(f"a client that proves nothing: {error}") from None
        if self._keys is not None:
            if not hmac.compare_digest(proof.proof, self._keys.client_proof):
                raise Refused("a client does not know the bus secret")
            self.seal = self._keys.seal(client=False)


class _Keys:
    """Proofs and ciphers of one conversation."""

    def __init__(self, secret: Secret, private: X25519PrivateKey, other: bytes, hello: Hello, welcome: Welcome) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        bare = msgspec.structs.replace(welcome, proof=b"")
        said = hashlib.sha256(_encode(hello) + _encode(bare)).digest()
        root = hmac.digest(b"pluribus door", secret.reveal() + hello.bus.encode(), "sha256")
        self.member_proof = hmac.digest(root, b"member" + said, "sha256")
        self.client_proof = hmac.digest(root, b"client" + said, "sha256")
        try:
            shared = private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise MalformedFrame("a key with which no secret can be agreed") from None
        self._root = hmac.digest(root, b"stream" + said + shared, "sha256")

    def seal(self, *, client: bool) -> Seal:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        up = AESGCM(hmac.digest(self._root, b"up", "sha256"))
        down = AESGCM(hmac.digest(self._root, b"down", "sha256"))
        return Seal(up, down) if client else Seal(down, up)


def _ephemeral() -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.generate()


def _public(private: X25519PrivateKey | None) -> bytes:
    return b"" if private is None else private.public_key().public_bytes_raw()
