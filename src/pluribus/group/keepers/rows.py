"""A row of the keepers' log: commands for one machine, voters, the beginning of an epoch, or a mark.

At a *mark* every keeper takes a snapshot, so that their states can be compared.

A row has a fixed head, then the commands in one piece. The head has the machine's number and the time that the leader
gave the row. A keeper that only writes a row or passes it on reads no more than the head. The store's checksum protects
the bytes. With the head a log can also be checked on its own: epochs never fall and indices have no gap.

A *hollow* row is a head without its commands: its machine reads them no more, and their space was freed. It stays in
its place in the log, counts as whole, and can be read but not applied.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from ...core.errors import MalformedFrame

FORMAT_MAJOR = 2
COMMANDS, VOTERS, EPOCH, MARK = 0, 1, 2, 3
_HOLLOW = 0x80
_HEAD = struct.Struct(">BBHIQQQ")
HEAD_BYTES = _HEAD.size
MACHINES_MAX = 1 << 16
"""Numbers of machines that a head can name."""
_encode = msgspec.msgpack.encode
_commands = msgspec.msgpack.Decoder(list[bytes])


class Voters(msgspec.Struct, frozen=True, array_like=True):
    """The voters. Every change raises the version by 1 and adds or removes one voter; the founders have version 1."""

    version: int = 0
    keepers: tuple[int, ...] = ()

    def __contains__(self, keeper: int) -> bool:
        return keeper in self.keepers

    @property
    def majority(self) -> int:
        return len(self.keepers) // 2 + 1


_voters = msgspec.msgpack.Decoder(Voters)


class RowHead(msgspec.Struct, frozen=True, gc=False):
    """``first`` is the index of the first command, ``size`` how many there are; the next row starts behind them."""

    kind: int
    size: int
    epoch: int
    first: int
    machine: int = 0
    """The number of the machine that the commands are for."""
    time_us: int = 0
    """The leader's time when it made the row, in microseconds since 1970; 0: none."""
    hollow: bool = False
    """The commands are gone: only the head is left."""

    @property
    def next(self) -> int:
        return self.first + self.size


def encode_commands(epoch: int, first: int, commands: Sequence[bytes], machine: int = 0, time_us: int = 0) -> bytes:
    return _HEAD.pack(FORMAT_MAJOR, COMMANDS, machine, len(commands), epoch, first, time_us) + _encode(commands)


def encode_voters(epoch: int, first: int, voters: Voters) -> bytes:
    return _HEAD.pack(FORMAT_MAJOR, VOTERS, 0, 0, epoch, first, 0) + _encode(voters)


def encode_epoch(epoch: int, first: int) -> bytes:
    return _HEAD.pack(FORMAT_MAJOR, EPOCH, 0, 0, epoch, first, 0)


def encode_mark(epoch: int, first: int, time_us: int) -> bytes:
    return _HEAD.pack(FORMAT_MAJOR, MARK, 0, 0, epoch, first, time_us)


def hollow_of(row: bytes) -> bytes:
    """The head alone, marked as hollow. Only rows of commands become hollow."""
    major, kind, *rest = _HEAD.unpack_from(row)
    assert kind == COMMANDS, f"a row of kind {kind} does not become hollow"
    return _HEAD.pack(major, kind | _HOLLOW, *rest)


def head_of(row: bytes) -> RowHead:
    """``MalformedFrame`` for what is no row of ours."""
    if len(row) < HEAD_BYTES:
        raise MalformedFrame(f"{len(row)} bytes are no row of a keepers' log")
    major, kind, machine, count, epoch, first, time_us = _HEAD.unpack_from(row)
    hollow, kind = kind >= _HOLLOW, kind & ~_HOLLOW
    if major != FORMAT_MAJOR or kind > MARK or (hollow and kind != COMMANDS):
        raise MalformedFrame(f"a row of format {major} and kind {kind}: this release reads format {FORMAT_MAJOR}")
    return RowHead(kind, count, epoch, first, machine, time_us, hollow)


def commands_of(row: bytes) -> list[bytes]:
    """``MalformedFrame`` too for a hollow row, which has none any more."""
    try:
        return _commands.decode(memoryview(row)[HEAD_BYTES:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a row without its commands: {error}") from None


def commands_for(row: bytes, machine: int | None = None) -> list[bytes]:
    """The commands of a row, none if it has none any more, is of another kind, or of another machine than this one."""
    head = head_of(row)
    wanted = head.kind == COMMANDS and not head.hollow and (machine is None or head.machine == machine)
    return commands_of(row) if wanted else []


def voters_of(row: bytes) -> Voters:
    try:
        return _voters.decode(memoryview(row)[HEAD_BYTES:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a row without its voters: {error}") from None
