"""The way to the keepers from a client: everything is asked of its member, which asks a keeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...group.log import StateMachine
from ..styles.style import Style
from ..styles.topics.durable import Durable
from ..styles.topics.publisher import Ended

if TYPE_CHECKING:
    from .bus import ClientBus


class ClientKeeping(Style):
    """What ``Keeping`` is on a member, without a keeper of its own."""

    closes = 80
    keeper = None
    path = ""

    def __init__(self, bus: ClientBus) -> None:
        super().__init__(bus)
        self._line = bus.line
        self.durable = Durable(self, int(bus.me), bus.new_number, bus._wall)

    async def ask(self, request: Any) -> Any:
        """One attempt."""
        return await self._line.ask(request)

    def ask_now(self, put: Any, answered: Ended) -> bool:
        return False  # the keeper is elsewhere

    def machine_of(self, name: str) -> StateMachine | None:
        return None

    async def drain(self, timeout: float) -> None:
        await self.durable.drain(timeout)

    async def close(self) -> None:
        await self.durable.close()

    def abandon(self) -> None:
        self.durable.abandon()
