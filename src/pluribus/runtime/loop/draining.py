"""Draining several parts of a bus before it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ...core.errors import PluribusError

Drain = Callable[[float], Awaitable[None]]
"""Returns when a part has nothing left to be sent; raises what could not be, after so many seconds."""


LEAST_S = 0.1
"""What a part has when others have used up the time: enough if nothing keeps it."""


async def each_drained(drains: Iterable[Drain], timeout: float) -> None:
    """One after the other, in so many seconds for all. What one cannot deliver keeps no other back: the first complaint
    is raised in the end, with the others in its notes."""
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
