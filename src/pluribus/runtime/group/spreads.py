"""``connect(spread=)``: how a message gets to all members, by the names that users know."""

from __future__ import annotations

from ...core.errors import BadInput

SPREADS = {
    "auto": "auto",
    "multicast": "multicast",
    "one-by-one": "unicast",
    "tree": "tree",
    "pipelined": "pipeline",
    "gossip": "gossip",
}
"""The way by its name, as the layer calls it."""
LAYER, ABOVE = "spread", "reliable"


def spreading(specification: str, spread: str | None) -> str:
    """The same stack with the layer ``spread``, directly below reliability, which then does not ask again for frames
    that the layer itself will bring. None: the stack as it is, where the engine sends to all."""
    if spread is None:
        return specification
    if spread not in SPREADS:
        raise BadInput(f"spread={spread!r} is no way to spread: use {', '.join(SPREADS)}")
    parts = [part.strip() for part in specification.split("|")]
    names = [part.partition("(")[0] for part in parts]
    if LAYER in names:
        raise BadInput(f"spread={spread!r} is said twice: the stack has {parts[names.index(LAYER)]!r}")
    if ABOVE not in names:
        raise BadInput(f"spread={spread!r} needs reliability to follow it: use stack='views'")
    at = names.index(ABOVE)
    return " | ".join([*parts[:at], f"{LAYER}(by={SPREADS[spread]!r})", *parts[at:]])
