"""The access list without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

from ....access.words import Listed
from ...sync.face import StandIn
from . import access as real


class SyncAccess(StandIn):
    """See ``Access``."""

    _real: real.Access

    def add_user(
        self, name: str, *, password: str | None = None, roles: list[str] | None = None, certificate: str = ""
    ) -> None:
        self._thread.call(self._real.add_user, name, password=password, roles=roles, certificate=certificate)

    def remove_user(self, name: str) -> None:
        self._thread.call(self._real.remove_user, name)

    def add_rule(self, who: str, destination: str, verb: str) -> None:
        self._thread.call(self._real.add_rule, who, destination, verb)

    def remove_rule(self, who: str, destination: str, verb: str) -> None:
        self._thread.call(self._real.remove_rule, who, destination, verb)

    def token(self, user: str, *, seconds: float) -> str:
        return self._thread.call(self._real.token, user, seconds=seconds)

    def remove_token(self, id: str) -> None:
        self._thread.call(self._real.remove_token, id)

    def list(self) -> Listed:
        return self._thread.call(self._real.list)

    def check(self, who: str, destination: str, verb: str) -> bool:
        return self._thread.call(self._real.check, who, destination, verb)
