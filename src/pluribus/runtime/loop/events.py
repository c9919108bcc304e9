"""Watching a bus: events by iteration or by call-back.

Every iteration has a queue of its own, from the moment it is asked for. A queue that is full forgets the oldest event
and says so with the next (``Skipped``): a program that does not look at its events does not stop the bus.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable

from ...core.events import Event, Skipped
from ...core.limits import EVENTS_WAITING_MAX

log = logging.getLogger(__name__)

Listener = Callable[[Event], object]


class Events:
    """``async for event in bus.events()``; it ends with the bus."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque()
        self._skipped = 0
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            return Skipped(skipped)
        return self._waiting.popleft()

    def _put(self, event: Event) -> None:
        if len(self._waiting) >= EVENTS_WAITING_MAX:
            self._waiting.popleft()
            self._skipped += 1
        self._waiting.append(event)
        self._wake()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Watchers:
    """The programs that watch one bus. An iteration that its program has dropped is forgotten."""

    def __init__(self) -> None:
        self._iterations: weakref.WeakKeyDictionary[Events, None] = weakref.WeakKeyDictionary()
        """In their order, which a set does not keep: a world must do the same every time."""
        self._listeners: dict[int, Listener] = {}
        self._count = 0

    def iteration(self, *, ended: bool) -> Events:
        events = Events()
        if ended:
            events._end()
        self._iterations[events] = None
        return events

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._count += 1
        number = self._count
        self._listeners[number] = listener

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def tell(self, event: Event) -> None:
        for iteration in list(self._iterations):
            iteration._put(event)
        if self._listeners:
            # After what is going on: a listener may use the bus, and one that fails is no failure of the protocols.
            asyncio.get_running_loop().call_soon(self._call, event)

    def end(self) -> None:
        for iteration in list(self._iterations):
            iteration._end()
        self._listeners.clear()

    def _call(self, event: Event) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %r", event)
