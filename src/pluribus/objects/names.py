"""Ids and aliases. An id is 128 random bits, so it is unique for ever, and an object may take its own again after a
restart; an alias is any other name."""

from __future__ import annotations

import re

from ..core.errors import BadInput
from ..core.ids import checked_name
from ..core.ports import Random

PREFIX = "id:"
_is_id = re.compile(r"id:[0-9a-f]{32}").fullmatch


def new_id(random: Random) -> str:
    return f"{PREFIX}{random.getrandbits(128):032x}"


def is_id(name: str) -> bool:
    """True if a receiver is named by its id; every other name is an alias."""
    return name.startswith(PREFIX)


def checked_id(given: object) -> str:
    if not (isinstance(given, str) and _is_id(given)):
        raise BadInput(f"{given!r} is no id of an object: give one that an object had, or none")
    return given


def checked_alias(alias: str) -> str:
    if is_id(checked_name(alias, "the alias")):
        raise BadInput(f"the alias {alias!r} begins as ids do: choose another beginning than {PREFIX!r}")
    return alias
