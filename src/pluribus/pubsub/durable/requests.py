"""What is asked of keepers about durable topics, and what they answer. ``wire/asking.py`` says how it travels."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.asking import WAIT_S_MAX, Words
from ..consumer_groups.words import Dead
from .commands import Outcome, Query, Text, Whole
from .many import AtMany, DoMany, FetchedMany, FetchMany
from .rights import done, published

FETCH_BYTES = 1 << 20


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


class Who(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """Durable subscriptions to topics that match; the answer is a list of ``Subscribed``."""

    pattern: Text


class Groups(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """Consumer groups; the answer is a list of ``GroupKnown``."""


class RemoveGroup(msgspec.Struct, array_like=True, frozen=True, tag=14):
    """Forget a consumer group that has no members; the answer is an ``Outcome``."""

    name: Text


class Watch(msgspec.Struct, array_like=True, frozen=True, tag=13):
    """Whether another subscriber took over a durable subscription since this epoch; answered when one does, or after
    ``wait_s``."""

    name: Text
    epoch: Whole
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)] = 0.0


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
    keys: bool = False
    """Only the last event of each key is kept."""


class GroupKnown(msgspec.Struct, array_like=True, frozen=True):
    """A consumer group."""

    name: str
    patterns: list[str]
    members: int
    held: int
    """Events that members hold."""
    behind: int
    """Events that are not settled, whether held or not."""
    dead: list[Dead]


class Subscribed(msgspec.Struct, array_like=True, frozen=True):
    """A durable subscription, or a mailbox."""

    name: str
    patterns: list[str]
    offsets: dict[str, int]
    """By topic: the offset up to which events were handled."""


Request = (
    Put | Do | Fetch | Follow | Find | At | Last | FetchMany | DoMany | AtMany | Who | Groups | RemoveGroup | Watch
)

WORDS = Words(
    "durable-topics",
    {
        Put: list[Outcome],
        Do: Outcome,
        Fetch: Fetched,
        Follow: Followed,
        Find: list[Known],
        At: int,
        Last: int,
        Groups: list[GroupKnown],
        RemoveGroup: Outcome,
        Watch: bool,
        FetchMany: FetchedMany,
        DoMany: list[Outcome],
        AtMany: list[int],
        Who: list[Subscribed],
    },
    rights={
        Put: lambda asked: published(asked.batches),
        Do: lambda asked: done(asked.command),
        Fetch: lambda asked: [("topic", asked.topic, "subscribe")],
        Follow: lambda asked: [("topic", pattern, "subscribe") for pattern in asked.patterns],
        Find: lambda asked: [("topic", asked.pattern, "any")],
        At: lambda asked: [("topic", asked.topic, "subscribe")],
        Last: lambda asked: [("writer", asked.writer, "use")],
        Groups: lambda asked: [("topic", "#", "browse")],
        RemoveGroup: lambda asked: [("consumers", asked.name, "manage")],
        Watch: lambda asked: [("subscription", asked.name, "use")],
        FetchMany: lambda asked: {("topic", topic, "subscribe") for topic, _, _ in asked.ranges},
        DoMany: lambda asked: {need for command in asked.commands for need in done(command)},
        AtMany: lambda asked: {("topic", topic, "subscribe") for topic in asked.topics},
        Who: lambda asked: [("topic", asked.pattern, "browse")],
    },
)
