"""A notification bus: notifications of one member reach all members in one order; a new member is given the others'
cache of them.

The consumer is any object with a method ``notified(message)``. It may have these hooks too:

* ``get_cache()`` returns what the consumer has made of the notifications so far, as a body that can be sent;
  ``put_cache(cache)`` takes the cache of another member. Both are plain functions, and quick. A new member is given the
  cache before its first notification, exactly at the point where its notifications begin; a member that was cut off is
  given it anew.
* ``joined(member, name)`` and ``left(member, name)`` tell of the other members, ``ended()`` of this member's leaving.

``notified`` is called with one notification after another: a coroutine function is awaited, a plain one runs in a
thread. An exception in it is logged, and the next notification follows.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from ...core.errors import BadInput, Excluded
from ...core.frame import Message
from ...core.ids import MessageId
from ...core.view import View
from ...wire.questions import Wrapped, unwrapped, wrapped
from ..loop.futures import in_a_thread
from .group import Group

log = logging.getLogger(__name__)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Wrapped).decode


class Cached:
    """The consumer's cache as the state of its group."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def snapshot(self) -> bytes:
        return _encode(wrapped(self._consumer.get_cache()))

    def restore(self, state: bytes) -> None:
        self._consumer.put_cache(unwrapped(_decode(state)))


def cache_of(consumer: Any) -> Cached | None:
    """The state that the consumer's hooks make, if it has them."""
    if not callable(getattr(consumer, "notified", None)):
        raise BadInput(f"{type(consumer).__name__} is told nothing: give it a method notified(message)")
    hooks = [callable(getattr(consumer, name, None)) for name in ("get_cache", "put_cache")]
    if any(hooks) and not all(hooks):
        raise BadInput(f"{type(consumer).__name__} has one of get_cache and put_cache: give it both, or neither")
    return Cached(consumer) if all(hooks) else None


class Notifications:
    """Made by ``bus.notifications(name, consumer)``. It ends with the group, or with the bus."""

    def __init__(self, group: Group, consumer: Any) -> None:
        self._group = group
        self._notified = consumer.notified
        self._waits = inspect.iscoroutinefunction(consumer.notified)
        self._joined: Callable[[int, str], Any] = getattr(consumer, "joined", _ignored)
        self._left: Callable[[int, str], Any] = getattr(consumer, "left", _ignored)
        self._ended: Callable[[], Any] = getattr(consumer, "ended", _nothing)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._watch())]

    @property
    def name(self) -> str:
        return self._group.name

    @property
    def view(self) -> View:
        return self._group.view

    @property
    def closed(self) -> bool:
        return self._group.closed

    async def notify(
        self,
        notification: Any,
        *,
        to: int | None = None,
        parent: MessageId | None = None,
        timeout: float | None = None,
        wait: str | None = None,
    ) -> MessageId:
        """Tell every member, this one included; the options are those of ``Group.send``."""
        return await self._group.send(notification, to, parent, timeout, wait)

    async def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        """The first view with at least so many members."""
        return await self._group.wait_for(members, timeout)

    async def close(self) -> None:
        """Leave; the notification that the consumer works on is the last."""
        await self._group.close()
        await asyncio.gather(*[task for task in self._tasks if task is not asyncio.current_task()])

    async def _read(self) -> None:
        while not self._group.closed:
            try:
                async for message in self._group:
                    await self._tell(message)
            except Excluded as missed:
                log.warning("%s", missed)  # only without a cache: with one it is given anew
            except Exception:
                log.exception("the consumer of %r could not take another member's cache: it leaves", self.name)
                await self._group.close()
        self._call(self._ended)

    async def _tell(self, message: Message) -> None:
        try:
            await (self._notified(message) if self._waits else in_a_thread(self._notified, message))
        except Exception:
            log.exception("the consumer of %r failed with notification %s", self.name, message.id)

    async def _watch(self) -> None:
        known: dict[int, str] = {}
        async for view in self._group.views():
            there = {member: view.names.get(member, "") for member in view.members if member != self._group.me}
            for member, name in sorted(known.items() - there.items()):
                self._call(self._left, member, name)
            for member, name in sorted(there.items() - known.items()):
                self._call(self._joined, member, name)
            known = there

    def _call(self, hook: Callable[..., Any], *told: Any) -> None:
        try:
            hook(*told)
        except Exception:
            log.exception("a hook of the consumer of %r failed", self.name)

    def __repr__(self) -> str:
        return f"<notifications of {self.name!r}>"


def _ignored(member: int, name: str) -> None:
    """The hook of a consumer that has none."""


def _nothing() -> None:
    """The same, for the end."""
