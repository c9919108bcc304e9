"""The doors of a member without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

from typing import Any

from ..sync.face import StandIn
from . import doorman as real


class SyncDoorman(StandIn):
    """See ``Doorman``."""

    _real: real.Doorman

    @property
    def address(self) -> tuple[str, int]:
        return self._real.address

    @property
    def served(self) -> int:
        return self._real.served

    def stats(self) -> dict[str, Any]:
        return self._thread.ask(self._real.stats)

    def close(self) -> None:
        self._thread.call(self._real.close)
