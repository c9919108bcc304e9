"""Which tasks read a group, so that a task that would wait for itself gets an error.

A task that waits in ``send`` for room in its own inbox, and is the only reader of the group, would wait for ever. A
reader is a task, or, in ``pluribus.sync``, the calling thread.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextvars import ContextVar
from typing import Any

caller: ContextVar[threading.Thread | None] = ContextVar("pluribus-caller", default=None)
"""The thread on whose behalf a task of the background loop runs."""


class Readers:
    __slots__ = ("_any", "_known", "_last")

    def __init__(self) -> None:
        self._any = False
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: Any = None

    def note(self) -> None:
        """Note that the caller takes messages from the inbox."""
        task = asyncio.current_task()
        if task is not self._last:
            self._last = task
            self._any = True
            reader = _caller()
            if reader is not None:
                self._known.add(reader)

    def note_callback(self) -> None:
        """Note that a call-back takes messages: it never waits, so no task has to fear that it waits for itself."""
        self._any = True

    def only_the_caller(self) -> bool:
        """Whether the caller is the only reader that is still there."""
        me = _caller()
        return me in self._known and not any(_alive(other) for other in self._known if other is not me)

    @property
    def nobody(self) -> bool:
        """Whether there was never a reader."""
        return not self._any


def _caller() -> threading.Thread | asyncio.Task[Any] | None:
    return caller.get() or asyncio.current_task()


def _alive(reader: threading.Thread | asyncio.Task[Any]) -> bool:
    return not reader.done() if isinstance(reader, asyncio.Task) else reader.is_alive()
