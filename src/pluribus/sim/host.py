"""A simulated machine: clock, disk, one engine an incarnation, and the member that runs on it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..core.ports import Address, Ports, Timer
from ..core.url import BusUrl
from ..runtime.bus import Bus, opened
from .disk import SimStore
from .kernel import Kernel
from .network import Network, SimEngine


class Host:
    """Crashes lose everything but the disk; a pause delays everything and loses nothing."""

    def __init__(self, name: str, kernel: Kernel, network: Network, seed: str) -> None:
        self.name = name
        self.address: Address = (name, 0)
        self.bus: Bus | None = None
        self.incarnations = 0
        self._rate = 1.0
        self._rate_since = 0.0
        self._local_then = 0.0
        self._kernel = kernel
        self._network = network
        self._seed = seed
        self._paused_until = 0.0
        self._engine: SimEngine | None = None
        self.disk = SimStore(kernel, Random(f"{seed}/{name}/disk"), network.faults)

    @property
    def up(self) -> bool:
        return self.bus is not None

    async def start(self, url: BusUrl, stack: str) -> Bus:
        """A new incarnation: a new member on the same machine."""
        self.incarnations += 1
        self._engine = self._network.engine(self.address, self.gate)
        clock = HostClock(self, self._kernel, self.incarnations)
        random = Random(f"{self._seed}/{self.name}/{self.incarnations}")
        ports = Ports(clock=clock, random=random, engine=self._engine, store=self.disk)
        self.bus = await opened(url, self.name, ports, stack)
        return self.bus

    @property
    def rate(self) -> float:
        return self._rate

    def local_time(self) -> float:
        return self._local_then + (self._kernel.now - self._rate_since) * self._rate

    def drift(self, rate: float) -> None:
        """The clock goes on from where it is, at another rate; it never jumps."""
        self._local_then, self._rate_since, self._rate = self.local_time(), self._kernel.now, rate

    def crash(self) -> None:
        if self.bus is not None and self._engine is not None:
            self._network.faults["crash"] += 1
            self._engine.cut()
            self.bus.abandon()
            self.bus = None
            self.disk.crash()

    def pause(self, seconds: float) -> None:
        self._network.faults["pause"] += 1
        self._paused_until = max(self._paused_until, self._kernel.now + seconds)

    def gate(self, callback: Callable[[], None]) -> None:
        """Run now, or when the pause is over."""
        if self._paused_until > self._kernel.now:
            self._kernel.at(self._paused_until, lambda: self.gate(callback))
        else:
            callback()


class HostClock:
    """A host's own time, which drifts; timers of a dead incarnation never fire, those of a paused one fire late."""

    def __init__(self, host: Host, kernel: Kernel, incarnation: int) -> None:
        self._host = host
        self._kernel = kernel
        self._incarnation = incarnation

    def now(self) -> float:
        return self._host.local_time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self._kernel.after(delay_s / self._host.rate, lambda: self._fire(callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._kernel.after(0.0, lambda: self._fire(callback))

    def _fire(self, callback: Callable[[], None]) -> None:
        host = self._host
        if host.incarnations == self._incarnation and host.bus is not None:
            host.gate(callback)
