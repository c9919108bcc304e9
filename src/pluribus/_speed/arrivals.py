"""Readers that wait for a message, and the short way to wake them.

A future wakes its task through the loop: the future schedules a call, and the task runs a turn later. While a datagram
is received no task is running, so a task that waits for its message can go on at once, as soon as the protocols have
settled. That saves a turn of the loop, and a good part of a round trip.

``Waiter`` is what asyncio asks of an awaitable that is not its own future (``_asyncio_future_blocking``, and the few
methods that a task calls).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from math import inf
from typing import Any

from ..core.ports import Datagram

Receive = Callable[[list[Datagram]], None]
Run = Callable[[Receive, list[Datagram]], None]

TICK_S = 0.001
"""How exactly loops fire their timers."""


class Line:
    """The tasks that go on when the datagrams at hand have been received. There is one line a bus."""

    __slots__ = ("eager", "receiving", "waiters")

    def __init__(self) -> None:
        self.eager = False
        """True: readers go on as soon as their message was received. False, in a world: in the loop's next turn."""
        self.receiving = False
        """True inside the engine's call-back, where no task runs, and tasks may be run after it."""
        self.waiters: list[Waiter] = []

    def feed(self, run: Run, receive: Receive, datagrams: list[Datagram]) -> None:
        """The engine's call-back."""
        self.receiving = self.eager
        try:
            run(receive, datagrams)
        finally:  # whatever a protocol did wrong: what came is there to be read
            try:
                self.run()
            finally:
                self.receiving = False

    def run(self) -> None:
        """Run the tasks whose messages were received, and tasks that waited for those in turn."""
        while self.waiters:
            waiters, self.waiters = self.waiters, []
            for waiter in waiters:
                waiter.run()


class Waiter:
    """An awaitable for one task, to be awaited once. After its time-out it raises ``TimeoutError``."""

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_done", "_given_up", "_loop", "_waiters", "due")

    def __init__(self, loop: asyncio.AbstractEventLoop, waiters: list[Waiter], due: float) -> None:
        self.due = due
        self._loop = loop
        self._waiters = waiters
        self._asyncio_future_blocking = False
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._given_up: type[BaseException] | None = None
        self._done = False

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self

    # What a task asks of whatever it waits for

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._callback, self._context = callback, context

    def cancel(self, msg: object = None) -> bool:
        return self.give_up(asyncio.CancelledError)

    def give_up(self, why: type[BaseException]) -> bool:
        if self._done:
            return False
        self._given_up = why
        if self in self._waiters:
            self._waiters.remove(self)
        self.run_soon()
        return True

    def result(self) -> None:
        if self._given_up is not None:
            raise self._given_up

    # How it goes on

    def run_soon(self) -> None:
        if not self._done:
            self._done = True
            self._loop.call_soon(self._go_on, context=self._context)

    def run(self) -> None:
        if not self._done:
            self._done = True
            callback, self._callback = self._callback, None
            if self._context is not None and callback is not None:
                self._context.run(callback, self)

    def _go_on(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)


class Arrivals:
    """The tasks that wait for the next message of one group.

    One timer serves all waits with a time-out. It is not cancelled when a message comes: the next wait would set it
    again, which costs more than the wait itself.
    """

    __slots__ = ("_due", "_line", "_timer", "_waiters")

    def __init__(self, line: Line) -> None:
        self._line = line
        self._waiters: list[Waiter] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf

    def wait(self, timeout: float | None = None) -> Waiter:
        """Await the result at once. After ``timeout`` seconds it raises ``TimeoutError``."""
        loop = asyncio.get_running_loop()
        due = inf if timeout is None else loop.time() + timeout
        waiter = Waiter(loop, self._waiters, due)
        if due < self._due:
            self._watch(loop, due)
        self._waiters.append(waiter)
        return waiter

    def _watch(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the waits whose time is over."""
        self._timer, self._due = None, inf
        upto = loop.time() + TICK_S
        for waiter in self._waiters.copy():
            if waiter.due <= upto:
                waiter.give_up(TimeoutError)
        due = min((waiter.due for waiter in self._waiters), default=inf)
        if due < self._due:
            self._watch(loop, due)

    def wake(self) -> None:
        """A message is there. Tasks that wait go on when the datagrams at hand are received, else in the loop's next
        turn."""
        waiting = self._waiters
        if waiting:
            if self._line.receiving:
                self._line.waiters += waiting
            else:
                for waiter in waiting:
                    waiter.run_soon()
            waiting.clear()
