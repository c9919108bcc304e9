"""Questions of a client to its member about spaces of the kinds *views* and *partitioned*, of which only members are
part.

The member takes part in the space for its clients. The member keeps the tuples that a client takes until the client
acknowledges them (``VisitSettle``); if its connection breaks before, the tuples are written again. So a take may be
repeated after a break, and no tuple is lost with a client. A write may not be repeated: after a break it is
``Uncertain``. A registration that the client did not learn of ends; one that it has stays, and the client goes on with
it at another host.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from ..wire.asking import ANY, WAIT_S_MAX, Need, Words
from .templates import Template
from .values import Item
from .watching import Watched
from .words import FOR_EVER_US, HAND_BACK_BYTES_MAX, MANY_MAX, Microseconds, Number

Seconds = Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX)]
Items = Annotated[list[Item], msgspec.Meta(max_length=MANY_MAX)]
Name = tuple[Number, Number]
"""The name of a tuple: the worker that wrote it, and the number that it has there."""


class SpacePlace(msgspec.Struct, frozen=True, array_like=True):
    """A space as it was opened."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    kind: str
    copies: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    key: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0


class VisitOpen(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Take part in the space."""

    place: SpacePlace


class VisitWrite(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The answer has the names of the tuples."""

    place: SpacePlace
    items: Items
    lease_us: Microseconds = FOR_EVER_US


class VisitTake(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Take the matches that are there within ``wait_s``. Without ``write`` it is kept under the number ``token`` until
    ``VisitSettle``; with it the match is replaced by it, at once."""

    place: SpacePlace
    token: Number
    template: Template
    most: Annotated[int, msgspec.Meta(ge=1, le=MANY_MAX)] = 1
    wait_s: Seconds = 0.0
    if_exists: bool = False
    write: Annotated[list[Item], msgspec.Meta(max_length=1)] = []
    lease_us: Microseconds = FOR_EVER_US


class VisitSettle(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The client has the taken tuples; or its caller has given up, and they are written again. The answer: true if they
    were still kept for the client."""

    token: Number
    has: bool


class VisitRead(msgspec.Struct, frozen=True, array_like=True, tag=5):
    place: SpacePlace
    template: Template
    wait_s: Seconds = 0.0
    if_exists: bool = False


class VisitAll(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """All that match."""

    place: SpacePlace
    template: Template


class VisitCount(msgspec.Struct, frozen=True, array_like=True, tag=7):
    place: SpacePlace
    template: Template


class VisitRelet(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Renew or end the lease of a tuple. The answer is its new name."""

    place: SpacePlace
    name: Name
    item: Item
    lease_us: Microseconds = FOR_EVER_US
    ends: bool = False


class VisitFlush(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Answered when every write and take of the member is done where the tuples are kept."""

    place: SpacePlace


class VisitNotify(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Make a registration. It ends with the connection, unless the client says that it has the answer
    (``VisitSettle``), which has the name of the registration."""

    place: SpacePlace
    token: Number
    template: Template
    lease_us: Microseconds = FOR_EVER_US
    hand_back: Annotated[bytes, msgspec.Meta(max_length=HAND_BACK_BYTES_MAX)] = b""


class VisitFetch(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Acknowledge events of a registration, and wait for the next ones; with ``probe`` do not wait."""

    place: SpacePlace
    name: Name
    seen: Annotated[list[Name], msgspec.Meta(max_length=MANY_MAX)] = []
    missed: Number = 0
    wait_s: Seconds = 0.0
    probe: bool = False


class VisitRenew(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Renew or end the lease of a registration. The answer is the lease that was granted; 0: for ever."""

    place: SpacePlace
    name: Name
    lease_us: Microseconds = FOR_EVER_US
    ends: bool = False


class VisitWritten(msgspec.Struct, frozen=True, array_like=True):
    names: list[Name]
    lease_us: int


def _needs(verb: str) -> Any:
    return lambda asked: [("space", asked.place.name, verb)]


def _takes(asked: VisitTake) -> Iterable[Need]:
    name = asked.place.name
    return [("space", name, "take"), *([("space", name, "write")] if asked.write else [])]


WORDS = Words(
    "spaces",
    {
        VisitOpen: None,
        VisitWrite: VisitWritten,
        VisitTake: list[Item],
        VisitSettle: bool,
        VisitRead: Item | None,
        VisitAll: list[Item],
        VisitCount: int,
        VisitRelet: VisitWritten,
        VisitFlush: None,
        VisitNotify: VisitWritten,
        VisitFetch: Watched,
        VisitRenew: int,
    },
    rights={
        VisitOpen: _needs(ANY),
        VisitWrite: _needs("write"),
        VisitTake: _takes,
        VisitSettle: "it is about what the client itself has just taken",
        VisitRead: _needs("read"),
        VisitAll: _needs("read"),
        VisitCount: _needs("read"),
        VisitRelet: _needs("write"),
        VisitFlush: _needs(ANY),
        VisitNotify: _needs("read"),
        VisitFetch: _needs("read"),
        VisitRenew: _needs("read"),
    },
)
