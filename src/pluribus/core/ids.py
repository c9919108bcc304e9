"""Identities. A member is a random incarnation, never an address: a restarted process is somebody else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Any, overload

from .errors import BadInput
from .limits import NAME_CHARS_MAX

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no i, l, o, u to misread


class MemberId(int):
    """A member's incarnation: 63 random bits that print as a short word, so that people can tell members apart."""

    __slots__ = ()

    def __str__(self) -> str:
        value, word = int(self), ""
        for _ in range(6):
            value, digit = divmod(value, 32)
            word += _ALPHABET[digit]
        return word

    def __repr__(self) -> str:
        return f"<member {self}>"


MessageId = tuple[int, int]
"""Sender and sequence number; unique in its group."""


class Identities(Sequence[MessageId]):
    """Identities of one sender with consecutive numbers. Programs that send thousands of messages rarely look at the
    identities, so each is made when it is looked at."""

    __slots__ = ("_numbers", "_sender")

    def __init__(self, sender: int, numbers: range) -> None:
        self._sender = sender
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> MessageId: ...

    @overload
    def __getitem__(self, place: slice) -> Identities: ...

    def __getitem__(self, place: int | slice) -> MessageId | Identities:
        if isinstance(place, slice):
            return Identities(self._sender, self._numbers[place])
        return (self._sender, self._numbers[place])

    def __iter__(self) -> Iterator[MessageId]:
        return zip(repeat(self._sender), self._numbers, strict=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(list(self))


ALL = 0
"""The destination of a frame that is for everybody; no member has this identity."""


def new_member_id(bits: int) -> MemberId:
    """An identity from 64 random bits that the caller's ``Random`` port gave."""
    return MemberId((bits >> 1) or 1)


def number_of(name: str) -> int:
    """The number that stands for a group's name on the wire: 48 bits, the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=6).digest(), "big") or 1


def checked_name(name: Any, what: str) -> str:
    """The name itself, or ``BadInput`` that says what a name may be."""
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise BadInput(f"{what} {name!r} is not a name: use 1 to {NAME_CHARS_MAX} printable characters")
    return name
