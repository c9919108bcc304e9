"""A host in the memory of a group's members: the machines of one group of the bus, as one member has them.

Every member that opens the group applies the same rows, and answers its own program from its own copy. The machines
live as long as one member with the state is in the primary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.errors import Closed, GroupMismatch, Refused
from ...group.channel import Channel
from ...group.host import Host, Machine
from ...group.host.space import LogExtents
from ...group.host.volatile import VolatileLog, VolatileSpace, VolatileTending
from ...group.safelog import SafeLog
from ..group.joining import new_number
from .desk import MachineDesk

if TYPE_CHECKING:
    from ..bus import Bus


class GroupHost:
    """``codes`` are the kinds of machines that may be in the group. ``start`` joins, ``ready`` waits for the state."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        codes: Mapping[str, type[Machine]],
        left: Callable[[GroupHost], None],
        space: type[LogExtents] = VolatileSpace,
    ) -> None:
        self.name = name
        self._left = left
        self._bus = bus
        clock = bus._stack.ports.clock
        self.safe = SafeLog(f"machines/{name}", bus._dispatch, new_number(bus._random))
        self.log = VolatileLog(self.safe, clock, bus._wall)
        self.host = self.log.host = Host(self.log, codes, space=space)
        self.tending = VolatileTending(self.host, self.log, clock, bus._wall, int(bus.me), self._members)
        self.desk = MachineDesk(self.host, self.log)
        self._waiters: list[asyncio.Future[None]] = []
        self._channel: Channel | None = None
        self.closed = False
        self.host.on_applied = self._applied
        self.safe.on_ready = self._wake
        self.safe.on_failed = self.leave

    def start(self) -> None:
        self._channel = self.safe.start()
        self.tending.start()

    def _members(self) -> Sequence[int]:
        """Of the group, while the primary has it and this member its state."""
        channel = self._channel
        if channel is None or self.closed or not self.safe.ready or self.safe.paused or channel.me not in channel.view:
            return ()
        return channel.view.members

    def _applied(self) -> None:
        self.tending.applied()
        self.desk.applied()

    async def ready(self) -> None:
        """Returns when the state is here. ``Refused`` says which code this member lacks."""
        while not self.safe.ready or self.closed:
            if self.log.halted:
                raise Refused(f"this member {self.log.halted}")
            channel = self._channel
            if channel is not None and channel.refused:
                raise GroupMismatch(f"the group of the machines {self.name!r} {channel.refused}")
            if self.closed:
                raise Closed(f"the machines {self.name!r} were left before their state was there: open them again")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        woken, self._waiters = self._waiters, []
        for waiter in woken:
            if not waiter.done():
                waiter.set_result(None)
        self.tending.applied()

    def leave(self) -> None:
        """Tell the others. What is under way here is uncertain."""
        if not self.closed:
            self.abandon()
            self.safe.close()
            self._left(self)

    def abandon(self) -> None:
        """As a crash would."""
        self.closed = True
        self.tending.stop()
        self.desk.close()
        self.host.bodies.close()
        self._wake()

    def validate(self) -> None:
        self.log.validate()
        self.safe.validate()
