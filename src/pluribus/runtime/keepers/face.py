"""Keepers on a bus, and on a client."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

from ..styles.style import Styled, StylesInUse

if TYPE_CHECKING:  # loaded when first used
    from ..styles.topics.durable import Durable
    from .keepers import Keepers
    from .keeping import Keeping


_KEEPING = "pluribus.runtime.keepers.keeping"
"""Looked up where it was loaded: every durable event comes by here, and an import in a function costs microseconds."""


class KeepersFace:
    """``Bus`` and ``ClientBus`` are one."""

    _styles: StylesInUse

    @property
    def keeping(self) -> Keeping:
        """The way to the keepers, and this member's own, if it is one; for those who extend it."""
        style = getattr(sys.modules.get(_KEEPING), "Keeping", None)
        if style is None:  # or another thread is still loading it: this waits
            style = import_module(_KEEPING).Keeping
        return cast("Keeping", cast(Styled, self)._style(style))

    @property
    def kept(self) -> Keeping | None:
        """``keeping``, if anything was asked of keepers on this bus."""
        style = getattr(sys.modules.get(_KEEPING), "Keeping", None)
        return None if style is None else self._styles.found(style)

    @property
    def durable(self) -> Durable:
        """Durable topics: what ``publish(..., durable=True)`` and ``subscribe(..., durable=...)`` use."""
        return self.keeping.durable

    @property
    def keepers(self) -> Keepers:
        """The keepers of this bus, for who looks after them: ``ls``, ``add``, ``remove``, ``replace``, ``force``,
        ``backup``."""
        from .keepers import Keepers

        return Keepers(self.durable, self.keeping)
