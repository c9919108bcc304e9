"""Lines to machines from a client: durable ones at the keepers, those in memory at the client's member."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.errors import BadInput, NotPrimary, Unreachable
from ...core.ids import checked_name
from ...group.host import Machine
from ...group.host.requests import WORDS, InMemory, MachineRequest
from ..styles.style import Style
from .line import PAUSE_S, PAUSE_S_MAX, TRANSIENT, MachineLine, Way

if TYPE_CHECKING:
    from ..clients.bus import ClientBus

T = TypeVar("T")


class MemberWay:
    """To the copy in the memory of the client's member, which joins the group for it."""

    def __init__(self, bus: ClientBus, group: str, kind: str) -> None:
        self._bus = bus
        self._group = group
        self._kind = kind

    async def ask(self, request: MachineRequest, timeout: float | None = None) -> Any:
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        pause_s = PAUSE_S
        while True:
            try:
                async with asyncio.timeout_at(until):
                    raw = await self._bus.line.ask(InMemory(self._group, self._kind, request))
                    return WORDS.answer(type(request), raw)
            except TimeoutError:
                raise NotPrimary(f"the group did not answer in {timeout:g} s: ask again") from None
            except (*TRANSIENT, Unreachable):
                if self._bus.closed or (until is not None and loop.time() + pause_s > until):
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


class ClientMachines(Style):
    """What ``Machines`` is on a member."""

    closes = 60

    async def open(
        self,
        name: str,
        code: type[Machine],
        outcome: type[T],
        *,
        durable: bool = True,
        group: str | None = None,
        timeout: float | None = None,
    ) -> MachineLine[T]:
        """See ``Machines.open``."""
        checked_name(name, "the machine")
        if durable and group is not None:
            raise BadInput("group= is for machines in memory: all durable machines share the keepers' log")
        way: Way = self.bus.durable if durable else MemberWay(self.bus, group or name, code.kind)
        line: MachineLine[T] = MachineLine(name, way, outcome, durable)
        await line.open(code.kind, code.version, timeout)
        return line
