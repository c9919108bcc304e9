"""Tuple spaces without ``await``: what ``pluribus.sync`` has of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...sync.face import Face, one_by_one, real_of
from . import space as real
from .space import SpaceEvent


class SyncLease(Face):
    """See ``Lease``."""

    _real: real.Lease


class SyncRegistration(Face):
    """See ``Registration``: iterate it for events."""

    _real: real.Registration

    def __iter__(self) -> Iterator[SpaceEvent]:
        return one_by_one(self._thread, aiter(self._real))


class SyncSpace(Face):
    """See ``Space``: the same methods without ``await``. ``transaction`` is one of ``pluribus.sync``."""

    _real: real.Space

    @property
    def name(self) -> str:
        return self._real.name

    def write(self, value: Any, lease: float | None = None, *, transaction: int | Face = 0) -> SyncLease:
        found = self._thread.call(self._real.write, value, lease, transaction=real_of(transaction))
        return SyncLease(found, self._thread)

    out = write

    def write_many(
        self, values: Iterable[Any], lease: float | None = None, *, transaction: int | Face = 0
    ) -> list[SyncLease]:
        found = self._thread.call(self._real.write_many, list(values), lease, transaction=real_of(transaction))
        return [SyncLease(one, self._thread) for one in found]

    def read_all(self, template: Any = None, where: str = "", *, transaction: int | Face = 0) -> Iterator[Any]:
        return one_by_one(self._thread, self._real.read_all(template, where, transaction=real_of(transaction)))

    def notify(
        self,
        template: Any = None,
        where: str = "",
        *,
        lease: float | None = None,
        hand_back: Any = None,
        transaction: int | Face = 0,
    ) -> SyncRegistration:
        options: dict[str, Any] = {"lease": lease, "hand_back": hand_back, "transaction": real_of(transaction)}
        found = self._thread.call(self._real.notify, template, where, **options)
        return SyncRegistration(found, self._thread)

    def resume(self, registration: int) -> SyncRegistration:
        return SyncRegistration(self._thread.call(self._real.resume, registration), self._thread)
