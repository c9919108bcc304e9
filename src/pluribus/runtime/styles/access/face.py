"""Access lists on a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from .access import Access


class AccessFace:
    """The access list: rights of programs outside of the bus."""

    @property
    def access(self: Styled) -> Access:
        """The access list of the bus: users, rules, tokens. ``docs/access.md``."""
        from .access import Access

        return Access(self)
