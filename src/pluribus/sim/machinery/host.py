"""A simulated machine: clock, disk, one engine an incarnation, and the member that runs on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from ...core.ports import Address, Ports, Timer
from ...core.secret import Secret
from ...core.url import BusUrl
from ...runtime.bus import Bus, opened
from .disk import SimStore
from .kernel import Kernel, Scheduled
from .network import Network, SimEngine

CLOCK_RESOLUTION_S = 1e-9
SECRET = Secret("the secret of every simulated bus")
"""For stacks that name ``secure``."""


class Machine:
    """A machine with processes that share a lock, whether they stand still or not: see ``core.ports.Founding``."""

    def __init__(self, listen_s: float = 0.0) -> None:
        self.listen_s = listen_s
        self.holders: set[SimLock] = set()


class SimLock:
    """The lock of its machine, as one process has it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @property
    def listen_s(self) -> float:
        return self._machine.listen_s

    def claim(self) -> bool:
        return not self._machine.holders - {self} and self.share()

    def share(self) -> bool:
        self._machine.holders.add(self)
        return True

    def release(self) -> None:
        self._machine.holders.discard(self)


class Host:
    """Crashes lose everything but the disk; a pause delays everything, in order, and loses nothing."""

    def __init__(self, name: str, kernel: Kernel, network: Network, seed: str, machine: Machine | None = None) -> None:
        self._machine = machine if machine is not None else Machine()
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
        self._held: deque[Callable[[], None]] = deque()
        self._engine: SimEngine | None = None
        self._ports: dict[int, SimEngine] = {}
        self._disks = 0
        self.disk = self._new_disk()

    def _new_disk(self) -> SimStore:
        self._disks += 1
        seed = f"{self._seed}/{self.name}/disk" + (f"/{self._disks}" if self._disks > 1 else "")
        return SimStore(self._kernel, Random(seed), self._network.faults, gate=self.gate)

    def lose_disk(self) -> None:
        """The machine, which is down, gets a new disk: all data of the old one is gone."""
        assert not self.up
        self.change_disk()

    def change_disk(self) -> None:
        """A new, empty disk, also while the machine is up; a process that uses the old one goes on with the old one."""
        latency_s, self.disk = self.disk.latency_s, self._new_disk()
        self.disk.latency_s = latency_s
        self._network.faults["disk_lost"] += 1

    def random(self, use: str = "") -> Random:
        """A source of chance of the present incarnation."""
        return Random(f"{self._seed}/{self.name}/{self.incarnations}{use}")

    @property
    def up(self) -> bool:
        return self.bus is not None

    async def start(self, url: BusUrl, stack: str) -> Bus:
        """A new incarnation: a new member on the same machine."""
        self.incarnations += 1
        self._engine = self._network.engine(self.address, self.gate)
        lock = SimLock(self._machine)
        ports = Ports(clock=self.clock(), random=self.random(), engine=self._engine, store=self.disk, founding=lock)
        self.bus = await opened(url, self.name, ports, stack, secret=SECRET)
        return self.bus

    def port(self, number: int) -> SimEngine:
        """One more engine on this machine, beside the bus's, for protocols that are tested without a bus."""
        self._ports[number] = self._network.engine((self.name, number), self.gate)
        return self._ports[number]

    def clock(self) -> HostClock:
        """The time of the present incarnation, whose timers end with it."""
        return HostClock(self, self._kernel, self.incarnations)

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
            for engine in self._ports.values():
                engine.cut()
            self._ports.clear()
            self.bus.abandon()
            self.bus = None
            self.disk.crash()
            self._held.clear()
            self._paused_until = 0.0

    def pause(self, seconds: float) -> None:
        if self.bus is not None:
            self._network.faults["pause"] += 1
            self._paused_until = max(self._paused_until, self._kernel.now + seconds)

    def gate(self, callback: Callable[[], None]) -> None:
        """Run now, or when the pause is over, behind every call that waits already."""
        if not self._held and self._paused_until <= self._kernel.now:
            callback()
            return
        if not self._held:
            self._kernel.at(self._paused_until, self._resume)
        self._held.append(callback)

    def _resume(self) -> None:
        while self._held:
            if self._paused_until > self._kernel.now:  # paused again meanwhile
                self._kernel.at(self._paused_until, self._resume)
                return
            self._held.popleft()()


class HostClock:
    """A host's own time, which drifts; timers of a dead incarnation never fire, those of a paused one fire late."""

    def __init__(self, host: Host, kernel: Kernel, incarnation: int) -> None:
        self._host = host
        self._kernel = kernel
        self._incarnation = incarnation

    def now(self) -> float:
        return self._host.local_time()

    elapsed = now
    """A pause stops the host, not its clock."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return HostTimer(self._host, self._kernel, self._incarnation, delay_s, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        HostTimer(self._host, self._kernel, self._incarnation, 0.0, callback)


class HostTimer:
    """Due by the host's own clock: if that slows down meanwhile, the timer waits with it."""

    __slots__ = ("_callback", "_due_at", "_host", "_incarnation", "_kernel", "_scheduled")

    def __init__(
        self, host: Host, kernel: Kernel, incarnation: int, delay_s: float, callback: Callable[[], None]
    ) -> None:
        self._host = host
        self._kernel = kernel
        self._incarnation = incarnation
        self._callback: Callable[[], None] | None = callback
        self._due_at = host.local_time() + delay_s
        self._scheduled: Scheduled = kernel.after(delay_s / host.rate, self._fire)

    def cancel(self) -> None:
        self._callback = None
        self._scheduled.cancel()

    def _fire(self) -> None:
        host = self._host
        if host.incarnations != self._incarnation or host.bus is None:
            return
        early_s = self._due_at - host.local_time()
        if early_s > CLOCK_RESOLUTION_S:
            self._scheduled = self._kernel.after(early_s / host.rate, self._fire)
        else:
            host.gate(self._run)

    def _run(self) -> None:
        if self._callback is not None:  # what ran before it, after a pause, may have cancelled it
            self._callback()
