"""Members of one process: a datagram is handed over in the receiving loop's next turn, and none is lost.

Members may live on different loops of different threads (``pluribus.sync`` has a loop of its own), so hand-over goes
through the receiver's loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from itertools import count

from ..core.limits import PATH_BYTES_LOOPBACK, SOCKET_BUFFER_BYTES
from ..core.ports import Address, Datagram, EngineStats
from .udp import check_sizes

_buses: dict[str, dict[Address, InprocEngine]] = {}
_buses_lock = threading.Lock()
_numbers = count(1)


def _forget() -> None:
    """In a forked child: the members of the parent stayed there, and one of them may hold the lock."""
    global _buses_lock
    _buses_lock = threading.Lock()
    _buses.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class InprocEngine:
    name = "inproc"
    broadcasts = True
    local = True
    heard_s = 0.0

    def __init__(self, bus: str) -> None:
        self._bus = bus
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receive: Callable[[list[Datagram]], None] = lambda _: None
        self._arrived: list[Datagram] = []
        self.address: Address = (f"inproc-{next(_numbers)}", 0)
        self.path_bytes = self.long_bytes = PATH_BYTES_LOOPBACK
        self.buffer_bytes = SOCKET_BUFFER_BYTES
        self.stats = EngineStats()
        self.writable = True

    @property
    def places(self) -> tuple[Address, ...]:
        return ((f"process-{os.getpid()}", 0),)

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        with _buses_lock:
            _buses.setdefault(self._bus, {})[self.address] = self

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        check_sizes(datagrams, self.path_bytes)
        peer = _buses.get(self._bus, {}).get(to)
        self._hand_over(datagrams, peer)

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        check_sizes(datagrams, self.path_bytes)
        with _buses_lock:
            peers = [peer for peer in _buses.get(self._bus, {}).values() if peer is not self]
        for peer in peers:
            self._hand_over(datagrams, peer)

    def set_peers(self, peers: Sequence[Address]) -> None:
        """Nothing to do: the registry reaches every member by itself."""

    async def close(self) -> None:
        with _buses_lock:
            members = _buses.get(self._bus, {})
            members.pop(self.address, None)
            if not members:
                _buses.pop(self._bus, None)
        self._loop = None

    def _hand_over(self, datagrams: Sequence[bytes], peer: InprocEngine | None) -> None:
        loop = peer._loop if peer is not None else None
        if peer is None or loop is None or loop.is_closed():
            self.stats.dropped += len(datagrams)
            return
        self.stats.calls_out += 1
        self.stats.datagrams_out += len(datagrams)
        self.stats.bytes_out += sum(map(len, datagrams))
        arrived = [(bytes(datagram), self.address) for datagram in datagrams]
        if loop is self._loop:
            first = not peer._arrived
            peer._arrived += arrived
            if first:
                loop.call_soon(peer._wake)
        else:
            try:
                loop.call_soon_threadsafe(peer._take, arrived)
            except RuntimeError:  # it was closed since we looked
                self.stats.dropped += len(datagrams)

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._take(arrived)

    def _take(self, arrived: list[Datagram]) -> None:
        if self._loop is None or not arrived:
            return
        self.stats.datagrams_in += len(arrived)
        self.stats.bytes_in += sum(len(data) for data, _ in arrived)
        self._receive(arrived)
