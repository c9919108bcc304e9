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
        module = sys.modules.get(_KEEPING) or import_module(_KEEPING)
        return cast("Keeping", cast(Styled, self)._style(module.Keeping))

    @property
    def kept(self) -> Keeping | None:
        """``keeping``, if anything was asked of keepers on this bus."""
        module = sys.modules.get(_KEEPING)
        return None if module is None else self._styles.found(module.Keeping)

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
