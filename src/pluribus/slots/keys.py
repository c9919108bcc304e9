"""Keys of roles: a passphrase is proved, and neither the file nor the wire reveals it.

As SCRAM (RFC 5802) does it. The file holds a *verifier*: rounds, salt and the hash of the client's key. The router
sends a *challenge*, a number that it never uses twice; the answer is the client's key, hidden with a signature that can
be computed only from the verifier or the passphrase. A reader of the file cannot answer a challenge; an eavesdropper of
an answer cannot answer the next one.
"""

from __future__ import annotations

import hashlib
import hmac

from ..core.errors import BadInput

SCHEME = "scram"
ROUNDS = 60_000
ROUNDS_MAX = 10_000_000
SALT_BYTES = 16
KEY_BYTES = 32


def verifier(passphrase: str, salt: bytes, rounds: int = ROUNDS) -> str:
    """The verifier for a file: ``scram$ROUNDS$SALT$HASH``. ``salt`` is ``SALT_BYTES`` random bytes."""
    if len(salt) != SALT_BYTES or not 0 < rounds <= ROUNDS_MAX:
        raise BadInput(f"a verifier needs {SALT_BYTES} bytes of salt and 1 to {ROUNDS_MAX:,} rounds")
    stored = hashlib.sha256(_client_key(passphrase, salt, rounds)).digest()
    return f"{SCHEME}${rounds}${salt.hex()}${stored.hex()}"


def is_verifier(text: str) -> bool:
    return _parts(text) is not None


def prove(passphrase: str, rounds: int, salt: bytes, challenge: bytes) -> bytes:
    """The answer to a challenge. It costs ``rounds`` hashes, some 50 ms: call it in a thread."""
    if not 0 < rounds <= ROUNDS_MAX:
        raise BadInput(f"{rounds} rounds are none that a passphrase is proved with: 1 to {ROUNDS_MAX:,}")
    key = _client_key(passphrase, salt, rounds)
    return _xor(key, _signature(hashlib.sha256(key).digest(), challenge))


def proves(text: str, challenge: bytes, proof: bytes) -> bool:
    """True if a proof answers the challenge for this verifier."""
    parts = _parts(text)
    if parts is None or len(proof) != KEY_BYTES:
        return False
    _, _, stored = parts
    key = _xor(proof, _signature(stored, challenge))
    return hmac.compare_digest(hashlib.sha256(key).digest(), stored)


def salt_of(text: str) -> tuple[int, bytes]:
    """Rounds and salt of a verifier, which a client needs besides the passphrase."""
    parts = _parts(text)
    if parts is None:
        raise BadInput("the verifier of a role is none: make one with `pluribus slots key`")
    return parts[0], parts[1]


def _parts(text: str) -> tuple[int, bytes, bytes] | None:
    try:
        scheme, rounds, salt, stored = text.split("$")
        parts = int(rounds), bytes.fromhex(salt), bytes.fromhex(stored)
    except ValueError:
        return None
    good = (
        scheme == SCHEME and 0 < parts[0] <= ROUNDS_MAX and len(parts[1]) == SALT_BYTES and len(parts[2]) == KEY_BYTES
    )
    return parts if good else None


def _client_key(passphrase: str, salt: bytes, rounds: int) -> bytes:
    salted = hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, rounds)
    return hmac.digest(salted, b"Client Key", "sha256")


def _signature(stored: bytes, challenge: bytes) -> bytes:
    return hmac.digest(stored, challenge, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
