"""Scenarios: what the members of a world do while faults strike, and which promises must hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from ...core.errors import BadInput
from ..checkers import Checker
from ..history import History
from ..world import World


class Scenario(msgspec.Struct, frozen=True):
    name: str
    about: str
    stack: str
    play: Callable[[World, History], Awaitable[None]]
    checkers: dict[str, Checker]
    faults: tuple[str, ...]
    """Faults that a campaign of this scenario must have struck."""
    members_min: int = 2
    members_max: int = 6


def scenario(name: str) -> Scenario:
    """The scenario of that name, or a sentence that lists those there are."""
    from . import disk, flood, groups

    known = {found.name: found for found in (flood.FLOOD, disk.DISK, groups.GROUPS)}
    if name not in known:
        listed = "; ".join(f"{found.name} ({found.about})" for found in known.values())
        raise BadInput(f"there is no scenario {name!r}: use {listed}")
    return known[name]
