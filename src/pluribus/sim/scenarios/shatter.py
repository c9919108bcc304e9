"""Shatter: all members are cut off from each other at once, some die, and the others go on, with messages under way all
the time."""

from __future__ import annotations

import asyncio

from ...runtime.bus import VIEWS, Bus
from ..checkers.delivery import fifo, integrity, reached
from ..checkers.totals import excluded, reported, safe, survives, total
from ..checkers.views import converged, one_primary, sent_by_members, view_agreement, view_synchrony
from ..checkers.wholeness import alike_in_the_end, all_is_read, without_gaps
from ..machinery.history import History
from ..machinery.world import World
from . import Scenario
from .groups import MEDIA, NAMES, Player, settled

ROUNDS = 3
APART_S = 4.0
"""Seconds after which every member has noticed that it is alone."""
TOGETHER_S = 4.0
LOOK_S = 0.0003
LOOKS_MAX = 10_000
PROMISES = ("total", "total safe")


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}
    random = world.random
    promises = {NAMES[0]: "total safe", NAMES[1]: random.choice(PROMISES)}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, promises)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    for _ in range(ROUNDS):
        await asyncio.sleep(TOGETHER_S + random.random())
        await _until_busy(world, history)
        world.partition(*[[number] for number in range(len(world.hosts))])
        await asyncio.sleep(APART_S * random.random() if random.random() < 0.2 else APART_S)
        dead = random.sample(range(len(world.hosts)), random.randrange((len(world.hosts) + 1) // 2))
        for number in dead:
            world.crash(number)
        world.heal()
        await asyncio.sleep(TOGETHER_S)
        for number in dead:
            await begin(number, await world.restart(number))
    await settled(world, history, players)


async def _until_busy(world: World, history: History) -> None:
    """Wait for a moment just after a delivery, when one member has delivered a message that others have not."""
    for _ in range(LOOKS_MAX):
        before = len(history)
        await asyncio.sleep(LOOK_S)
        if any(h.what == "deliver" for h in history.happenings[before:]):
            return


SHATTER = Scenario(
    "shatter",
    "all members lose each other at once, again and again",
    VIEWS,
    play,
    {
        "integrity": integrity,
        "fifo": fifo,
        "total": total,
        "safe": safe,
        "survives": survives,
        "reported": reported,
        "excluded": excluded,
        "view_agreement": view_agreement,
        "view_synchrony": view_synchrony,
        "sent_by_members": sent_by_members,
        "one_primary": one_primary,
        "converged": converged,
        "reached": reached,
        "without_gaps": without_gaps,
        "alike_in_the_end": alike_in_the_end,
        "all_is_read": all_is_read,
    },
    ("crash", "restart", "partition", "heal", "cut"),
    members_min=3,
    members_max=5,
    media=MEDIA,
    promises=PROMISES,
)
