"""Waking: members are paused, most often the eldest, and go on with the datagrams in their buffers that came meanwhile.

No datagram is lost, and no member is cut off. So the deliveries of a member must be a prefix of the deliveries of the
members that go on, whether it was excluded or not: only the paused member itself could cause a difference.
"""

from __future__ import annotations

import asyncio

from ...runtime.bus import VIEWS, Bus
from ..checkers.delivery import fifo, integrity, reached
from ..checkers.totals import as_those_who_went_on, excluded, reported, safe, survives, total
from ..checkers.views import converged, one_primary, sent_by_members, view_agreement, view_synchrony
from ..checkers.wholeness import alike_in_the_end, all_is_read, without_gaps
from ..machinery.history import History
from ..machinery.world import World
from . import Scenario
from .groups import MEDIA, NAMES, Player, settled

ROUNDS = 3
TOGETHER_S = 1.5
SHORT_S, LONG_S = 1.2, 5.0
"""Seconds of pauses: members suspect another one that is silent for 1.3 s, so most pauses are long enough for that, and
some are not."""
PROMISES = ("total", "total safe")


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}
    random = world.random
    promises = {NAMES[0]: "total", NAMES[1]: random.choice(PROMISES)}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, promises)

    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    for _ in range(ROUNDS):
        await asyncio.sleep(TOGETHER_S + random.random())
        numbers = range(len(world.hosts))
        first = _eldest(world) if random.random() < 0.7 else random.choice(numbers)
        more = random.sample(numbers, 1) if len(numbers) > 3 and random.random() < 0.3 else []
        seconds = SHORT_S + (LONG_S - SHORT_S) * random.random() if random.random() < 0.8 else SHORT_S * random.random()
        for number in sorted({first, *more}):
            world.pause(number, seconds)
        await asyncio.sleep(seconds)
    await settled(world, history, players)


def _eldest(world: World) -> int:
    """The eldest member of the primary, if there is one: it decides the order of deliveries."""
    eldest = next((bus._dispatch.view.members[0] for bus in world.buses if bus.primary), 0)
    return next((n for n, host in enumerate(world.hosts) if host.bus is not None and host.bus.me == eldest), 0)


WAKING = Scenario(
    "waking",
    "members stand still, most often the eldest, and wake with what came meanwhile in their buffers",
    VIEWS,
    play,
    {
        "integrity": integrity,
        "fifo": fifo,
        "total": total,
        "as_those_who_went_on": as_those_who_went_on,
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
    ("pause",),
    members_min=3,
    members_max=5,
    media=MEDIA,
    promises=PROMISES,
)
