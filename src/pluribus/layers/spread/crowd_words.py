"""The words of a crowd on the wire. Members are named by their identities: nobody has a list."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...core.frame import Header, Number, Position
from ...core.limits import HOST_CHARS_MAX

POINTERS_PER_WORD_MAX = 64
STORIES_PER_WORD_MAX = 500
STEPS_MAX = 16

Host = Annotated[str, msgspec.Meta(max_length=HOST_CHARS_MAX)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Place = tuple[Host, Port]
Age = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
Pointers = Annotated[list[tuple[Number, Place, Age]], msgspec.Meta(max_length=POINTERS_PER_WORD_MAX)]


class Enter(Header, tag=115):
    """A newcomer, or somebody who lost all neighbours, asks whoever it reaches to be let in."""

    place: Place
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)]


class Walk(Header, tag=116):
    """A pointer to a newcomer on its way through the crowd; where it stops, somebody has a new neighbour."""

    newcomer: Number
    place: Place
    steps: Annotated[int, msgspec.Meta(ge=0, le=STEPS_MAX)]


class Meet(Header, tag=117):
    """To a newcomer: neighbours for you."""

    pointers: Pointers


class Swap(Header, tag=118):
    """Some neighbours of mine for some of yours."""

    pointers: Pointers
    answer: bool


class Left(Header, tag=119):
    """The sender leaves for good."""


class Say(Header, tag=120):
    """On a frame for everybody: which message of which member it is."""

    origin: Number
    number: Position
    low: Position
    """The oldest message that the origin still kept when it sent this one: what is before it, nobody has any more."""
    spent: bool
    """It answers a digest: nobody passes it on."""


class Story(msgspec.Struct, array_like=True):
    """One member's messages: none before ``next`` is missing, and those before ``low`` nobody has any more."""

    origin: Number
    low: Position
    next: Position


class Stories(Header, tag=121):
    """A digest: what the sender has, of all members that spoke lately."""

    stories: Annotated[list[Story], msgspec.Meta(max_length=STORIES_PER_WORD_MAX)]
    answer: bool
