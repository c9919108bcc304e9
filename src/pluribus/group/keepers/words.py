"""What keepers say to each other, and what they write down about themselves: the vocabulary of the protocol.

Words may be lost, doubled, late and out of order; each says enough to be understood alone. Unknown fields at the end
are skipped, so that a later minor may add some.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...core.errors import MalformedFrame
from .rows import Voters

WORDS_MAJOR = 1
WHOLE, DAMAGED, LOST = 0, 1, 2
"""What a keeper says of its log: all there; rows to be put back; or its state is gone, and only a snapshot helps."""


class Carrier(Protocol):
    """How words reach other keepers; nothing is promised but that what arrives was sent."""

    def send(self, to: int, words: bytes) -> None: ...

    def others(self) -> Sequence[int]:
        """Keepers that may be reached now, voters or not."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A keeper that hears no leader: whoever leads, take me along."""

    epoch: int


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """For a vote. ``trial``: would you, if I asked? It binds nobody."""

    epoch: int
    last_epoch: int
    end: int
    trial: bool


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=3):
    epoch: int
    granted: bool
    trial: bool


class Rows(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """From the leader: rows from ``at`` on, perhaps none; the row before them has the epoch ``before``."""

    epoch: int
    at: int
    before: int
    rows: list[bytes]
    commit: int
    """Rows below it are committed."""
    serial: int
    debt: int
    """A damaged keeper is whole again when it has everything below this."""


class Held(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Everything below ``upto`` is as the leader has it, and on disk. ``want`` asks for rows from there on."""

    epoch: int
    upto: int
    want: int | None
    serial: int
    run: int
    health: int


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Of the leader's snapshot, which stands for the rows below ``row``; the log is to start at ``base``."""

    epoch: int
    row: int
    base: bytes
    size: int
    offset: int
    data: bytes
    serial: int


class Got(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Of the snapshot for ``row`` I have everything below ``offset``."""

    epoch: int
    row: int
    offset: int
    serial: int
    run: int


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """To the leader, from a keeper whose application wants something ordered."""

    ticket: int
    commands: list[bytes]


class Placed(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """``row`` is behind the one that holds the commands, the first of which has this index."""

    ticket: int
    index: int
    row: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """``certain``: it was not and will not be ordered, so it may be tried again."""

    ticket: int
    certain: bool
    reason: str


class Read(msgspec.Struct, frozen=True, array_like=True, tag=11):
    ticket: int


class ReadAt(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Whoever has applied the rows below this one reads nothing stale."""

    ticket: int
    row: int


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Let this keeper vote from now on, or not any more."""

    ticket: int
    keeper: int
    votes: bool


Word = Hello | Ask | Answer | Rows | Held | Piece | Got | Submit | Placed | Failed | Read | ReadAt | Vote


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    major: int
    cluster: int
    """0 from a keeper that belongs to none yet."""
    keeper: int
    word: Word


_encode = msgspec.msgpack.encode
_envelope = msgspec.msgpack.Decoder(Envelope)


def encode(cluster: int, keeper: int, word: Word) -> bytes:
    return _encode(Envelope(WORDS_MAJOR, cluster, keeper, word))


def decode(words: bytes) -> Envelope:
    """``MalformedFrame`` for what no keeper of this major says."""
    try:
        envelope = _envelope.decode(words)
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"words that no keeper says: {error}") from None
    if envelope.major != WORDS_MAJOR:
        raise MalformedFrame(f"a keeper of version {envelope.major}: this release speaks {WORDS_MAJOR}")
    return envelope


# What is written down.


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """Who a keeper is and what it promised; kept twice."""

    keeper: int
    cluster: int = 0
    epoch: int = 0
    voted: int = 0
    """For whom, in that epoch."""
    logged: bool = False
    """Whether it ever had a row: a log without any is then missing, not new."""
    health: int = WHOLE
    run: int = 0
    """How often it was started: what it said before it was started last counts no more."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """What is before the first row that is kept: its position, the epoch of the row before it, the next index."""

    row: int = 0
    epoch: int = 0
    index: int = 0


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state after all rows below ``row``, and who votes as of there."""

    row: int = 0
    epoch: int = 0
    index: int = 0
    voters: Voters = Voters()
    state: bytes = b""


meta_of = msgspec.msgpack.Decoder(Meta).decode
base_of = msgspec.msgpack.Decoder(Base).decode
snapshot_of = msgspec.msgpack.Decoder(Snapshot).decode


def stored(record: Meta | Base | Snapshot) -> bytes:
    return _encode(record)
