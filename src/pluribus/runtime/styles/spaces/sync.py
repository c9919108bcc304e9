"""Tuple spaces without ``await``: what ``pluribus.sync`` has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...sync.face import Closing, StandIn, one_by_one, real_of
from . import space as real
from .space import FOREVER, PAGE, SpaceEvent

if TYPE_CHECKING:  # it stands on this one
    from ..transactions.sync import SyncTransaction


class SyncLease(StandIn):
    """See ``Lease``."""

    _real: real.Lease

    @property
    def number(self) -> int:
        return self._thread.ask(lambda: self._real.number)

    @property
    def granted_s(self) -> float | None:
        return self._thread.ask(lambda: self._real.granted_s)

    def renew(self, lease: float | None) -> float | None:
        return self._thread.call(self._real.renew, lease)

    def cancel(self) -> None:
        self._thread.call(self._real.cancel)


class SyncRegistration(StandIn):
    """See ``Registration``: iterate it for events."""

    _real: real.Registration

    @property
    def number(self) -> int:
        return self._thread.ask(lambda: self._real.number)

    @property
    def granted_s(self) -> float | None:
        return self._thread.ask(lambda: self._real.granted_s)

    def renew(self, lease: float | None) -> float | None:
        return self._thread.call(self._real.renew, lease)

    def cancel(self) -> None:
        self._thread.call(self._real.cancel)

    def __iter__(self) -> Iterator[SpaceEvent]:
        return one_by_one(self._thread, aiter(self._real))


class SyncSpace(Closing):
    """See ``Space``. ``transaction`` is one of ``pluribus.sync``, or the number that its ``enter`` returned. Listeners
    are called in the thread of the bus, which they must not keep."""

    _real: real.Space

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def kind(self) -> str:
        return self._real.kind

    def write(self, value: Any, lease: float | None = FOREVER, *, transaction: int | SyncTransaction = 0) -> SyncLease:
        return SyncLease(
            self._thread.call(self._real.write, value, lease, transaction=real_of(transaction)), self._thread
        )

    def write_many(
        self, values: Iterable[Any], lease: float | None = FOREVER, *, transaction: int | SyncTransaction = 0
    ) -> list[SyncLease]:
        return [
            SyncLease(one, self._thread)
            for one in self._thread.call(self._real.write_many, list(values), lease, transaction=real_of(transaction))
        ]

    def read(
        self,
        template: Any,
        where: str = "",
        *,
        timeout: float | None = None,
        stale: bool = False,
        transaction: int | SyncTransaction = 0,
    ) -> Any:
        return self._thread.call(
            self._real.read, template, where, timeout=timeout, stale=stale, transaction=real_of(transaction)
        )

    def take(
        self, template: Any, where: str = "", *, timeout: float | None = None, transaction: int | SyncTransaction = 0
    ) -> Any:
        return self._thread.call(self._real.take, template, where, timeout=timeout, transaction=real_of(transaction))

    def take_many(
        self,
        template: Any,
        most: int = PAGE,
        where: str = "",
        *,
        timeout: float | None = None,
        transaction: int | SyncTransaction = 0,
    ) -> list[Any]:
        return self._thread.call(
            self._real.take_many, template, most, where, timeout=timeout, transaction=real_of(transaction)
        )

    def read_if_exists(
        self,
        template: Any,
        where: str = "",
        *,
        timeout: float | None = 0,
        stale: bool = False,
        transaction: int | SyncTransaction = 0,
    ) -> Any | None:
        return self._thread.call(
            self._real.read_if_exists, template, where, timeout=timeout, stale=stale, transaction=real_of(transaction)
        )

    def take_if_exists(
        self, template: Any, where: str = "", *, timeout: float | None = 0, transaction: int | SyncTransaction = 0
    ) -> Any | None:
        return self._thread.call(
            self._real.take_if_exists, template, where, timeout=timeout, transaction=real_of(transaction)
        )

    def replace(
        self,
        template: Any,
        value: Any,
        where: str = "",
        *,
        lease: float | None = FOREVER,
        timeout: float | None = None,
        transaction: int | SyncTransaction = 0,
    ) -> Any:
        return self._thread.call(
            self._real.replace, template, value, where, lease=lease, timeout=timeout, transaction=real_of(transaction)
        )

    def read_all(
        self, template: Any = None, where: str = "", *, transaction: int | SyncTransaction = 0
    ) -> Iterator[Any]:
        return one_by_one(self._thread, self._real.read_all(template, where, transaction=real_of(transaction)))

    def count(self, template: Any = None, where: str = "", *, transaction: int | SyncTransaction = 0) -> int:
        return self._thread.call(self._real.count, template, where, transaction=real_of(transaction))

    def notify(
        self,
        template: Any = None,
        where: str = "",
        *,
        lease: float | None = FOREVER,
        hand_back: Any = None,
        transaction: int | SyncTransaction = 0,
    ) -> SyncRegistration:
        return SyncRegistration(
            self._thread.call(
                self._real.notify, template, where, lease=lease, hand_back=hand_back, transaction=real_of(transaction)
            ),
            self._thread,
        )

    def resume(self, registration: int) -> SyncRegistration:
        return SyncRegistration(self._thread.call(self._real.resume, registration), self._thread)

    def flush(self) -> None:
        self._thread.call(self._real.flush)

    def on_void(self, listener: Callable[[Any], None]) -> None:
        self._thread.ask(self._real.on_void, listener)

    def on_lost(self, listener: Callable[[dict[int, int]], None]) -> None:
        self._thread.ask(self._real.on_lost, listener)

    def stats(self) -> dict[str, Any]:
        return self._thread.ask(self._real.stats)

    out = write
    """Linda's name."""
    rd = read
    """Linda's name."""
    in_ = take
    """Linda's name, but for the underscore that Python needs."""
