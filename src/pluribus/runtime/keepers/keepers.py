"""The keepers of a bus, for people who look after them: ``bus.keepers``, and ``pluribus keepers`` on the command line.

``ls`` and ``backup`` change nothing. ``add``, ``remove`` and ``replace`` lose nothing, also if a keeper crashes
meanwhile; a change that would stop the keepers is refused. ``force`` is the last resort, and can lose acknowledged
events.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from ...core.errors import BadInput, Refused
from ...group.keepers.operations import Force, Forced, Roll, Voting
from ...group.keepers.voting import Standing, chosen, numbered
from .backups import Backup, Restored, back_up, restore

if TYPE_CHECKING:
    from ..styles.topics.durable import Durable
    from .keeping import Keeping

ONCE_S = 0.0
"""Asked once: nobody repeats by himself what was forced."""
COME_S = 1.0
LOOK_S = 0.1


class Keepers:
    """Keepers are named by their number, by the beginning of it, or by the name of their member, as ``ls`` shows
    them."""

    def __init__(self, durable: Durable, keeping: Keeping | None = None) -> None:
        self._durable = durable
        self._keeping = keeping

    async def ls(self) -> list[Standing]:
        """The state of every keeper, the leader first. A voter that does not answer has ``here=False``."""
        found: list[Standing] = await self._durable.ask(Roll())
        return found

    async def add(self, keeper: str) -> None:
        """Make a keeper that is there a voter, when it has caught up. ``Refused`` says how far it is, or why the change
        would stop the others."""
        await self._vote((await self._chosen(keeper))[0], True)

    async def remove(self, keeper: str) -> None:
        """Remove a voter's vote, whether it is dead or alive; its copy of the log stays. ``Refused`` if the remaining
        voters could not go on. A keeper that was started with ``votes`` asks for its vote again after a restart."""
        await self._vote((await self._chosen(keeper))[0], False)

    async def replace(self, old: str, new: str) -> None:
        """The new keeper votes in the place of the old one: first it catches up and is added, then the old one is
        removed. If something fails in between, both vote; call it again."""
        gone, there = await self._chosen(old, new)
        if gone == there:
            raise BadInput(f"keeper {gone} cannot replace itself: name another, which `pluribus keep` starts")
        if not any(one.keeper == gone and one.votes for one in await self.ls()):
            raise Refused(f"keeper {gone} has no vote: add the new one")
        await self._vote(there, True)
        await self._vote(gone, False)

    async def force(self, keeper: str = "") -> Forced:
        """The last resort, when most voters are gone for good. The keeper with the most recent log, or the named one,
        becomes the only voter of a log with a new number; the other keepers that are there follow it and become voters
        one after another.

        Acknowledged events that only the lost voters had are lost. Never start the old voters with their old stores
        again: a majority of them would go on with the old log.
        """
        wanted = numbered((await self._chosen(keeper))[0]) if keeper else 0
        forced: Forced = await self._durable.ask(Force(wanted), ONCE_S)
        return forced

    async def backup(self, path: str | os.PathLike[str]) -> Backup:
        """Copy the store of this member's keeper to a file, while it runs. The copy is no store: ``restore``, or
        ``pluribus keepers restore``, makes one of it, for a new keeper without a vote."""
        if self._keeping is None or not self._keeping.path:
            raise BadInput(
                "this process keeps nothing: back up where the keeper is, `pluribus keepers backup STORE PATH`"
            )
        return await asyncio.to_thread(back_up, self._keeping.path, os.fspath(path))

    @staticmethod
    def restore(backup: str | os.PathLike[str], store: str | os.PathLike[str]) -> Restored:
        """Make a store of a backup, for a new keeper: start it with this store, and without a vote. It blocks while it
        copies. ``Damaged`` if too much of the backup cannot be read."""
        return restore(os.fspath(backup), os.fspath(store))

    async def _chosen(self, *keepers: str) -> list[str]:
        """Their numbers. A member that has just come may not have said yet that it keeps something."""
        loop = asyncio.get_running_loop()
        until = loop.time() + COME_S
        while True:
            roll = await self.ls()
            try:
                return [chosen(keeper, roll) for keeper in keepers]
            except BadInput:
                if loop.time() > until:
                    raise
            await asyncio.sleep(LOOK_S)

    async def _vote(self, keeper: str, votes: bool) -> None:
        await self._durable.ask(Voting(numbered(keeper), votes))
