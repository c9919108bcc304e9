"""What Spark does in the dealing room: the backbone of ``examples/dealing_backbone.toml``. Wheels carry it beside this
file."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

NAME = "dealing_backbone.toml"
TURNS = "turns"
"""The answer that dealers are alerted with."""
SHOWN = ("averages", TURNS)
"""The answers that the room shows. The others would take the machine from those who play here."""


def path() -> Path:
    """The configuration, with its table of stocks beside it."""
    beside = Path(__file__).with_name(NAME)
    return beside if beside.exists() else Path(__file__).parents[4] / "examples" / NAME


@cache
def turn() -> str:
    """The pattern of a turn, as the backbone looks for it. Providers and dealers may run it in their own process."""
    golds = tomllib.loads(path().read_text(encoding="utf-8"))["gold"]
    return str(next(gold["pattern"] for gold in golds if gold["name"] == TURNS))
