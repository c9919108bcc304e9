"""Draining several parts of a bus before it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ...core.errors import PluribusError

Drain = Callable[[float], Awaitable[None]]
"""Returns when a part has nothing left to send; raises an error for what is left after so many seconds."""


LEAST_S = 0.1
"""Seconds that a part has even if others have used up the time."""


async def each_drained(drains: Iterable[Drain], timeout: float) -> None:
    """Drain one part after the other, in ``timeout`` seconds for all. If one fails, the others are drained all the
    same: the first error is raised at the end, with the others in its notes."""
    now = asyncio.get_running_loop().time
    until = now() + timeout
    complaints: list[PluribusError] = []
    for drain in drains:
        try:
            await drain(round(max(until - now(), min(LEAST_S, timeout)), 3))
        except PluribusError as lost:
            complaints.append(lost)
    if complaints:
        first, *others = complaints
        for other in others:
            first.add_note(str(other))
        raise first
