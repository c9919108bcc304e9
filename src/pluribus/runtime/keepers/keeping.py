"""Durable topics on a member of a bus: its keeper, if it has a store, and its way to the others' keepers.

Made when the bus first needs it. A member without a store asks a keeper of the bus; one with a store asks its own, as
soon as that belongs to a log.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import BadInput, NoKeeper, NoMembers, Refused
from ...group.host.requests import InMemory
from ...group.keepers.operations import AMONG_MEMBERS, Force, Forced, Roll
from ...group.log import StateMachine
from ...pubsub.durable.batch import checked
from ...pubsub.durable.requests import Put
from ..machines.kinds import style_machines_loaded
from ..styles.style import Asker, Style
from ..styles.topics.durable import Durable
from ..styles.topics.publisher import Ended
from .keeper import NOTHING, BusKeeper, Meeting, opened_store
from .roll import call_the_roll, force
from .store_writer import StoreWriter

if TYPE_CHECKING:
    from ..bus import Bus

GROUP = "keepers"
LOOK_S = 2.0
"""Seconds to look for a keeper before ``NoKeeper``: counted from the start of the bus if none was ever heard of; else
from when the keepers went away, or while they have no log yet."""
HEAR_S = 0.3
"""Seconds in which keepers say what they are, once this member has joined the group for durable topics."""


class Keeping(Style):
    """``durable`` is what applications use; ``ask`` asks keepers."""

    closes = 80
    on_clients = "pluribus.runtime.clients.keeping:ClientKeeping"

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        if "views" not in bus._provided:
            raise BadInput("durable topics need agreed views: connect with stack='views'")
        self._bus = bus
        self._meeting: asyncio.Future[Meeting] | None = None
        self._asked: int | None = None
        self._keeps = False
        self._heard_of_keepers = False
        self._store: StoreWriter | None = None
        self.path = ""
        """Where the own keeper's store is."""
        self.keeper: BusKeeper | None = None
        self.durable = Durable(self, int(bus.me), lambda: bus._random.getrandbits(62) + 1, bus._wall)

    async def keep(
        self,
        path: str | os.PathLike[str],
        *,
        votes: bool = False,
        voters: int = 1,
        fresh: bool = False,
        machines: Mapping[str, Callable[[], StateMachine]] | None = None,
    ) -> BusKeeper:
        """Become a keeper, with this store and with the code of these machines. ``fresh``: if the store is gone
        although something was kept in it, another may begin in its place."""
        self._keeps = True
        await style_machines_loaded()
        meeting = await self.meeting()
        self.path = os.fspath(path)
        store = self._store = opened_store(os.fspath(path), fresh=fresh)
        store.alone = self._keeps_alone
        return await self.keep_in(meeting, store, votes=votes, voters=voters, machines=machines)

    def told(self) -> dict[str, dict[str, Any]]:
        keeper = self.keeper
        return {} if keeper is None else keeper.told()

    def _keeps_alone(self) -> bool:
        """Whether no other keeper writes to its disk at the same time."""
        return self.keeper is not None and len(self.keeper.keeper.voters) == 1

    async def keep_in(self, meeting: Meeting, store: Any, **options: Any) -> BusKeeper:
        self.keeper = BusKeeper(self._bus, meeting, store, **options)
        await self.keeper.start()
        return self.keeper

    async def meeting(self) -> Meeting:
        """The group of those who use durable topics, joined."""
        if self._meeting is None:
            self._meeting = asyncio.ensure_future(self._join())
        try:
            return await asyncio.shield(self._meeting)
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        if self._meeting is not None and self._meeting.done():
            self._meeting = None

    async def _join(self) -> Meeting:
        meeting = Meeting(await self._bus.group(GROUP, own=False))
        if not self._keeps:
            meeting.say(NOTHING)
        return meeting

    async def handle(self, request: Any, asker: Asker) -> Any:
        """Answer questions of clients and members to keepers."""
        if asker.client and isinstance(request, AMONG_MEMBERS):
            raise Refused("that is for members to say to keepers: use force")
        if isinstance(request, InMemory):
            from ..machines.machines import Machines

            return await self.bus._style(Machines).in_memory(request)
        if isinstance(request, Put):
            for packed in request.batches:
                checked(packed)
        return await self.ask(request)

    async def ask(self, request: Any) -> Any:
        """Ask this member's keeper; else one that was asked before; else any."""
        if isinstance(request, Roll):
            return await call_the_roll(await self.meeting(), self.keeper, self._bus._now)
        if isinstance(request, Force):
            return await self._force(request.keeper)
        keeper = self.keeper
        if keeper is None or not keeper.ready:
            meeting = await self.meeting()
            if self._asked not in meeting.keepers:
                self._asked = await self._found(meeting)
            keeper = self.keeper  # there may be one by now
        if keeper is not None and keeper.ready:
            if isinstance(request, Put):  # packed in this process, so there is nothing to check
                return await keeper.desk.of_topics.submit(request.batches)
            return await keeper.desk.ask(request)
        assert self._asked is not None
        asked = self._asked
        try:
            return await meeting.ask(asked, request)
        except Exception:
            if self._asked == asked:  # another time another one
                self._asked = None
                others = [member for member in meeting.keepers if member != asked]
                if others:
                    self._asked = others[self._bus._random.randrange(0, len(others))]
            raise

    async def _force(self, wanted: int) -> Forced:
        roll = await self.ask(Roll())
        return await force(await self.meeting(), self.keeper, roll, wanted, self._bus._random.getrandbits(62) + 1)

    def ask_now(self, put: Put, answered: Ended) -> bool:
        keeper = self.keeper
        if keeper is None or not keeper.ready:
            return False
        keeper.desk.of_topics.submit_now(put.batches, answered)
        return True

    def machine_of(self, name: str) -> StateMachine | None:
        """A user's machine, as the keeper of this process has it."""
        return None if self.keeper is None else self.keeper.desk.machine_of(name)

    async def _found(self, meeting: Meeting) -> int | None:
        """The eldest keeper that belongs to a log; None if this member's own keeper does by now."""
        now = self._bus._now()
        until = now + LOOK_S
        soon = max(self._bus._opened_at + LOOK_S, now + HEAR_S)
        while True:
            self._heard_of_keepers = self._heard_of_keepers or self._keeps or bool(meeting.keepers)
            logged = [member for member in meeting.group.view.members if _logged(meeting, member)]
            if logged or (self.keeper is not None and self.keeper.ready):
                return logged[0] if logged else None
            if not self._heard_of_keepers and self._bus._now() > soon:
                raise NoKeeper(
                    "no keeper is on this bus: start `pluribus keep --store PATH`, or connect with store=; "
                    "publish(..., timeout=60) waits for one"
                )
            if self._bus._now() > until:
                raise NoMembers(
                    "no keeper of this bus has a log now: start those that are away, or as many as were asked for, "
                    "with `pluribus keep --store PATH`"
                )
            await asyncio.sleep(0.02)

    async def drain(self, timeout: float) -> None:
        await self.durable.drain(timeout)

    async def close(self) -> None:
        """Close; the store is released even if something fails on the way, or is cancelled."""
        try:
            await self.durable.close()
            if self.keeper is not None:
                await self.keeper.close()
            if (meeting := self._joined()) is not None:
                await meeting.close()
        finally:
            self.abandon()
            if self._store is not None:
                self._store.close()

    def abandon(self) -> None:
        self.durable.abandon()
        if self.keeper is not None:
            self.keeper.abandon()
        if (meeting := self._joined()) is not None:
            meeting.abandon()

    def _joined(self) -> Meeting | None:
        """The meeting, if this member is in it."""
        meeting = self._meeting
        if meeting is None or not meeting.done() or meeting.cancelled() or meeting.exception() is not None:
            return None
        return meeting.result()


def _logged(meeting: Meeting, member: int) -> bool:
    here = meeting.keepers.get(member)
    return here is not None and here.logged
