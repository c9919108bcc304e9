"""Draining several parts of a bus before it is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from ..core.errors import PluribusError

Drain = Callable[[float], Awaitable[None]]
"""Returns when a part has nothing left to be sent; raises what could not be, after so many seconds."""


async def each_drained(drains: Iterable[Drain], timeout: float) -> None:
    """One after the other. What one cannot deliver keeps no other back: the first complaint is raised in the end, with
    the others in its notes."""
    complaints: list[PluribusError] = []
    for drain in drains:
        try:
            await drain(timeout)
        except PluribusError as lost:
            complaints.append(lost)
    if complaints:
        first, *others = complaints
        for other in others:
            first.add_note(str(other))
        raise first
