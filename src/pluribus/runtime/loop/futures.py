"""What asyncio leaves to its users: an answer and a time-out may come in the same turn of the loop, and a function may
raise what no future takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def has_come(future: asyncio.Future[T]) -> bool:
    """Whether what was awaited came after all, in the very turn in which the time-out did: ``TimeoutError`` is raised
    then, though the future has a result."""
    return future.done() and not future.cancelled()


def looked_at(future: asyncio.Future[T]) -> None:
    """As a call-back when it is done: who waited may have given up, and then its error is nobody's."""
    if not future.cancelled():
        future.exception()


async def in_a_thread(call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
    """As ``asyncio.to_thread``, for functions of applications: whatever they raise is raised here. ``StopIteration``,
    of a ``next`` that found nothing, would not arrive, and whoever waits would wait for ever."""

    def called() -> T:
        try:
            return call(*args, **named)
        except StopIteration as error:
            raise taken(error) from error

    return await asyncio.to_thread(called)


def taken(error: Exception) -> Exception:
    """What a future takes in place of an exception; a coroutine would do the same."""
    return RuntimeError("the function raised StopIteration") if isinstance(error, StopIteration) else error
