"""The vocabulary of the protocol: what keepers send to each other, and what they store about themselves.

Words may be lost, doubled, late and out of order; each can be understood alone. Unknown fields at the end are skipped,
so that a later minor release may add some.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec

from ...core.errors import MalformedFrame
from .rows import Voters

WORDS_MAJOR = 2
WHOLE, DAMAGED, LOST = 0, 1, 2
"""The health of a keeper's log: whole; with rows to be repaired; or its state is gone, and only a snapshot helps."""


class Courier(Protocol):
    """How words reach other keepers. Words may be lost; no word arrives that was not sent."""

    def send(self, to: int, words: bytes) -> None: ...

    def others(self) -> Sequence[int]:
        """Keepers that may be reached now, voters or not."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """From a keeper that hears no leader, to all: the leader is to send me rows."""

    epoch: int


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A candidate asks for a vote. ``trial``: would you vote for me? The answer binds nobody."""

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
    """A damaged keeper is whole again when it has all rows below this."""
    run: int
    """The run of the addressee in which it has the debt: a word that comes late does not count for a later run."""


class Held(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """My rows below ``upto`` are the leader's, and on disk. ``want`` asks for rows from there on."""

    epoch: int
    upto: int
    want: int | None
    serial: int
    run: int
    health: int
    lacks: bool = False
    """Rows that it has not applied are hollow at the leader: it needs the snapshot."""
    installs: int = 0
    """How many snapshots it took over in this run: each may change where its log begins and ends."""


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The leader offers its snapshot: the list of its parts. It covers the rows below ``row``; the log is to start at
    ``base``."""

    epoch: int
    row: int
    base: bytes
    manifest: bytes
    """A ``Snapshot``, as it is stored."""
    serial: int


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Some bytes of one part of the snapshot for ``row``; parts are counted as the manifest lists them."""

    epoch: int
    row: int
    part: int
    offset: int
    data: bytes
    serial: int


class Got(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Of the snapshot for ``row``, send this part from ``offset`` on; a number behind the last part: I have them
    all."""

    epoch: int
    row: int
    part: int
    offset: int
    serial: int
    run: int
    installs: int = 0


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """To the leader, from a keeper whose application wants something ordered."""

    ticket: int
    commands: list[bytes]
    machine: int = 0


class Placed(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """``row`` is behind the one that holds the commands, the first of which has this index."""

    ticket: int
    index: int
    row: int


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The request failed. ``certain``: it was not and will not be ordered, so it may be tried again."""

    ticket: int
    certain: bool
    reason: str


class Read(msgspec.Struct, frozen=True, array_like=True, tag=11):
    ticket: int


class ReadAt(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The answer to a fresh read: a keeper that has applied the rows below this one reads nothing stale."""

    ticket: int
    row: int


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Let this keeper vote from now on, or not any more."""

    ticket: int
    keeper: int
    votes: bool


class Digest(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The digest of a keeper's state after the rows below ``row``, at a mark."""

    epoch: int
    row: int
    digest: bytes


class Differs(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """From the leader: most keepers have another state than you have after the rows below ``row``. Load it anew."""

    epoch: int
    row: int


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """To the leader: the sender heard of these owners of leases at most so many seconds ago."""

    owners: list[tuple[int, int]]
    """Number of the machine, and the owner's own number."""


Word = (
    Hello
    | Ask
    | Answer
    | Rows
    | Held
    | Offer
    | Piece
    | Got
    | Submit
    | Placed
    | Failed
    | Read
    | ReadAt
    | Vote
    | Digest
    | Differs
    | Alive
)


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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"words that no keeper says: {error}") from None
    if envelope.major != WORDS_MAJOR:
        raise MalformedFrame(f"a keeper of version {envelope.major}: this release speaks {WORDS_MAJOR}")
    return envelope


# What is written down.


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """A keeper's identity and its promises; kept twice."""

    keeper: int
    cluster: int = 0
    epoch: int = 0
    voted: int = 0
    """For whom, in that epoch."""
    logged: bool = False
    """Whether the log ever had a row: if so, a log without rows is lost, not new."""
    health: int = WHOLE
    run: int = 0
    """It grows with each start, and when a log goes bad while it runs: earlier words about the log count no more."""
    founders: tuple[int, ...] = ()
    """The first voters, if this keeper founded the log. They are all that its first row says, so it can be put back."""


class Base(msgspec.Struct, frozen=True, array_like=True):
    """Where the kept log begins: the position of its first row, the epoch of the row before, the first index."""

    row: int = 0
    epoch: int = 0
    index: int = 0


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One part of a state. It is stored under its digest, so that a part which did not change is written once."""

    name: str
    digest: bytes
    size: int


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state after all rows below ``row``, as a list of parts, and who votes as of there."""

    row: int = 0
    epoch: int = 0
    index: int = 0
    voters: Voters = Voters()
    time_us: int = 0
    parts: tuple[Part, ...] = ()

    @property
    def digest(self) -> bytes:
        """The digest of the state: equal states have equal digests."""
        joined = b"".join(part.digest + part.name.encode() + b"\0" for part in self.parts)
        return digest_of(joined)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


meta_of = msgspec.msgpack.Decoder(Meta).decode
base_of = msgspec.msgpack.Decoder(Base).decode
snapshot_of = msgspec.msgpack.Decoder(Snapshot).decode


def stored(record: Meta | Base | Snapshot) -> bytes:
    return _encode(record)
