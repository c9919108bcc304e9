"""One loop in one thread, for programs that have none: all synchronous members of a process live on it.

It starts with the first use and ends with the process, after all members on it have left. A forked child starts with
none: threads do not survive a fork, so what was open in the parent stays the parent's, and the child connects again.
Therefore every call checks to which process the thread belongs, so that no caller waits for a thread that is not there.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

from ...core.errors import BadInput, Closed
from ...core.limits import DRAIN_S
from ..group.readers import caller
from .running import new_loop

P = ParamSpec("P")
T = TypeVar("T")


class Background:
    """The thread. ``call`` and ``ask`` may be used by many threads at once."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = new_loop()
        self._goodbyes: set[Callable[[], Coroutine[Any, Any, None]]] = set()
        self._thread = threading.Thread(target=self._run, name="pluribus-sync", daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """False in a forked child, and after the end."""
        return self._process == os.getpid() and self._thread.is_alive()

    def call(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function on the loop and wait for its result. An interrupt of the caller cancels it."""
        self.check()
        context = copy_context()
        context.run(caller.set, threading.current_thread())
        future = context.run(asyncio.run_coroutine_threadsafe, work(*args, **kwargs), self._loop)
        return _waited_for(future)

    def ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function on the loop, where it sees nothing half done, and wait for its result."""
        self.check()
        future: Future[T] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():  # the caller was interrupted, and nobody waits
                return
            try:
                future.set_result(question(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)

        self._loop.call_soon_threadsafe(answer)
        return _waited_for(future)

    def at_the_end(self, goodbye: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        """Have this awaited before the process ends; the returned function takes it back."""
        self._goodbyes.add(goodbye)
        return lambda: self._goodbyes.discard(goodbye)

    def end(self) -> None:
        """Everybody says goodbye, then the loop ends and the thread with it."""
        if not self.usable or threading.current_thread() is self._thread:
            return
        asyncio.run_coroutine_threadsafe(self._part(), self._loop)
        self._thread.join(2 * DRAIN_S)

    async def _part(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_S):
                await asyncio.gather(*(goodbye() for goodbye in self._goodbyes), return_exceptions=True)
        except TimeoutError:
            pass  # the process ends all the same
        self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def check(self) -> None:
        """Raise where waiting for this thread would be wrong: inside a loop, in a forked child, after the end."""
        refuse_inside_a_loop()
        if self._process != os.getpid():
            raise Closed("this bus belongs to the process that opened it: connect again after a fork")
        if not self._thread.is_alive():
            raise Closed("the process is ending: the bus is closed")


def _waited_for(future: Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()  # without effect when it is the work's own exception
        raise


def refuse_inside_a_loop() -> None:
    """``BadInput`` inside a running loop, which waiting would stop. Notebooks are allowed: their cells may block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not _in_a_notebook():
        raise BadInput("pluribus.sync waits, and would stop the running loop: use pluribus.connect and await there")


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


# The one of this process

_starting = threading.Lock()
_background: Background | None = None


def background() -> Background:
    """The thread of this process, started if need be."""
    global _background
    refuse_inside_a_loop()
    with _starting:
        if _background is None or not _background.usable:
            _background = Background()
        return _background


def _end() -> None:
    if _background is not None:
        _background.end()


def _forget() -> None:
    """In a forked child: the thread stayed behind, perhaps with the lock in its hand."""
    global _starting, _background
    _starting = threading.Lock()
    _background = None


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
