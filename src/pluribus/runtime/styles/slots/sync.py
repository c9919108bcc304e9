"""Software buses and their slots without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from ....core.errors import Expired
from ....slots.carry import Carry
from ....slots.map import BusMap, Change
from ....slots.occupant import ENROLLED
from ....slots.plan import CAPACITY, TTL_S
from ....slots.words import Advertise
from ...sync.face import Closing, StandIn, one_by_one
from . import communications as real_communications
from . import hosts as real_hosts
from . import slot as real
from .communications import LISTEN_S, SHOW_S, BusShown
from .slot import LEAVE_S


class SyncSlotMessage(StandIn):
    """See ``SlotMessage``."""

    _real: real.SlotMessage

    @property
    def body(self) -> Any:
        return self._real.body

    @property
    def id(self) -> tuple[int, int]:
        return self._real.id

    @property
    def port(self) -> str:
        return self._real.port

    @property
    def source(self) -> str:
        return self._real.source

    @property
    def asks(self) -> bool:
        return self._real.asks

    def acknowledge(self) -> None:
        self._thread.ask(self._real.acknowledge)

    def withhold(self) -> None:
        self._thread.ask(self._real.withhold)

    def reply(self, body: Any) -> None:
        self._thread.ask(self._real.reply, body)

    def fail(self, reason: str) -> None:
        self._thread.ask(self._real.fail, reason)


class SyncSlotPort(StandIn):
    """See ``SlotPort``."""

    _real: real.SlotPort

    @property
    def name(self) -> str:
        return self._real.name

    def receive(self, timeout: float | None = None) -> SyncSlotMessage:
        return SyncSlotMessage(self._thread.call(self._real.receive, timeout), self._thread)

    def __iter__(self) -> Iterator[SyncSlotMessage]:
        return (SyncSlotMessage(message, self._thread) for message in one_by_one(self._thread, aiter(self._real)))

    def handle(self, handler: Callable[[SyncSlotMessage], Any]) -> None:
        """Call ``handler`` with every message, in this thread. On a port that answers, its result is the answer, and
        its exception an error for the asking program."""
        for message in self:
            if not message.asks:
                handler(message)
                continue
            try:
                message.reply(handler(message))
            except Exception as error:  # noqa: BLE001 - it is the asker's to handle
                message.fail(f"{type(error).__name__}: {error}")


class SyncSent(StandIn):
    """See ``Sent``."""

    _real: real.Sent

    @property
    def id(self) -> tuple[int, int]:
        return self._real.id

    @property
    def count(self) -> int:
        return self._thread.ask(lambda: self._real.count)

    @property
    def ttl_s(self) -> float:
        return self._thread.ask(lambda: self._real.ttl_s)

    @property
    def acknowledged(self) -> int:
        return self._thread.ask(lambda: self._real.acknowledged)

    @property
    def done(self) -> bool:
        return self._thread.ask(lambda: self._real.done)

    def delivered(self, timeout: float | None = None) -> None:
        self._thread.call(self._real.delivered, timeout)


class SyncEnrolledSlot(Closing):
    """See ``EnrolledSlot``. Listeners are called in the thread of the bus, which they must not keep."""

    _real: real.EnrolledSlot

    @property
    def bus_name(self) -> str:
        return self._real.bus_name

    @property
    def expired(self) -> deque[Expired]:
        return self._thread.ask(lambda: self._real.expired.copy())

    @property
    def expired_count(self) -> int:
        return self._thread.ask(lambda: self._real.expired_count)

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def state(self) -> str:
        return self._thread.ask(lambda: self._real.state)

    @property
    def ticket(self) -> int:
        return self._thread.ask(lambda: self._real.ticket)

    @property
    def waiting(self) -> tuple[str, ...]:
        return self._thread.ask(lambda: self._real.waiting)

    @property
    def queued(self) -> int:
        return self._thread.ask(lambda: self._real.queued)

    def stats(self) -> dict[str, Any]:
        return self._thread.ask(self._real.stats)

    def on_expired(self, listener: Callable[[Expired], None]) -> Callable[[], None]:
        stop = self._thread.ask(self._real.on_expired, listener)
        return lambda: self._thread.ask(stop)

    def send(
        self, port: str, body: Any, *, wait: str | None = None, to: Sequence[str] = (), timeout: float | None = None
    ) -> SyncSent:
        return SyncSent(self._thread.call(self._real.send, port, body, wait=wait, to=to, timeout=timeout), self._thread)

    def ask(self, port: str, body: Any, *, timeout: float | None = None) -> Any:
        return self._thread.call(self._real.ask, port, body, timeout=timeout)

    def port(self, name: str) -> SyncSlotPort:
        return SyncSlotPort(self._thread.ask(self._real.port, name), self._thread)

    def add_route(
        self, source: str, target: str, *, capacity: int = CAPACITY, ttl_s: float = TTL_S, timeout: float | None = 10.0
    ) -> None:
        self._thread.call(self._real.add_route, source, target, capacity=capacity, ttl_s=ttl_s, timeout=timeout)

    def del_route(self, source: str, target: str, *, timeout: float | None = 10.0) -> None:
        self._thread.call(self._real.del_route, source, target, timeout=timeout)

    def running(self, timeout: float | None = None) -> None:
        self._thread.call(self._real.running, timeout)

    def changes(self) -> Iterator[Change]:
        return one_by_one(self._thread, self._real.changes())

    def drop_out(self, *, timeout: float = LEAVE_S) -> None:
        self._thread.call(self._real.drop_out, timeout=timeout)

    def move(self, *, drain: bool = False, timeout: float = LEAVE_S) -> Carry:
        return self._thread.call(self._real.move, drain=drain, timeout=timeout)

    def carry(self) -> Carry:
        return self._thread.ask(self._real.carry)

    def close(self) -> None:
        """Leave the slot; its routes stay."""
        if not self.closed and self.state == ENROLLED:
            self._thread.call(self._real.close)


class SyncSlotsHost(Closing):
    """See ``SlotsHost``. Leaving a ``with`` stops it, and cancels the bus."""

    _real: real_hosts.SlotsHost

    @property
    def name(self) -> str:
        return self._thread.ask(lambda: self._real.name)

    @property
    def map(self) -> BusMap:
        return self._thread.ask(lambda: self._real.map)

    @property
    def state(self) -> str:
        return self._thread.ask(lambda: self._real.state)

    def running(self, timeout: float | None = None) -> None:
        self._thread.call(self._real.running, timeout)

    def move(self) -> bytes:
        return self._thread.call(self._real.move)

    def close(self, *, cancel: bool = False) -> None:
        if not self.closed:
            self._thread.call(self._real.close, cancel=cancel)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(cancel=True)


class SyncTool(StandIn):
    """The process of a tool that was started here."""

    _real: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self._real.pid

    @property
    def returncode(self) -> int | None:
        return self._thread.ask(lambda: self._real.returncode)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends; returns its code. ``TimeoutError`` after ``timeout`` seconds."""
        return self._thread.call(asyncio.wait_for, self._real.wait(), timeout)

    def terminate(self) -> None:
        self._thread.ask(self._real.terminate)

    def kill(self) -> None:
        self._thread.ask(self._real.kill)


class SyncCommunicationsManager(StandIn):
    """See ``CommunicationsManager``."""

    _real: real_communications.CommunicationsManager

    def buses(self, *, listen_s: float = LISTEN_S) -> list[Advertise]:
        return self._thread.call(self._real.buses, listen_s=listen_s)

    def changes(self) -> Iterator[list[Advertise]]:
        return one_by_one(self._thread, self._real.changes())

    def show(self, name: str, *, key: str | None = None, timeout: float = SHOW_S) -> BusShown:
        return self._thread.call(self._real.show, name, key=key, timeout=timeout)

    def take_over(self, name: str, *, key: str | None = None, timeout: float = SHOW_S) -> bytes:
        return self._thread.call(self._real.take_over, name, key=key, timeout=timeout)

    def start(self, name: str, slot: str, *, key: str | None = None) -> SyncTool:
        return SyncTool(self._thread.call(self._real.start, name, slot, key=key), self._thread)

    @property
    def started(self) -> list[SyncTool]:
        return [SyncTool(process, self._thread) for process in self._thread.ask(lambda: list(self._real.started))]
