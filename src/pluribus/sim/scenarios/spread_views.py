"""Spread on views: every way to spread under agreed views and groups, with joins, leaves and partitions in flight."""

from __future__ import annotations

from random import Random

from ...runtime.bus import VIEWS
from ..checkers.accounts import Accounts, accounts
from ..machinery.history import History
from ..machinery.world import World
from . import Scenario
from .groups import GROUPS
from .groups import play as play_groups

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
    random = Random(f"{seed}/way")
    way, sum_above = random.choice(WAYS), random.choice((1, 3, 16))
    parts = [part for part in VIEWS.split(" | ") if not part.startswith("spread")]
    at = parts.index("reliable")
    parts[at : at + 1] = [f"spread({way})", f"reliable(sum_above={sum_above})"]
    return " | ".join(parts)


async def play(world: World, history: History) -> None:
    watch = Accounts(world, history)
    await play_groups(world, history)
    watch.close()


SPREAD_VIEWS = Scenario(
    "spread-views",
    "every way to spread under agreed views, with every fault",
    stack,
    play,
    {**GROUPS.checkers, "accounts": accounts},
    GROUPS.faults,
    members_min=2,
    members_max=8,
)
