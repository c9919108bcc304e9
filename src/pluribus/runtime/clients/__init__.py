"""Programs that are no members: the client, its line to a member, the member's door, a log client without a loop.

``DoorsFace`` is what serving clients adds to a member: its doors, and the guard who decides what clients may ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...core.secret import Secret
from ..styles.style import Styled

if TYPE_CHECKING:  # loaded by those who use them, so that ``import pluribus`` stays quick
    from ..styles.access.guard import Guard
    from .doorman import Doorman


class DoorsFace:
    """``Bus`` is one; a client has no doors."""

    async def serve(self, address: str, secret: Secret | None = None) -> Doorman:
        """Speak for programs that are no members, at HOST:PORT; ``connect(serve=)`` does it."""
        from .doorman import Doors

        return await cast(Styled, self)._style(Doors).open(address, secret)

    @property
    def doors(self) -> list[Doorman]:
        """Where clients are served; each has its ``address``."""
        from .doorman import Doors

        return list(cast(Styled, self)._style(Doors).doors)

    @property
    def guard(self) -> Guard:
        """Decides what clients may ask. See ``docs/access.md``."""
        from ..styles.access.access import AccessStyle

        return cast(Styled, self)._style(AccessStyle).guard
