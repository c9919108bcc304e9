"""What is asked of keepers by those who look after them: how they stand, who votes, how to go on when most are gone."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.asking import MEMBERS_ONLY, Words
from .voting import Standing

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]


class Stand(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Of a member to a keeper: how do you stand? The answer is a ``Standing``."""


class Roll(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """How all keepers stand, as one member finds out; the answer is a list of ``Standing``."""


class Voting(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Have a keeper counted from now on, or not any more; the answer, nothing, comes when that is committed."""

    keeper: Number
    votes: bool


class Force(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Most voters are gone for good: go on with this keeper, or (0) with the most recent log; the answer is a
    ``Forced``."""

    keeper: Number = 0


class Lead(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Of a member to the keeper that is forced to go on as the only voter."""

    cluster: Number
    epoch: Whole


class Adopt(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Of a member to another keeper: follow the log that was forced, which has the rows below ``end`` of the old
    one."""

    old: Number
    cluster: Number
    epoch: Whole
    end: Whole


class Forced(msgspec.Struct, array_like=True, frozen=True):
    """The keeper that goes on, from which row, and who follows it; the others must get new stores."""

    keeper: str
    row: int
    follow: list[str]
    refused: list[str]
    """Those that were there and do not follow, and why."""


Operation = Stand | Roll | Voting | Force | Lead | Adopt
AMONG_MEMBERS = (Lead, Adopt)
"""What only members say to keepers."""

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
