"""Conversations on a bus."""

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
    """Threaded conversations between members that come and go, without a server."""

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
        """Join the conversation of that name; the first to join creates it. Earlier messages come by themselves.

        With ``store``, a file or the URL of a PostgreSQL server, the history survives this process; all conversations
        of a bus share one store. At most ``messages_max`` messages and ``bytes_max`` bytes are kept: beyond that, the
        oldest messages of the member that wrote most are forgotten. ``identities_only`` keeps no bodies, for members
        with little memory: they receive every message, and cannot give messages to others.
        """
        lobby: Conversations = await self.conversations(store=store)  # type: ignore[attr-defined]
        return await lobby.room(
            name, description, messages_max=messages_max, bytes_max=bytes_max, identities_only=identities_only
        )

    async def conversations(self: Styled, *, store: str | os.PathLike[str] | None = None) -> Conversations:
        """All conversations that this member knows. Iterate it, or ``invitations()``; ``join`` or ``refuse`` them."""
        from .lobby import Conversations

        return await self._style(Conversations).open(store)
