"""The words of the security layer on the wire. Only ``Sealed`` travels outside of a sealed frame."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number

BUS, PAIR = 0, 1
"""Keys that every member of the bus has, and keys of two members; greater numbers name the key of a view."""

Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
ViewName = tuple[Number, Number]
"""Number and leader."""


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """A member's ephemeral public key, with a proof that its maker knows the bus secret."""

    public: Key
    proof: Key


class Sealed(Header, tag=16):
    """The body is an encoded frame under this key; the counter is the nonce, and goes up with every frame."""

    key: Number
    counter: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    hello: Hello | None = None
    """Sent until the receiver is known to have it."""


class Greet(Header, tag=17):
    """Prove that you are there now by repeating my challenge; or my answer to yours; or both. 0 stands for none."""

    challenge: Number
    answer: Number


class ViewKey(Header, tag=18):
    """The key of a view: from its leader to each of its members, or from a member to another that asked."""

    view: ViewName
    key: Key


class KeyWanted(Header, tag=19):
    """I am in this view and have no key for it."""

    view: ViewName
