"""Spread on views: every way to spread under agreed views and groups, with joins, leaves and partitions in flight."""

from __future__ import annotations

from random import Random

from ...runtime.bus import VIEWS
from . import Scenario
from .groups import GROUPS, play

WAYS = (
    "by='unicast'",
    "by='tree'",
    "by='tree', k=3",
    "by='tree', proxy='first'",
    "by='pipeline'",
    "by='pipeline', degree=1",
    "by='gossip'",
    "by='auto'",
)


def stack(seed: int, members: int) -> str:
    way = Random(f"{seed}/way").choice(WAYS)
    parts = [part for part in VIEWS.split(" | ") if not part.startswith("spread")]
    parts.insert(parts.index("reliable"), f"spread({way})")
    return " | ".join(parts)


SPREAD_VIEWS = Scenario(
    "spread-views",
    "every way to spread under agreed views, with every fault",
    stack,
    play,
    GROUPS.checkers,
    GROUPS.faults,
    members_min=2,
    members_max=8,
)
