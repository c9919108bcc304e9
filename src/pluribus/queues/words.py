"""The commands of a queue in its log, and their answers. Sends are packed batches (``batch.py``).

Every command may come twice and is done once: sends are numbered by their session, and every other command names the
whole state that it asks for.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..core.errors import MalformedFrame
from ..core.limits import CHAIN_CHARS_MAX
from ..group.host.rights import MachineRights
from ..wire.asking import ANY, Need

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Reason = Annotated[str, msgspec.Meta(max_length=1_024)]
Chain = Annotated[str, msgspec.Meta(max_length=CHAIN_CHARS_MAX)]
Things = Annotated[list[tuple[Number, Number]], msgspec.Meta(max_length=65_536)]
"""Consecutive messages, as (the first, how many)."""

DONE, AGAIN, REFUSED, FULL, ENDED, NEXT, UNLIKE = 0, 1, 2, 3, 4, 5, 6
"""``FULL``: there is no room, send the same again later. ``ENDED``: this consumer is not attached in this epoch.
``NEXT``: a batch before this one is missing; ``number`` is the next sequence. Or the queue was changed since:
``number`` counts the changes. ``UNLIKE``: the queue transforms arriving
messages by the chain in ``reason``, and the batch was not made by it; none of its messages is accepted."""

NOT_TRANSFORMED = "not transformed: "
"""The beginning of the reason of a dead letter that could not be transformed when it arrived."""
TRANSFORMS = "the queue transforms what arrives, by the chain: "
"""The beginning of the reason of a transaction that was refused as ``UNLIKE``."""
WAIT, REFUSE, BURY = "wait", "refuse", "dead"
"""What happens when a message finds the queue full: its sender waits, or is refused, or the oldest messages become dead
letters."""
PRIORITIES = 10
PRIORITY = 4
"""The priority of a message that names none."""


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """The settings of one queue. Times are microseconds; 0 is none, or no limit."""

    count_max: Number = 0
    bytes_max: Number = 0
    policy: str = WAIT
    tries_max: Number = 20
    """Deliveries after which a message that comes back becomes a dead letter."""
    backoff_us: Number = 1_000_000
    """The wait before a message that was given back is delivered again; it doubles with each time."""
    backoff_us_max: Number = 60_000_000
    window_us: Number = 120_000_000
    """Time for which an identity that a sender gave is remembered."""
    lease_us: Number = 0
    """Time for which a consumer may hold one message without settling it; 0: as long as the consumer is there."""
    dead_max: Number = 100_000
    """Dead letters that are kept; beyond that the oldest is removed for good."""
    bury_expired: bool = False
    """True if expired messages become dead letters."""
    transform: Chain = ""
    """The chain by which senders transform each body before they send it (``transformations/``). The queue does not
    understand the chain: it accepts batches that name the same chain, word for word."""


class Configure(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Use these settings if the queue has none yet; with ``anew``, in place of those that it has after ``changes``
    changes."""

    settings: Settings
    anew: bool = False
    changes: Number = 0


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A consumer attaches, or attaches again. ``selector`` is a packed tree of the filter language; empty: every
    message."""

    consumer: Number
    owner: Number
    lease_us: Number
    selector: Annotated[bytes, msgspec.Meta(max_length=65_536)] = b""
    exclusive: bool = False


class Settle(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A consumer's settlements, and its credit. With ``serial`` 0 the credit stays as it was."""

    consumer: Number
    epoch: Number
    acked: Things = []
    others: Annotated[list[tuple[Number, int, Number, Reason]], msgspec.Meta(max_length=65_536)] = []
    """Message, verb, microseconds, reason."""
    serial: Number = 0
    things_max: Number = 0
    bytes_max: Number = 0
    want: Annotated[int, msgspec.Meta(ge=-1)] = -1
    number: Number = 0
    """The number of this command among those of the consumer: a repeated command gets the answer of the first."""
    deliveries: Annotated[list[Number], msgspec.Meta(max_length=131_072)] = []
    """For the runs in ``acked``, then for ``others``: the delivery that is meant. A delivery that ended is not settled,
    although the consumer holds the message again. Empty: whichever it holds."""


NACK, REJECT, EXTEND, RELEASE, BACK = 1, 2, 3, 4, 5
"""The verbs: given back after so many microseconds; a dead letter, with the reason; held for so long from now; given
back unseen, which does not count as a try; given back after the queue's own back-off."""


class Detach(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A consumer is gone; the messages that it holds come back, and that does not count as a try."""

    consumer: Number


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Messages that a search found for a consumer with a selector: it gets those that are still there."""

    consumer: Number
    epoch: Number
    things: Annotated[list[Number], msgspec.Meta(max_length=65_536)]


class Purge(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Remove messages below a number that no consumer holds, at most ``PURGE_MAX`` at a time; the answer says how many,
    and where to go on."""

    before: Number
    dead: bool = False
    start: Number = 0
    things: Annotated[list[Number], msgspec.Meta(max_length=65_536)] = []
    """Only these, if there are any."""


class Redrive(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Dead letters become messages again, with no tries counted: these, or as many of the oldest."""

    count: Number = 0
    things: Annotated[list[Number], msgspec.Meta(max_length=65_536)] = []


class Pause(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Deliver nothing, or go on; the queue still accepts messages. A copy of this command may arrive late, when
    somebody has changed the queue again: ``changes`` names the state that is meant; in another one it does nothing."""

    paused: bool
    changes: Number


class Move(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Messages written once more, so that their old row can be freed."""

    row: Number
    things: Annotated[list[Number], msgspec.Meta(max_length=1 << 20)]
    packed: bytes


class Stage(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A piece of a long body, before its message is sent; pieces are numbered from 0."""

    upload: Number
    piece: Number
    data: bytes


class Restage(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A piece of a long body written once more: of an upload, or, if that is 0, of a message that was sent."""

    upload: Number
    thing: Number
    piece: Number
    row: Number
    data: bytes


class Keep(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A transaction is being prepared: the messages that it received are held for it, whatever becomes of the
    consumer."""

    transaction: Number
    consumer: Number
    epoch: Number
    acked: Things = []
    deliveries: Annotated[list[Number], msgspec.Meta(max_length=131_072)] = []


class Resolve(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A prepared transaction is decided: its messages are settled, or come back. Room was promised to it: the limits of
    the queue do not apply to the messages that it sends."""

    transaction: Number
    commits: bool


class Remake(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Dead letters that could not be transformed when they arrived become messages again, with the bodies of this
    batch, which the queue's present chain made."""

    things: Annotated[list[Number], msgspec.Meta(min_length=1, max_length=65_536)]
    packed: bytes


Command = (
    Configure
    | Attach
    | Settle
    | Detach
    | Offer
    | Purge
    | Redrive
    | Pause
    | Move
    | Stage
    | Restage
    | Keep
    | Resolve
    | Remake
)


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a command."""

    status: int
    number: int = 0
    """Of a batch: the number of its first message. Of an attachment: the epoch. Of a purge or redrive: how many."""
    reason: str = ""
    things: list[Any] = []
    """Of an attachment, and of a demand that ends: the messages that the consumer holds, each as (message,
    delivery)."""
    lost: list[int] = []
    """Of a settlement: the messages that the consumer did not hold any more."""
    then: int = 0
    """Of a purge: where to go on; 0 at the end."""


# Questions, which change nothing.


class Look(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Messages from a number on, without taking them."""

    start: Number = 0
    count: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 100
    selector: bytes = b""
    dead: bool = False
    priority: int = -1


class Count(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The state of the queue."""


class Where(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The present places of these messages in the log."""

    things: Annotated[list[Number], msgspec.Meta(max_length=65_536)]


class Held(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The numbers of messages that a consumer holds, or that are kept for a prepared transaction."""

    consumer: Number


class Copy(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Columns of messages from a number on, dead letters included, without taking them; see ``columns.py``."""

    start: Number = 0
    end: Number = 0
    """Messages from this number on are left out; 0: none is."""
    now_us: Number = 0
    """The time from which ages are computed; 0: now."""
    selector: Annotated[bytes, msgspec.Meta(max_length=65_536)] = b""
    """A filter, packed, over the columns and the properties; empty: every message."""
    columns: Annotated[list[str], msgspec.Meta(max_length=64)] = []
    properties: bool = False
    """The names of properties are wanted, or the selector uses some."""


Question = Look | Count | Where | Held | Copy


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """One message in an answer."""

    thing: int
    row: int
    place: int
    piece: int
    state: str
    priority: int
    tries: int
    size: int
    at_us: int
    due_us: int = 0
    expiry_us: int = 0
    key: str = ""
    properties: dict[str, Any] = {}
    reason: str = ""
    pieces: list[tuple[int, int]] = []
    """Of a long body: the places of its pieces, as rows and places."""


class Looked(msgspec.Struct, frozen=True, array_like=True):
    found: list[Seen]
    then: int
    """Where to go on; 0 at the end."""


class Copied(msgspec.Struct, frozen=True, array_like=True):
    """Some columns of some messages. Ask again from ``then`` on, with the same ``end`` and ``now_us``; ``then`` 0: the
    end."""

    columns: list[list[Any]]
    """The columns, in the order in which they were asked for."""
    names: list[str]
    """Of the properties that messages have which were looked at, whether they match or not."""
    then: int
    end: int
    now_us: int


class Stats(msgspec.Struct, frozen=True):
    """How a queue is: what waits in it, and what it has done since it was made."""

    depth: int
    """Messages that are there and no dead letters, held ones included."""
    ready: int
    held: int
    delayed: int
    dead: int
    size_bytes: int
    consumers: int
    waiting: int
    """Consumers that have room."""
    oldest_s: float
    """The age of the oldest message that waits; 0 if none does."""
    sent: int
    settled: int
    redelivered: int
    expired: int
    duplicates: int
    paused: bool
    settings: Settings
    now_us: int = 0
    changes: int = 0
    """How often the queue was paused, resumed or configured."""


encode = msgspec.msgpack.Encoder().encode
_command: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)


def command_of(data: bytes) -> Command:
    try:
        return _command.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a command of a queue that no release gives: {error}") from None


def question_of(data: bytes) -> Question:
    try:
        return _question.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a question to a queue that no release asks: {error}") from None


# Rights.


def _configures(data: bytes, queue: str) -> list[Need]:
    """The first who opens a queue says how it is; to change that is another matter."""
    command = command_of(data)
    return [("queue", queue, "manage" if isinstance(command, Configure) and command.anew else ANY)]


RIGHTS = MachineRights(
    "queue",
    "queue.",
    "queue",
    {
        Configure: _configures,
        Attach: "receive",
        Settle: "receive",
        Detach: "receive",
        Offer: None,
        Purge: "manage",
        Redrive: "manage",
        Pause: "manage",
        Move: None,
        Stage: "send",
        Restage: None,
        Keep: "receive",
        Resolve: "receive|send",
        Remake: "manage",
    },
    {Look: "browse", Count: ANY, Where: "browse", Held: "browse|receive", Copy: "browse"},
    batch="send",
    awaits="receive",
    bodies="browse",
)
