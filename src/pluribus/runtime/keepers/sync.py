"""The keepers of a bus without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

import os

from ...group.keepers.operations import Forced
from ...group.keepers.voting import Standing
from ..sync.face import StandIn
from . import keepers as real
from .backups import Backup, Restored


class SyncKeepers(StandIn):
    """See ``Keepers``."""

    _real: real.Keepers

    def ls(self) -> list[Standing]:
        return self._thread.call(self._real.ls)

    def add(self, keeper: str) -> None:
        self._thread.call(self._real.add, keeper)

    def remove(self, keeper: str) -> None:
        self._thread.call(self._real.remove, keeper)

    def replace(self, old: str, new: str) -> None:
        self._thread.call(self._real.replace, old, new)

    def force(self, keeper: str = "") -> Forced:
        return self._thread.call(self._real.force, keeper)

    def backup(self, path: str | os.PathLike[str]) -> Backup:
        return self._thread.call(self._real.backup, path)

    @staticmethod
    def restore(backup: str | os.PathLike[str], store: str | os.PathLike[str]) -> Restored:
        return real.Keepers.restore(backup, store)
