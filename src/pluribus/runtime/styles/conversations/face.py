"""What conversations add to a bus."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from .lobby import Conversations
    from .room import Room

MESSAGES_MAX = 1_000_000
BYTES_MAX = 512 << 20


class ConversationsFace:
    """Threaded talk between members that come and go, without a server."""

    async def conversation(
        self: Styled,
        name: str,
        *,
        description: str = "",
        store: str | os.PathLike[str] | None = None,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        identities_only: bool = False,
    ) -> Room:
        """Be in the conversation of that name; it is created if nobody did. What was said before comes by itself.

        With ``store``, a file or the URL of a PostgreSQL server, the history survives this process; all conversations
        of a bus share one store. More than ``messages_max`` messages or ``bytes_max`` bytes are not kept: the oldest
        of who wrote most are forgotten. ``identities_only`` keeps no bodies, for members with little memory: they hear
        everything, and give nothing to others.
        """
        lobby: Conversations = await self.conversations(store=store)  # type: ignore[attr-defined]
        return await lobby.room(
            name, description, messages_max=messages_max, bytes_max=bytes_max, identities_only=identities_only
        )

    async def conversations(self: Styled, *, store: str | os.PathLike[str] | None = None) -> Conversations:
        """All conversations that this member knows of: iterate it, or ``invitations()``; ``join``, ``refuse``."""
        from .lobby import Conversations

        return await self._style(Conversations).open(store)
