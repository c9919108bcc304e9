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
    """From a newcomer, or from a member without neighbours, to everybody that it reaches: let me in."""

    place: Place
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)]


class Walk(Header, tag=116):
    """A pointer to a newcomer on a random walk through the crowd; the member where it stops takes it as a neighbour."""

    newcomer: Number
    place: Place
    steps: Annotated[int, msgspec.Meta(ge=0, le=STEPS_MAX)]


class Meet(Header, tag=117):
    """To a newcomer: neighbours for you."""

    pointers: Pointers


class Swap(Header, tag=118):
    """Exchange of partial views: I send a sample of my neighbours and expect one of yours."""

    pointers: Pointers
    answer: bool


class Left(Header, tag=119):
    """The sender leaves for good."""


class Say(Header, tag=120):
    """On a frame for everybody: the member that sent the message, and the message's number."""

    origin: Number
    number: Position
    low: Position
    """The oldest message that the origin still kept when it sent this one; earlier ones cannot be had any more."""
    spent: bool
    """It answers a digest, and is not passed on."""


class Story(msgspec.Struct, array_like=True):
    """One origin's messages: all before ``next`` are here, and those before ``low`` cannot be had any more."""

    origin: Number
    low: Position
    next: Position


class Stories(Header, tag=121):
    """A digest: what the sender has from all origins that sent something lately."""

    stories: Annotated[list[Story], msgspec.Meta(max_length=STORIES_PER_WORD_MAX)]
    answer: bool
