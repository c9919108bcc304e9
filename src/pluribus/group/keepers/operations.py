"""Questions to keepers from people who look after them: their state, who votes, how to go on when most are gone."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.asking import MEMBERS_ONLY, Words
from .voting import Standing

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]


class Stand(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """From a member to a keeper: what is your state? The answer is a ``Standing``."""


class Roll(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The state of all keepers, as one member finds it; the answer is a list of ``Standing``."""


class Voting(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Let a keeper vote from now on, or not any more; the answer is empty and comes when that is committed."""

    keeper: Number
    votes: bool


class Force(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Most voters are gone for good: go on with this keeper, or with the most recent log if it is 0. The answer is a
    ``Forced``."""

    keeper: Number = 0


class Lead(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """From a member to the keeper that is to go on as the only voter."""

    cluster: Number
    epoch: Whole


class Adopt(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """From a member to another keeper: follow the log that was forced, which has the rows of the old log below
    ``end``."""

    old: Number
    cluster: Number
    epoch: Whole
    end: Whole


class Forced(msgspec.Struct, array_like=True, frozen=True):
    """The keeper that goes on, from which row, and the keepers that follow it; the others need new stores."""

    keeper: str
    row: int
    follow: list[str]
    refused: list[str]
    """Keepers that were there and do not follow, and why."""


Operation = Stand | Roll | Voting | Force | Lead | Adopt
AMONG_MEMBERS = (Lead, Adopt)
"""Questions that only members of the bus may ask keepers."""

WORDS = Words(
    "keepers",
    {Stand: Standing, Roll: list[Standing], Voting: None, Force: Forced, Lead: None, Adopt: None},
    rights={
        Stand: lambda asked: [("keepers", "log", "browse")],
        Roll: lambda asked: [("keepers", "log", "browse")],
        Voting: lambda asked: [("keepers", "log", "manage")],
        Force: lambda asked: [("keepers", "log", "manage")],
        Lead: lambda asked: [MEMBERS_ONLY],
        Adopt: lambda asked: [MEMBERS_ONLY],
    },
)
