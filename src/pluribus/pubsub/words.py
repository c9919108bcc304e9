"""Words between members that publish or subscribe, besides events: messages of the groups that carry the events.

``Introduce`` and ``Wanted`` are questions (``group.ask``): the asker goes on when all members have answered, and so
know what it said. The others are plain messages.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.frame import Number
from ..core.limits import (
    ADVERTISED_MAX,
    NAME_CHARS_MAX,
    RETAINED_MAX,
    SHARED_WAITING_MAX,
    SUBSCRIPTIONS_MAX,
    TOPIC_CHARS_MAX,
)
from ..wire.bodies import register

Pattern = Annotated[str, msgspec.Meta(max_length=TOPIC_CHARS_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Ids = Annotated[list[tuple[int, int]], msgspec.Meta(max_length=SHARED_WAITING_MAX)]


class Advert(msgspec.Struct, array_like=True, frozen=True):
    """What a member says that it will publish."""

    pattern: Pattern
    type: Name = ""
    about: Annotated[str, msgspec.Meta(max_length=1_024)] = ""


class Want(msgspec.Struct, array_like=True, frozen=True):
    """Events under these topics are wanted in this order too."""

    order: Name
    pattern: Pattern


class Introduce(msgspec.Struct, array_like=True, frozen=True):
    """A question of a newcomer: who are you, and what do you know?"""


class Introduction(msgspec.Struct, array_like=True, frozen=True):
    version: Number = 0
    """How many words it has sent to all before."""
    digest: Number = 0
    """Of its retained values; 0 if it has none."""
    wants: Annotated[list[Want], msgspec.Meta(max_length=SUBSCRIPTIONS_MAX)] = []
    adverts: Annotated[list[Advert], msgspec.Meta(max_length=ADVERTISED_MAX)] = []


class Tell(msgspec.Struct, array_like=True, frozen=True):
    """A question: which values are retained?"""


class Told(msgspec.Struct, array_like=True, frozen=True):
    """Batches of one event each."""

    kept: Annotated[list[bytes], msgspec.Meta(max_length=RETAINED_MAX)]


class Wanted(msgspec.Struct, array_like=True, frozen=True):
    """A question; an answer means: from now on I send these events there too."""

    want: Want


class Unwanted(msgspec.Struct, array_like=True, frozen=True):
    want: Want
    version: Number = 0


class Advertised(msgspec.Struct, array_like=True, frozen=True):
    advert: Advert
    version: Number = 0
    over: bool = False


class CountSubscribers(msgspec.Struct, array_like=True, frozen=True):
    """A question: how many live subscriptions to a topic are at your member? Tell also if that changes soon."""

    topic: Pattern


class SubscribersCounted(msgspec.Struct, array_like=True, frozen=True):
    """The answer, and what is told when the count changes; a higher version is later."""

    topic: Pattern
    count: Number
    version: Number


class Joined(msgspec.Struct, array_like=True, frozen=True):
    """In safe order: a subscription has become one of a set that shares events."""

    key: str
    number: int


class Left(msgspec.Struct, array_like=True, frozen=True):
    """In safe order: a subscription has left its set, by itself or because its member is gone."""

    key: str
    member: int
    number: int


class Worked(msgspec.Struct, array_like=True, frozen=True):
    """In safe order: a subscription of a set has finished some events, gives back others that it has not begun, and
    wants so many; if none, it takes back what it wanted before."""

    key: str
    number: int
    turn: Number
    """Grows with every word of this subscription; a word that comes twice counts once."""
    wants: Annotated[int, msgspec.Meta(ge=0, le=SHARED_WAITING_MAX)] = 0
    done: Ids = []
    back: Ids = []


class Whole(msgspec.Struct, array_like=True, frozen=True):
    """An event with its body: a batch of its own."""

    again: bool
    batch: bytes


class Grant(msgspec.Struct, array_like=True, frozen=True):
    """Events for one subscription of a set, for what it wanted in that turn. ``whole``: those among them that it may
    not have."""

    member: int
    number: int
    turn: Number
    ids: Ids
    whole: Annotated[list[Whole], msgspec.Meta(max_length=SHARED_WAITING_MAX)] = []


class Known(msgspec.Struct, array_like=True, frozen=True):
    """An event that subscribers who came later do not have, and who holds it: a subscription, after that word of its
    own; or nobody, if ``member`` is 0."""

    member: int
    number: int
    turn: Number
    whole: Whole


class Dealt(msgspec.Struct, array_like=True, frozen=True):
    """In safe order: the dealer of a set, its subscription ``number``, hands out events, and tells what waits and is
    held to those who came later."""

    key: str
    number: int
    serial: Number
    """Grows with every word of this dealer; a word that comes twice counts once."""
    grants: Annotated[list[Grant], msgspec.Meta(max_length=SHARED_WAITING_MAX)]
    known: Annotated[list[Known], msgspec.Meta(max_length=SHARED_WAITING_MAX)] = []
    newest: tuple[int, int] = (0, 0)
    """The subscriber that joined last, as far as the dealer knew when it said this. ``known`` counts only if nobody has
    joined since: a newcomer does not know what was said before it came, and could not tell that it is out of date."""


WORDS = (
    Introduce,
    Introduction,
    Tell,
    Told,
    Wanted,
    Unwanted,
    Advertised,
    Joined,
    Left,
    Worked,
    Dealt,
    CountSubscribers,
    SubscribersCounted,
)
for word in WORDS:
    register(word, f"pluribus.topics.{word.__name__}")
