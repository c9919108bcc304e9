"""User coroutines under virtual time.

While a world is open, the running asyncio loop asks the kernel for the time, and where it would wait for sockets it
lets the kernel run instead: until a task can go on, or the loop's own next timer (a ``sleep``, a ``timeout``) is due.
So ordinary asyncio code runs unchanged, an hour of sleeping costs nothing, and the order of everything follows from
the seed.

What would bring the outside in is refused while a world is open: threads, sockets, processes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from ..core.errors import SimulationError
from .kernel import Kernel

_REFUSED = (
    "run_in_executor",
    "add_reader",
    "add_writer",
    "create_connection",
    "create_server",
    "create_datagram_endpoint",
    "create_unix_connection",
    "create_unix_server",
    "subprocess_exec",
    "subprocess_shell",
)


class VirtualTime:
    """Puts a kernel under the running loop, and takes it away again."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._loop: Any = None
        self._select: Callable[..., Any] | None = None

    def enter(self) -> None:
        loop: Any = asyncio.get_running_loop()
        standard: Any = asyncio.SelectorEventLoop
        if not isinstance(loop, standard) or not hasattr(loop, "_ready"):
            raise SimulationError(
                f"a world needs the standard asyncio loop, this is {type(loop).__name__}: "
                "start with pluribus.sim.run or asyncio.run"
            )
        if "time" in vars(loop):
            raise SimulationError("a world is open on this loop already: leave it before you open another")
        self._loop = loop
        self._select = loop._selector.select
        loop.time = lambda: self._kernel.now
        loop._selector.select = self._run_kernel
        thread = threading.get_ident()

        def call_soon_threadsafe(callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
            # asyncio itself uses it from the loop's thread, to close generators that were left unfinished.
            if threading.get_ident() != thread:
                _refuse("call_soon_threadsafe from a thread")()
            return loop.call_soon(callback, *args, context=context)

        for name in _REFUSED:
            setattr(loop, name, _refuse(name))
        loop.call_soon_threadsafe = call_soon_threadsafe

    def leave(self) -> None:
        loop = self._loop
        if loop is None:
            return
        self._loop = None
        loop._selector.select = self._select
        del loop.time
        for name in (*_REFUSED, "call_soon_threadsafe"):
            delattr(loop, name)

    def _run_kernel(self, timeout: float | None = None) -> list[Any]:
        """Stands where the loop waits for sockets; called with 0 while tasks can run, and then does nothing."""
        if timeout is not None and timeout <= 0:
            return []
        ready = self._loop._ready
        kernel = self._kernel
        if timeout is None and kernel.next_at() is None:
            waiting = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self._loop) if not task.done()))
            raise SimulationError(f"nothing can happen in this world any more, but tasks still wait: {waiting}")
        kernel.run(float("inf") if timeout is None else kernel.now + timeout, lambda: bool(ready))
        return []


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise SimulationError(f"{name} reaches outside the world: use the world's members, or leave the world first")

    return refused
