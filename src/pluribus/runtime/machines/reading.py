"""Bodies by handle, awaited: at once if they are in memory, else when the reader thread has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...core.errors import PluribusError
from ...group.host import Host
from ...group.host.bodies import Handle


async def read_bodies(host: Host, machine: int, handles: Sequence[Handle]) -> Sequence[bytes | None]:
    """In the order of the handles. None: the body was written forward, or is needed no more, since the handle was
    looked up; look it up again. ``Damaged``: ask another keeper."""
    future: asyncio.Future[Sequence[bytes | None]] | None = None
    at_once: list[tuple[Sequence[bytes | None], PluribusError | None]] = []

    def found(bodies: Sequence[bytes | None], error: PluribusError | None) -> None:
        if future is None:
            at_once.append((bodies, error))
        elif not future.done():
            if error is None:
                future.set_result(bodies)
            else:
                future.set_exception(error)

    host.bodies.resolve(machine, handles, found)
    if at_once:
        ((bodies, error),) = at_once
        if error is not None:
            raise error
        return bodies
    future = asyncio.get_running_loop().create_future()
    return await future
