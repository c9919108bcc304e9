"""What asyncio leaves to its users: an answer and a time-out may come in the same turn of the loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def has_come(future: asyncio.Future[T]) -> bool:
    """Whether what was awaited came after all, in the very turn in which the time-out did: ``TimeoutError`` is raised
    then, though the future has a result."""
    return future.done() and not future.cancelled()
