"""What a row of the keepers' log holds: one batch of commands, one list of voters, or the beginning of an epoch.

A fixed head, then the commands in one piece. A keeper that only passes a row on or writes it down reads no more than
the head. The store's checksum vouches for the bytes; the head repeats position-independent facts that let a log be
checked on its own: epochs never fall and indices have no gap.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from ...core.errors import MalformedFrame

FORMAT_MAJOR = 1
COMMANDS, VOTERS, EPOCH = 0, 1, 2
_HEAD = struct.Struct(">BBxxIQQ")
HEAD_BYTES = _HEAD.size
_encode = msgspec.msgpack.encode
_commands = msgspec.msgpack.Decoder(list[bytes])


class Voters(msgspec.Struct, frozen=True, array_like=True):
    """Who votes. Every change is one more and one voter; version 1 is the founders'."""

    version: int = 0
    keepers: tuple[int, ...] = ()

    def __contains__(self, keeper: int) -> bool:
        return keeper in self.keepers

    @property
    def majority(self) -> int:
        return len(self.keepers) // 2 + 1


_voters = msgspec.msgpack.Decoder(Voters)


class Head(msgspec.Struct, frozen=True, gc=False):
    """``first`` is the index of the first command, ``size`` how many there are; the next row starts behind them."""

    kind: int
    size: int
    epoch: int
    first: int

    @property
    def next(self) -> int:
        return self.first + self.size


def encode_commands(epoch: int, first: int, commands: Sequence[bytes]) -> bytes:
    return _HEAD.pack(FORMAT_MAJOR, COMMANDS, len(commands), epoch, first) + _encode(commands)


def encode_voters(epoch: int, first: int, voters: Voters) -> bytes:
    return _HEAD.pack(FORMAT_MAJOR, VOTERS, 0, epoch, first) + _encode(voters)


def encode_epoch(epoch: int, first: int) -> bytes:
    return _HEAD.pack(FORMAT_MAJOR, EPOCH, 0, epoch, first)


def head_of(row: bytes) -> Head:
    """``MalformedFrame`` for what is no row of ours."""
    if len(row) < HEAD_BYTES:
        raise MalformedFrame(f"{len(row)} bytes are no row of a keepers' log")
    major, kind, count, epoch, first = _HEAD.unpack_from(row)
    if major != FORMAT_MAJOR or kind > EPOCH:
        raise MalformedFrame(f"a row of format {major} and kind {kind}: this release reads format {FORMAT_MAJOR}")
    return Head(kind, count, epoch, first)


def commands_of(row: bytes) -> list[bytes]:
    try:
        return _commands.decode(memoryview(row)[HEAD_BYTES:])
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"a row without its commands: {error}") from None


def voters_of(row: bytes) -> Voters:
    try:
        return _voters.decode(memoryview(row)[HEAD_BYTES:])
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"a row without its voters: {error}") from None
