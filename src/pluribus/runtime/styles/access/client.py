"""The access list from a client: its member asks for it, in the name of the client's user."""

from __future__ import annotations

from ....access import words
from ....access.words import Listed, Outcome
from ..style import Style

CHANGE_S = 30.0
"""A connection that breaks meanwhile is made anew, and the same change is asked for again."""


class ClientAccess(Style):
    """What ``AccessStyle`` is on a member."""

    async def change(self, command: words.Command, by: str) -> Outcome:
        durable = self.bus.durable
        found: Outcome = await durable.ask(words.Change(words.encode(command), durable.new_number()), CHANGE_S)
        return found

    async def listed(self) -> Listed:
        found: Listed = await self.bus.line.ask(words.Look())
        return found

    async def check(self, asked: words.Check) -> bool:
        found: bool = await self.bus.line.ask(asked)
        return found
