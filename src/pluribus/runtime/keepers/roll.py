"""How all keepers of a bus stand, as one member finds out by asking each; and forcing them to go on, when most are
gone.

Both are done by a member, because members hear who keeps what. Clients ask their member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...core.errors import PluribusError
from ...group.keepers.operations import Adopt, Forced, Lead, Operation, Stand
from ...group.keepers.voting import Standing, most_recent, named
from .keeper import BusKeeper, Meeting

ROLL_S = 1.5
"""For keepers that are there to say so: a member that just came does not know them yet."""
ANSWER_S = 2.0
"""For one of them to answer."""
LOOK_S = 0.05

log = logging.getLogger("pluribus")


async def call_the_roll(meeting: Meeting, own: BusKeeper | None, now: Callable[[], float]) -> list[Standing]:
    """Those that answer, and voters that do not; the leader first."""
    until = now() + ROLL_S
    while True:
        answers = await asyncio.gather(*(_stand(meeting, member) for member in list(meeting.keepers)))
        found = [one for one in answers if one is not None]
        if own is not None:
            found.append(await own.desk.ask(Stand()))
        here = {one.keeper for one in found}
        latest = max(found, key=lambda one: (bool(one.leader), one.version, one.epoch), default=Standing(""))
        absent = [
            Standing(keeper, votes=True, cluster=latest.cluster) for keeper in latest.voters if keeper not in here
        ]
        if (found and not absent) or now() > until:
            order = sorted(found, key=lambda one: (one.role != "leader", not one.votes, one.keeper))
            return [*order, *absent]
        await asyncio.sleep(LOOK_S)


async def _stand(meeting: Meeting, member: int) -> Standing | None:
    with suppress(PluribusError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            standing: Standing = await meeting.ask(member, Stand())
            return standing
    return None


async def force(meeting: Meeting, own: BusKeeper | None, roll: list[Standing], wanted: int, cluster: int) -> Forced:
    """Make one keeper the only voter, and have the others that are there follow it."""
    best = most_recent(roll, named(wanted) if wanted else "")
    epoch = max(one.epoch for one in roll) + 1
    members = {named(here.keeper): member for member, here in meeting.keepers.items()}

    async def ask(keeper: str, request: Operation) -> Any:
        if own is not None and named(own.keeper.id) == keeper:
            return await own.desk.ask(request)
        return await meeting.ask(members[keeper], request)

    log.warning(
        "FORCED: keeper %s goes on as the only voter, from row %d, in place of %s", best.keeper, best.end, best.voters
    )
    await ask(best.keeper, Lead(cluster, epoch))
    follow, refused = [], []
    for one in roll:
        if one.here and one.keeper != best.keeper and one.cluster:
            try:
                await ask(one.keeper, Adopt(best.cluster, cluster, epoch, best.end))
                follow.append(one.keeper)
            except (PluribusError, KeyError) as error:
                refused.append(f"{one.keeper}: {error}")
    return Forced(best.keeper, best.end, follow, refused)
