"""A bridge: an object on one bus that stands for the objects of an alias on another.

Messages and calls to the bridge are forwarded, and their answers come back; its subscribers get the updates of the
object on the other side. The two buses may have different engines, secrets and stacks. Where bridges lead in a circle,
a message or a call is refused after ``BRIDGES_MAX`` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput, NoObject, Overflow, PluribusError
from ....core.limits import SUBSCRIBERS_MAX
from ....objects.handlers import handles
from ....objects.messages import ObjectMessage, Said, failure_of, sender_of, token_of
from ....wire.kqml import Kqml, Word, kqml
from ...group.asking import ANSWER_S

if TYPE_CHECKING:
    from .communicator import Updates
    from .face import ObjectsFace

BRIDGES_MAX = 8
CALL_S = 60.0
"""Seconds after which the other side gives up a call that is not done; the caller may give up before."""
_OF_ONE_BUS = ("sender", "receiver", "reply-with", "in-reply-to", "sender_unicast_address")

crossed: ContextVar[int] = ContextVar("crossed", default=0)
"""The number of bridges that the present call has crossed."""


class CallsBeyond(Mapping[str, Callable[..., Any]]):
    """The methods of a bridge: whatever the object on the other side exposes, which only that side knows."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def __getitem__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **named: Any) -> Any:
            return await self._bridge.call(name, args, named)

        return call

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Bridge:
    def __init__(self, here: ObjectsFace, there: ObjectsFace, alias: str) -> None:
        self._here = here
        self._there = there
        self._alias = alias
        self._subscriptions: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By subscriber and token: the task that carries its updates."""
        self.passed = 0

    def stand(self) -> None:
        """Enter the bridge in the directory."""
        post = self._here._post
        post.directory.resident(self).methods = CallsBeyond(self)
        post.on_members.append(self._look)

    # Messages.

    @handles("broadcast")
    async def broadcast(self, message: Kqml) -> Any:
        """Send to all objects on the other side. If answers are wanted, the first of their answers is the bridge's."""
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
            onward_object = ObjectMessage(message.body, bridges=self._one_more(message.bridges))
            if message.reply_with:
                return _back(await communicator.ask(self._alias, onward_object))
            await self._there._post.send(self._alias, onward_object, None)
            return None
        onward = self._onward(message)
        if token_of(message):
            return _back(await communicator.ask(self._alias, onward))
        await communicator.send(self._alias, onward)
        return None

    def _onward(self, message: Kqml) -> Kqml:
        kept = {name: value for name, value in message.parameters.items() if name not in _OF_ONE_BUS}
        return Kqml(message.performative, {**kept, "bridges": Word(str(self._one_more(_bridges_of(message))))})

    def _one_more(self, count: int) -> int:
        if count >= BRIDGES_MAX:
            raise BadInput(
                f"a message to {self._alias!r} crossed {count} bridges: they lead in a circle, take one away"
            )
        return count + 1

    # Calls.

    async def call(self, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self.passed += 1
        crossed.set(self._one_more(crossed.get()))
        post = self._there._post
        _, id = await post.places.one(self._alias)
        return await post.calls.call(id, method, args, named, CALL_S)

    # Subscriptions.

    @handles("subscribe")
    async def subscribe(self, message: Kqml) -> Kqml:
        key = (sender_of(message), token_of(message))
        if not all(key):
            raise BadInput("a subscribe that names no :sender or no :reply-with: updates could not be sent")
        if key in self._subscriptions:
            return kqml("tell")
        if len(self._subscriptions) >= SUBSCRIBERS_MAX:
            raise Overflow(f"{SUBSCRIBERS_MAX} have subscribed through this bridge already: use another")
        from .communicator import Updates

        self.passed += 1
        bridges = self._one_more(_bridges_of(message))
        updates = Updates(self._there._post, self._alias, message.content, None, ANSWER_S, bridges)
        await updates.open()
        post = self._here._post
        self._subscribers()[key] = None  # the other side strikes off a subscriber when its process is gone
        carrying = post.spawn(self._carry(key, message, updates))
        if carrying is not None:
            self._subscriptions[key] = carrying
        return kqml("tell")

    @handles("discard")
    async def discard(self, message: Kqml) -> None:
        self._end((sender_of(message), str(message.get("in-reply-to", ""))))

    async def _carry(self, key: tuple[str, str], asked: Kqml, updates: Updates) -> None:
        """Carry the updates of the object on the other side, until one side ends the subscription."""
        post, (subscriber, token) = self._here._post, key
        try:
            async for update in updates:
                await post.send(subscriber, _answering(update, token), self)
        except PluribusError as error:  # one side is gone
            told = failure_of(asked, error, post.itself.id)
            if told is not None:
                await post.send(subscriber, told, None)
        finally:
            self._subscriptions.pop(key, None)
            self._subscribers().pop(key, None)
            await updates.aclose()

    def _look(self, there: tuple[int, ...]) -> None:
        """Subscribers whose process is gone get no more updates."""
        left = self._subscribers()
        for key in [key for key in self._subscriptions if key not in left]:
            self._end(key)

    def _subscribers(self) -> dict[tuple[str, str], Any]:
        """The subscribers, as the directory knows them; none if the bridge was taken away."""
        try:
            return self._here._post.directory.resident(self).subscribers
        except NoObject:
            return {}

    def _end(self, key: tuple[str, str]) -> None:
        carrying = self._subscriptions.pop(key, None)
        if carrying is not None:
            carrying.cancel()


def _bridges_of(message: Kqml) -> int:
    count = message.get("bridges", "0")
    return int(count) if isinstance(count, str) and count.isdecimal() else BRIDGES_MAX


def _back(answer: Said) -> Any:
    """An answer from the other side, as the bridge's own."""
    if isinstance(answer, ObjectMessage):
        return ObjectMessage(answer.body)
    kept = {name: value for name, value in answer.parameters.items() if name not in _OF_ONE_BUS}
    return Kqml(answer.performative, kept)


def _answering(update: Said, token: str) -> Said:
    found = _back(update)
    if isinstance(found, ObjectMessage):
        return ObjectMessage(found.body, in_reply_to=token)
    return Kqml(found.performative, {**found.parameters, "in-reply-to": Word(token)})
