"""Passwords and tokens: how they are kept and compared.

A password is kept as its scrypt hash, with a salt of its own, because people choose passwords that can be guessed: a
guess costs 16 MiB and some 50 ms. A token is 32 random bytes, which cannot be guessed, so a plain hash is enough. Both
are compared in constant time. Chance is handed in.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode

from ..core.errors import BadInput

SCHEME = "scrypt"
COST, BLOCK, LANES = 1 << 14, 8, 1
SALT_BYTES, KEY_BYTES, TOKEN_BYTES = 16, 32, 32
PASSWORD_CHARS_MIN, PASSWORD_CHARS_MAX = 8, 1_024
MARK = "plt"
"""The prefix of tokens."""
ID_BYTES = 9


def hashed(password: str, salt: bytes) -> str:
    """``scrypt$COST$BLOCK$LANES$SALT$HASH``. It takes some 50 ms: call it in a thread."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        raise BadInput(f"a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX:,} characters: choose another")
    if len(salt) != SALT_BYTES:
        raise BadInput(f"a salt has {SALT_BYTES} bytes")
    key = _scrypt(password, salt, COST, BLOCK, LANES)
    return f"{SCHEME}${COST}${BLOCK}${LANES}${salt.hex()}${key.hex()}"


NOBODY = f"{SCHEME}${COST}${BLOCK}${LANES}${bytes(SALT_BYTES).hex()}${bytes(KEY_BYTES).hex()}"
"""Compared for unknown users, so that they take as long as others; no password fits it."""


def proves(password: str, kept: str) -> bool:
    """True if the password has this hash. It takes some 50 ms, right or wrong: call it in a thread."""
    try:
        scheme, cost, block, lanes, salt, key = (kept or NOBODY).split("$")
        given = _scrypt(password[:PASSWORD_CHARS_MAX], bytes.fromhex(salt), int(cost), int(block), int(lanes))
        return hmac.compare_digest(given, bytes.fromhex(key)) and scheme == SCHEME and bool(kept)
    except ValueError:
        return False


def token_text(id: str, chance: bytes) -> str:
    """The token for the user, who gets it once: it cannot be made again from the stored digest."""
    return f"{MARK}.{id}.{urlsafe_b64encode(chance).decode().rstrip('=')}"


def token_id(chance: bytes) -> str:
    return urlsafe_b64encode(chance).decode().rstrip("=")


def token_parts(text: str) -> tuple[str, bytes]:
    """The id of a token, and its digest."""
    kind, _, rest = text.partition(".")
    id, _, secret = rest.partition(".")
    return (id if kind == MARK and secret else ""), digest(text)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


def _scrypt(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=KEY_BYTES, n=cost, r=block, p=lanes).derive(password.encode("utf-8", "replace"))
