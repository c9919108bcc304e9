"""A bridge: an object on one bus that stands for the objects of an alias on another.

Messages to it are sent on, and their answers come back. The two buses may have different engines, secrets and stacks.
Where bridges lead in a circle, a message is refused after ``BRIDGES_MAX`` of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput
from ....objects.handlers import handles
from ....objects.messages import ObjectMessage, Said, token_of
from ....wire.kqml import Kqml, Word

if TYPE_CHECKING:
    from .face import ObjectsFace

BRIDGES_MAX = 8
_OF_ONE_BUS = ("sender", "receiver", "reply-with", "in-reply-to", "sender_unicast_address")


class Bridge:
    def __init__(self, there: ObjectsFace, alias: str) -> None:
        self._there = there
        self._alias = alias
        self.passed = 0

    @handles("subscribe", "discard")
    async def refuse(self, message: Kqml) -> None:
        raise BadInput("a subscription does not cross a bridge: subscribe on the bus of the object")

    @handles("broadcast")
    async def broadcast(self, message: Kqml) -> Any:
        """All objects on the other side. If answers are wanted, the first of them is the bridge's."""
        self.passed += 1
        onward = self._onward(message)
        if not token_of(message):
            await self._there.communicator.broadcast(self._alias, onward)
            return None
        answers = await self._there.communicator.ask_all(self._alias, onward)
        return _back(answers[0]) if answers else None

    async def say(self, message: Said) -> Any:
        self.passed += 1
        communicator = self._there.communicator
        if isinstance(message, ObjectMessage):
            if message.reply_with:
                return _back(await communicator.ask(self._alias, ObjectMessage(message.body)))
            await communicator.send_object(self._alias, message.body)
            return None
        onward = self._onward(message)
        if token_of(message):
            return _back(await communicator.ask(self._alias, onward))
        await communicator.send(self._alias, onward)
        return None

    def _onward(self, message: Kqml) -> Kqml:
        crossed = message.get("bridges", "0")
        count = int(crossed) if isinstance(crossed, str) and crossed.isdecimal() else BRIDGES_MAX
        if count >= BRIDGES_MAX:
            raise BadInput(
                f"a message to {self._alias!r} crossed {count} bridges: they lead in a circle, take one away"
            )
        kept = {name: value for name, value in message.parameters.items() if name not in _OF_ONE_BUS}
        return Kqml(message.performative, {**kept, "bridges": Word(str(count + 1))})


def _back(answer: Said) -> Any:
    """An answer from the other side as the bridge's own."""
    if isinstance(answer, ObjectMessage):
        return ObjectMessage(answer.body)
    kept = {name: value for name, value in answer.parameters.items() if name not in _OF_ONE_BUS}
    return Kqml(answer.performative, kept)
