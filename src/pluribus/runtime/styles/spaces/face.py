"""Tuple spaces on a bus: ``bus.space(name)`` opens one, ``bus.spaces()`` lists those there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ...loop.lateness import loaded
from ..style import Styled

if TYPE_CHECKING:  # loaded by those who use them, so that ``import pluribus`` stays quick
    from .space import Space
    from .spaces import SpaceInfo, Spaces

OPEN_S = 15.0
STYLE = "pluribus.runtime.styles.spaces.spaces"


class SpacesFace:
    """The methods that tuple spaces add to a bus."""

    async def space(
        self,
        name: str,
        *,
        kind: str = "replicated",
        durable: bool = False,
        replica: bool = True,
        copies: int = 1,
        key: int = 0,
        timeout: float | None = OPEN_S,
    ) -> Space:
        """Open the tuple space of that name; the first to open it makes it.

        ``kind="replicated"``: one state machine, the same at all members; linearizable, with leases, events and
        transactions; ``durable=True`` keeps it on the disks of the keepers. ``kind="views"``: every member that opens
        it with ``replica=True`` has all tuples; reads are local, writes return at once. ``kind="partitioned"``: tuples
        are partitioned over the members by a hash of the field ``key``; ``copies`` members have each tuple, and with
        ``replica=False`` this member keeps none. ``docs/spaces.md`` has a table of what each kind promises. A client's
        member takes part in the space for it, and stays in it.

        ``BadInput`` if the settings contradict each other or those of the members that have it open; ``TimeoutError``
        if there is no primary within ``timeout`` seconds.
        """
        await loaded(STYLE)  # with the filter language, which is slow to load
        return await _spaces(self).open(name, kind, durable, replica, copies, key, timeout)

    async def spaces(self, *, timeout: float | None = OPEN_S) -> list[SpaceInfo]:
        """The spaces that were opened on this bus, by name."""
        await loaded(STYLE)
        return await _spaces(self).listed(timeout)


def _spaces(face: Any) -> Spaces:
    from .spaces import Spaces

    return cast(Styled, face)._style(Spaces)
