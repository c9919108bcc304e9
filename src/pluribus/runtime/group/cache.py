"""A replicated cache, on a notification bus: every member has all entries, so reading costs a dictionary look-up.

Writing notifies all members. A write returns when this member has applied it, so a member reads its own writes. The
others apply it at the same place of the order, a moment earlier or later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from ...core.errors import Closed, Uncertain
from ...core.frame import Message
from ...core.view import View
from ...group.cache import ABSENT, Entries, Key, checked_key, clear, put, remove
from ..loop.futures import has_come
from .notifications import Notifications

APPLIED_S = 10.0
"""Seconds for which a write waits for its place in the order, by default."""


class CacheConsumer:
    """The consumer of the notification bus: applies changes, and wakes the callers that wait for theirs."""

    def __init__(self, me: int, entries_max: int) -> None:
        self.me = me
        self.entries = Entries(entries_max)
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.applied = -1
        """The number of this member's own last change that was applied."""

    async def notified(self, message: Message) -> None:
        self.entries.apply(message.body)
        if message.sender == self.me:
            self.applied = message.id[1]
            waiter = self.waiting.pop(self.applied, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def get_cache(self) -> bytes:
        return self.entries.snapshot()

    def put_cache(self, cache: bytes) -> None:
        self.entries.restore(cache)
        self.end(Uncertain("this member was cut off while it wrote to a cache: look whether the entry is there"))

    def ended(self) -> None:
        self.end(Closed("the cache was closed before the change was applied"))

    def end(self, error: Exception) -> None:
        """Fail all waiting writes; other members may have applied them."""
        for waiter in self.waiting.values():
            if not waiter.done():
                waiter.set_exception(error)
        self.waiting.clear()


class Cache:
    """Made by ``bus.cache(name)``. Read it like a dictionary; ``await`` what changes it."""

    def __init__(self, notifications: Notifications, consumer: CacheConsumer) -> None:
        self._notifications = notifications
        self._consumer = consumer

    @property
    def name(self) -> str:
        return self._notifications.name

    @property
    def view(self) -> View:
        return self._notifications.view

    @property
    def closed(self) -> bool:
        return self._notifications.closed

    def get(self, key: Key, default: Any = None) -> Any:
        """The value that this member has now. Do not change it in place: the others would not hear of it."""
        return self._consumer.entries.values.get(checked_key(key), default)

    def __getitem__(self, key: Key) -> Any:
        found = self.get(key, ABSENT)
        if found is ABSENT:
            raise KeyError(key)
        return found

    def __contains__(self, key: Key) -> bool:
        return key in self._consumer.entries.values

    def __len__(self) -> int:
        return len(self._consumer.entries.values)

    def __iter__(self) -> Iterator[Key]:
        """The keys, the one that was written longest ago first."""
        return iter(list(self._consumer.entries.values))

    async def put(self, key: Key, value: Any, timeout: float | None = APPLIED_S) -> None:
        """Write an entry everywhere; returns when this member has it. ``Uncertain``: not within the time-out, or this
        member was cut off; it may be there all the same. Outside a primary nothing is written: ``NotPrimary``."""
        await self._change(put(key, value), timeout)

    async def remove(self, key: Key, timeout: float | None = APPLIED_S) -> None:
        """Remove an entry everywhere; one that is not there is no error."""
        await self._change(remove(key), timeout)

    async def clear(self, timeout: float | None = APPLIED_S) -> None:
        await self._change(clear(), timeout)

    async def wait_for(self, members: int, timeout: float | None = 10.0) -> View:
        return await self._notifications.wait_for(members, timeout)

    def stats(self) -> dict[str, int]:
        entries = self._consumer.entries
        return {
            "entries": len(entries.values),
            "entries_max": entries.entries_max,
            "evicted": entries.evicted,
            "malformed": entries.malformed,
        }

    async def close(self) -> None:
        await self._notifications.close()

    async def _change(self, change: bytes, timeout: float | None) -> None:
        loop, consumer = asyncio.get_running_loop(), self._consumer
        deadline = None if timeout is None else loop.time() + timeout
        sent = await self._notifications.notify(change, timeout=timeout)
        if sent[1] <= consumer.applied:  # a large one, of which the last piece was faster than we
            return
        waiter: asyncio.Future[None] = loop.create_future()
        consumer.waiting[sent[1]] = waiter
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            if has_come(waiter):
                return waiter.result()
            raise Uncertain(
                f"a change of cache {self.name!r} was not applied in {timeout:g} s: look again", sent
            ) from None
        finally:
            consumer.waiting.pop(sent[1], None)

    def __repr__(self) -> str:
        return f"<cache {self.name!r} of {len(self)} entries>"
