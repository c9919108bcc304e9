"""What a program asks of a keeper, and what it answers: between members of a bus, and for clients over TCP.

Requests are numbered by who asks, and answered in any order. Unknown fields at the end are skipped, so that a later
minor may add some.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...core import errors
from ...core.errors import MalformedFrame, PluribusError, RemoteError, Uncertain
from ...core.ids import MessageId
from ...group.keepers.voting import Standing
from ...group.sessions import Entry
from .commands import Outcome, Query, Text, Whole
from .many import AtMany, DoMany, FetchedMany, FetchMany

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
FETCH_BYTES = 1 << 20
WAIT_S_MAX = 30.0
"""How long a keeper holds a request for which there is nothing yet."""


class Put(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Packed batches, to be appended in this order; the answer is a list of outcomes."""

    batches: list[bytes]


class Do(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """One of ``commands``; the answer is its outcome."""

    command: bytes


class Fetch(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Events of one topic; the answer is ``Fetched``. ``where`` is a filter; without ``bodies`` only the envelope."""

    topic: Text
    start: Whole
    stop: Whole
    bytes_max: Whole = FETCH_BYTES
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    where: str = ""
    bodies: bool = True


class Follow(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Events of all topics that match, from these offsets on (0 for others); the answer is ``Followed``."""

    patterns: list[Text]
    offsets: dict[Text, Whole]
    bytes_max: Whole = FETCH_BYTES
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    where: str = ""


class Find(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Topics that match; the answer is a list of ``Known``. ``fresh``: not older than this question."""

    pattern: Text
    fresh: bool = True


class At(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """The first offset of an event of this time or later."""

    topic: Text
    time_us: int


class Last(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """The last batch that a query committed as this writer, -1 if none."""

    writer: Text
    query: Query = ""


class Tell(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Of a client to its member: publish live, packed as durable batches are; the answer is nothing."""

    batches: list[bytes]
    retain: bool = False


class Listen(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Of a client to its member: a live subscription under a number of the client's own."""

    number: int
    pattern: Text
    where: str = ""
    options: dict[str, Any] = {}


class Unlisten(msgspec.Struct, array_like=True, frozen=True, tag=10):
    number: int


class Read(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """Of a client: so many events of a live subscription were read, and there is room for more."""

    number: int
    count: int


class Stand(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """Of a member to a keeper: how do you stand? The answer is a ``Standing``."""


class Roll(msgspec.Struct, array_like=True, frozen=True, tag=13):
    """How all keepers stand, as one member finds out; the answer is a list of ``Standing``."""


class Voting(msgspec.Struct, array_like=True, frozen=True, tag=14):
    """Have a keeper counted from now on, or not any more; the answer, nothing, comes when that is committed."""

    keeper: Number
    votes: bool


class Force(msgspec.Struct, array_like=True, frozen=True, tag=15):
    """Most voters are gone for good: go on with this keeper, or (0) with the most recent log; the answer is a
    ``Forced``."""

    keeper: Number = 0


class Lead(msgspec.Struct, array_like=True, frozen=True, tag=16):
    """Of a member to the keeper that is forced to go on as the only voter."""

    cluster: Number
    epoch: Whole


class Adopt(msgspec.Struct, array_like=True, frozen=True, tag=17):
    """Of a member to another keeper: follow the log that was forced, which has the rows below ``end`` of the old
    one."""

    old: Number
    cluster: Number
    epoch: Whole
    end: Whole


class Open(msgspec.Struct, array_like=True, frozen=True, tag=18):
    """A machine of this kind, in this version at least; made if it is not there. The answer is its number."""

    name: Text
    kind: Text
    version: Whole


class Call(msgspec.Struct, array_like=True, frozen=True, tag=19):
    """A command of a machine, with its identity (``group.sessions.Command``); the answer is an ``Entry``."""

    name: Text
    command: bytes


class Inspect(msgspec.Struct, array_like=True, frozen=True, tag=20):
    """A question to a machine, which changes nothing; the answer is bytes. Empty: only see that all is applied."""

    name: Text
    question: bytes
    stale: bool = False


Request = (
    Put
    | Do
    | Fetch
    | Follow
    | Find
    | At
    | Last
    | Tell
    | Listen
    | Unlisten
    | Read
    | Stand
    | Roll
    | Voting
    | Force
    | Lead
    | Adopt
    | Open
    | Call
    | Inspect
    | FetchMany
    | DoMany
    | AtMany
)


class Forced(msgspec.Struct, array_like=True, frozen=True):
    """The keeper that goes on, from which row, and who follows it; the others must get new stores."""

    keeper: str
    row: int
    follow: list[str]
    refused: list[str]
    """Those that were there and do not follow, and why."""


class Fetched(msgspec.Struct, array_like=True, frozen=True):
    """Packed batches with the offset of each; ``next`` is where to go on, ``first`` and ``end`` are the topic's."""

    pieces: list[tuple[int, bytes]]
    next: int
    first: int
    end: int
    log: int = 0
    """Which log: its number is given once, when it is begun. 0 if that is not told."""


class Followed(msgspec.Struct, array_like=True, frozen=True):
    pieces: list[tuple[int, bytes]]
    offsets: dict[str, int]
    """Where to go on, of the topics that were read."""


class Known(msgspec.Struct, array_like=True, frozen=True):
    """A durable topic."""

    topic: str
    first: int
    end: int
    latest_us: int
    kept_bytes: int
    age_us: int = 0
    size_bytes: int = 0
    log: int = 0
    """Which log it is in, as ``Fetched.log``."""


class Asked(msgspec.Struct, array_like=True, frozen=True, tag=1):
    number: int
    request: Request


class Answered(msgspec.Struct, array_like=True, frozen=True, tag=2):
    number: int
    result: msgspec.Raw


class Failed(msgspec.Struct, array_like=True, frozen=True, tag=3):
    number: int
    kind: str
    text: str
    id: MessageId = (0, 0)


class Heard(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """To a client: live events of one of its subscriptions. ``missed`` were dropped before them; ``ended`` says why
    there will be no more."""

    number: int
    events: list[Live]
    missed: int = 0
    ended: str = ""


class Live(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    kind: int | str
    body: bytes
    sender: int
    id: MessageId
    time: float
    headers: dict[str, Any] | None = None
    parent: MessageId | None = None
    retained: bool = False
    again: bool = False


Word = Asked | Answered | Failed | Heard

_encode = msgspec.msgpack.Encoder().encode
_word: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {
    Put: msgspec.msgpack.Decoder(list[Outcome]),
    Do: msgspec.msgpack.Decoder(Outcome),
    Fetch: msgspec.msgpack.Decoder(Fetched),
    Follow: msgspec.msgpack.Decoder(Followed),
    Find: msgspec.msgpack.Decoder(list[Known]),
    At: msgspec.msgpack.Decoder(int),
    Last: msgspec.msgpack.Decoder(int),
    Tell: msgspec.msgpack.Decoder(None),
    Listen: msgspec.msgpack.Decoder(None),
    Unlisten: msgspec.msgpack.Decoder(None),
    Read: msgspec.msgpack.Decoder(None),
    Stand: msgspec.msgpack.Decoder(Standing),
    Roll: msgspec.msgpack.Decoder(list[Standing]),
    Voting: msgspec.msgpack.Decoder(None),
    Force: msgspec.msgpack.Decoder(Forced),
    Lead: msgspec.msgpack.Decoder(None),
    Adopt: msgspec.msgpack.Decoder(None),
    Open: msgspec.msgpack.Decoder(int),
    Call: msgspec.msgpack.Decoder(Entry),
    Inspect: msgspec.msgpack.Decoder(bytes),
    FetchMany: msgspec.msgpack.Decoder(FetchedMany),
    DoMany: msgspec.msgpack.Decoder(list[Outcome]),
    AtMany: msgspec.msgpack.Decoder(list[int]),
}


def encode(word: Word) -> bytes:
    return _encode(word)


def answered(number: int, result: Any) -> bytes:
    return _encode(Answered(number, msgspec.Raw(_encode(result))))


def failed(number: int, error: BaseException) -> bytes:
    id = error.id if isinstance(error, Uncertain) else (0, 0)
    return _encode(Failed(number, type(error).__name__, str(error)[:2_000], id))


def decode(data: bytes) -> Word:
    try:
        return _word.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"bytes that no client and no keeper sends: {error}") from None


def result_of(request: Request, answer: Answered) -> Any:
    try:
        return _decoders[type(request)].decode(answer.result)
    except msgspec.MsgspecError as error:
        raise MalformedFrame(f"an answer that no keeper gives: {error}") from None


def error_of(failure: Failed) -> PluribusError:
    """As it was raised there, if it is one of ours."""
    kind = getattr(errors, failure.kind, None)
    if kind is Uncertain:
        return Uncertain(failure.text, failure.id)
    if isinstance(kind, type) and issubclass(kind, PluribusError):
        try:
            return kind(failure.text)
        except TypeError:
            pass
    return RemoteError(failure.text, failure.kind)
