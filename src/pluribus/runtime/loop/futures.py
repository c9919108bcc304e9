"""Two corners of asyncio: a result and a time-out may come in the same turn of the loop, and a function may raise an
exception that a future does not take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def has_come(future: asyncio.Future[T]) -> bool:
    """Whether the future has a result after all: if result and time-out come in the same turn of the loop,
    ``TimeoutError`` is raised."""
    return future.done() and not future.cancelled()


def looked_at(future: asyncio.Future[T]) -> None:
    """A call-back for a future that is done: it marks an error as seen, because the waiting caller may have given
    up."""
    if not future.cancelled():
        future.exception()


async def in_a_thread(call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
    """Like ``asyncio.to_thread``, for functions of applications: every exception is raised here. With ``to_thread`` a
    ``StopIteration`` (from a ``next`` without a default) would not arrive, and the caller would wait for ever."""

    def called() -> T:
        try:
            return call(*args, **named)
        except StopIteration as error:
            raise taken(error) from error

    return await asyncio.to_thread(called)


def taken(error: Exception) -> Exception:
    """The exception that a future takes in the place of another; coroutines do the same for ``StopIteration``."""
    return RuntimeError("the function raised StopIteration") if isinstance(error, StopIteration) else error
