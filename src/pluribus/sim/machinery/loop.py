"""User coroutines under virtual time.

While a world is open, the running asyncio loop asks the kernel for the time, and where it would wait for sockets it
lets the kernel run instead: until a task can go on, or the loop's own next timer (a ``sleep``, a ``timeout``) is due.
So ordinary asyncio code runs unchanged, an hour of sleeping costs nothing, and the order of everything follows from
the seed.

Threads, sockets and processes, which depend on the outside, are refused while a world is open. The loop's own methods
for them are removed; calls that go past the loop (``threading.Thread``, ``socket.socket``, ``subprocess.run``) are
caught in the thread of the world: by an audit hook of the interpreter, and threads, which it may not report, by their
``start``.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import SimulationError
from ...core.limits import SIM_IDLE_S_MAX, SIM_TURNS_MAX
from .kernel import Kernel

_REFUSED = (
    "run_in_executor",
    "add_reader",
    "add_writer",
    "add_signal_handler",
    "create_connection",
    "create_server",
    "create_datagram_endpoint",
    "create_unix_connection",
    "create_unix_server",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "getaddrinfo",
    "getnameinfo",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)

_AUDITED = {
    "_thread.start_new_thread": "a thread",
    "_thread.start_joinable_thread": "a thread",
    "socket.__new__": "a socket",
    "subprocess.Popen": "a process",
    "os.fork": "a process",
    "os.forkpty": "a process",
    "os.posix_spawn": "a process",
    "os.system": "a process",
}

_inside: set[int] = set()
"""Threads in which a world is open."""
_guarding = False
_start_thread = threading.Thread.start


class VirtualTime:
    """Puts a kernel under the running loop, and takes it away again."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._loop: Any = None
        self._select: Callable[..., Any] | None = None
        self._turns = 0
        """Of the loop since time last went on."""

    def enter(self) -> None:
        loop: Any = asyncio.get_running_loop()
        standard: Any = asyncio.SelectorEventLoop
        if not isinstance(loop, standard) or not hasattr(loop, "_ready"):
            raise SimulationError(
                f"a world needs the standard asyncio loop, this is {type(loop).__module__}.{type(loop).__name__}: "
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
        _close_the_outside(thread)

    def leave(self) -> None:
        loop = self._loop
        if loop is None:
            return
        self._loop = None
        _inside.discard(threading.get_ident())
        loop._selector.select = self._select
        del loop.time
        for name in (*_REFUSED, "call_soon_threadsafe"):
            delattr(loop, name)

    def _run_kernel(self, timeout: float | None = None) -> list[Any]:
        """Stands where the loop waits for sockets; called with 0 while tasks can run, and then does nothing."""
        if timeout is not None and timeout <= 0:
            self._turns += 1
            if self._turns > SIM_TURNS_MAX:
                self._turns = 0  # the tasks are to be cancelled, which takes turns
                raise SimulationError(
                    f"time stands still for {SIM_TURNS_MAX:,} turns of the loop, as a task never waits (sleep(0) in "
                    f"a loop?): {self._waiting()}"
                )
            return []
        self._turns = 0
        ready = self._loop._ready
        kernel = self._kernel
        if timeout is None and kernel.next_at() is None:
            raise SimulationError(f"nothing can happen in this world any more, but tasks still wait: {self._waiting()}")
        kernel.run(kernel.now + (SIM_IDLE_S_MAX if timeout is None else timeout), lambda: bool(ready))
        if timeout is None and not ready and kernel.next_at() is not None:
            raise SimulationError(
                f"no task could go on for {SIM_IDLE_S_MAX:,.0f} s of virtual time, and these still wait: "
                f"{self._waiting()}"
            )
        return []

    def _waiting(self) -> str:
        return ", ".join(sorted(map(_place, asyncio.all_tasks(self._loop))))


def _place(task: asyncio.Task[Any]) -> str:
    """A task's name, and where it waits."""
    (frame,) = task.get_stack(limit=1) or (None,)
    if frame is None:
        return task.get_name()
    code = frame.f_code
    return f"{task.get_name()} ({code.co_name}, line {frame.f_lineno} of {Path(code.co_filename).name})"


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise SimulationError(f"{name} reaches outside the world: use the world's members, or leave the world first")

    return refused


def _close_the_outside(thread: int) -> None:
    """The guards stay in place, because an audit hook cannot be taken off; outside of worlds they let everything by."""
    global _guarding
    _inside.add(thread)
    if not _guarding:
        _guarding = True
        sys.addaudithook(_audit)
        threading.Thread.start = _guarded_start  # type: ignore[method-assign,assignment]


def _guarded_start(thread: threading.Thread) -> None:
    if threading.get_ident() in _inside:
        _refuse("a thread")()
    _start_thread(thread)


def _audit(event: str, _arguments: Any) -> None:
    if _inside and event in _AUDITED and threading.get_ident() in _inside:
        _refuse(_AUDITED[event])()
