"""The commands of the host itself, and their outcomes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...core.errors import MalformedFrame
from ...core.limits import NAME_CHARS_MAX

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
MachineNumber = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]

TICK_MACHINES_MAX = 1_024
HOST = 0
"""The number of the host itself among its machines."""
INNER = 1 << 17
"""A command inside a transaction has the place (its number there + 1) * ``INNER`` + the transaction's place."""

DONE, AGAIN, REFUSED, UNKNOWN = 0, 1, 2, 3

ONCE = 1 << 62
"""Sessions with numbers from here on send only in transactions, each once; no table of streams remembers them."""


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The code that a keeper has: kinds of machines, and the latest version of each."""

    keeper: Number
    codes: Annotated[dict[Text, Number], msgspec.Meta(max_length=10_000)]


class Create(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A machine of this kind and version under this name; or its version raised, if it is there in a lower one."""

    name: Text
    kind: Text
    version: Number


class Remove(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A machine and its state."""

    name: Text


class Tick(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Something of these machines is due."""

    machines: Annotated[list[MachineNumber], msgspec.Meta(max_length=TICK_MACHINES_MAX)]


class Expire(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Owners of leases in one machine were silent for too long, or are gone for good."""

    machine: MachineNumber
    owners: Annotated[list[Number], msgspec.Meta(max_length=65_536)]


class Together(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A transaction: commands of several machines, all of them or none, once."""

    session: Number
    sequence: Number
    settled: Number
    parts: Annotated[list[tuple[MachineNumber, list[bytes]]], msgspec.Meta(max_length=1_024)]


Word = Announce | Create | Remove | Tick | Expire | Together


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """``DONE``: done now. ``AGAIN``: it had been done before. ``REFUSED``: with the reason. ``UNKNOWN``: the host does
    not remember whether it was done, because too many others came since."""

    status: int
    number: int = 0
    """The number of a machine that was made."""
    reason: str = ""
    results: list[list[Any]] = []
    """The results of a transaction's commands, by machine in the order of the transaction."""


encode = msgspec.msgpack.Encoder().encode
_word: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def word_of(data: bytes) -> Word:
    try:
        return _word.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a command of the host that no release gives: {error}") from None
