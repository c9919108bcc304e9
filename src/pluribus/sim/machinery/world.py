"""A world: a whole cluster in one thread, under virtual time, one seed and injected faults.

::

    async with pluribus.sim.world(members=5, seed=42) as world:
        groups = [await bus.group("alarms") for bus in world.buses]
        await groups[0].wait_for(5)
        world.partition([0, 1], [2, 3, 4])
        await asyncio.sleep(60)              # takes no time
        world.heal()

Members run the very stack that they run on sockets; only the ports differ. Everything that happens is folded into
``trace_hash``: the same seed and the same program give the same hash, in any process, whatever ``PYTHONHASHSEED`` is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from ...core.errors import BadInput, Violation
from ...core.url import BusUrl
from ...runtime.bus import BEST_EFFORT, STACKS, Bus
from .host import Host, Machine
from .kernel import Kernel
from .loop import VirtualTime
from .network import Link, Medium, Network

T = TypeVar("T")
CANCELS_MAX = 100
SIMULATED = BusUrl("sim", "world", (), {}, "sim://world")


class World:
    """Made by ``world``; it has everything that a test does to its cluster."""

    def __init__(
        self,
        members: int,
        seed: int,
        *,
        stack: str = BEST_EFFORT,
        medium: Medium = Medium(),  # noqa: B008 - it is frozen
        trace: Callable[[str], None] | None = None,
    ) -> None:
        if members < 0:
            raise BadInput(f"a world of {members} members cannot be: use 0 or more")
        self.seed = seed
        self.kernel = Kernel()
        self.random = Random(f"{seed}/world")
        """A source of chance for the test itself; hosts and network have their own."""
        self.network = Network(self.kernel, Random(f"{seed}/network"), self.note, medium)
        self.stack = STACKS.get(stack, stack)
        self._trace = trace
        self._hash = blake2b(digest_size=16)
        self._time = VirtualTime(self.kernel)
        self._machines = [Machine(medium.listen_s) for _ in range(medium.machines)]
        self.hosts: list[Host] = []
        for number in range(members):
            self.hosts.append(self._new_host(f"m{number}"))
        self.network.places = tuple(host.address for host in self.hosts[:2])

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self.kernel.now

    @property
    def buses(self) -> list[Bus]:
        """The buses of the members that are up."""
        return [host.bus for host in self.hosts if host.bus is not None]

    @property
    def faults(self) -> Counter[str]:
        """How often each fault struck."""
        return self.network.faults

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def note(self, kind: str, where: str, data: bytes) -> None:
        """Fold something that happened into the trace."""
        line = f"{self.kernel.now:.9f} {kind} {where} "
        self._hash.update(line.encode())
        self._hash.update(data)
        if self._trace is not None:
            self._trace(line + data.hex())

    async def add(self) -> Host:
        """One more machine with a member on it."""
        host = self._new_host(f"m{len(self.hosts)}")
        self.note("add", host.name, b"")
        self.hosts.append(host)
        await host.start(SIMULATED, self.stack)
        return host

    def crash(self, member: int) -> None:
        """The machine loses power: its member is gone, its unsynced writes too."""
        host = self._host(member)
        self.note("crash", host.name, b"")
        host.crash()

    async def restart(self, member: int) -> Bus:
        """The machine starts again with what its disk holds; its member is a new one."""
        host = self._host(member)
        if host.up:
            raise BadInput(f"{host.name} is up: crash it before you restart it")
        self.faults["restart"] += 1
        self.note("restart", host.name, b"")
        return await host.start(SIMULATED, self.stack)

    async def keep(self, member: int, *, voters: int = 1) -> None:
        """The member becomes a keeper, with the disk of its machine as the store, as with ``connect(store=, voters=)``.
        So durable topics, queues and transactions work in this world. A member that is restarted is no keeper before
        this is called again."""
        host = self._host(member)
        if host.bus is None:
            raise BadInput(f"{host.name} is down: restart it, and then let it keep")
        self.note("keep", host.name, b"")
        keeping = host.bus.keeping
        keeping._keeps = True
        await keeping.keep_in(await keeping.meeting(), host.disk, votes=True, voters=voters)

    def pause(self, member: int, seconds: float) -> None:
        """The member stands still, as in a long garbage collection; nothing is lost, but everything is late."""
        if not 0 <= seconds < float("inf"):
            raise BadInput(f"a pause of {seconds} s cannot be: use 0 or more")
        host = self._host(member)
        self.note("pause", host.name, str(seconds).encode())
        host.pause(seconds)

    def drift(self, member: int, rate: float) -> None:
        """The member's clock runs at this rate from now on; 1.01 is a second too fast in a hundred."""
        if not 0 < rate < float("inf"):
            raise BadInput(f"a clock at rate {rate} cannot be: use more than 0, 1 for a true one")
        host = self._host(member)
        self.faults["drift"] += 1
        self.note("drift", host.name, str(rate).encode())
        host.drift(rate)

    def partition(self, *sides: Iterable[int]) -> None:
        """Only members of the same side reach each other; those that are on no side form one."""
        named = [sorted(side) for side in sides]
        addresses = [[self._host(member).address for member in side] for side in named]
        twice = sum(map(len, named)) - len({member for side in named for member in side})
        if twice:
            raise BadInput(f"a partition {named} has a member on two sides: name each once")
        self.note("partition", "", str(named).encode())
        self.network.partition(addresses)

    def heal(self) -> None:
        self.note("heal", "", b"")
        self.network.heal()

    def set_link(self, link: Link, source: int | None = None, target: int | None = None) -> None:
        """How datagrams travel: everywhere, or from one member to another."""
        self.note("link", f"{source}-{target}", repr(link).encode())
        if source is None and target is None:
            self.network.link = link
        elif source is None or target is None:
            raise BadInput("a link has two ends: give source and target, or neither for all links")
        else:
            self.network.set_link(self._host(source).address, self._host(target).address, link)

    def flip_bit(self, member: int) -> bool:
        """One bit of one stored row of the member's disk turns over."""
        host = self._host(member)
        self.note("flip", host.name, b"")
        return host.disk.flip()

    def validate(self) -> None:
        """Assert every invariant of every member, and that no layer failed on a frame, which a member survives."""
        for bus in self.buses:
            bus.validate()
            faulty = bus.stats()["transport"]["faulty"]
            if faulty:
                raise Violation(f"{bus.name} has met {faulty} frames that a layer could not handle: its log says which")

    def _host(self, member: int) -> Host:
        if not 0 <= member < len(self.hosts):
            raise BadInput(f"there is no member {member} in this world: use 0 to {len(self.hosts) - 1}")
        return self.hosts[member]

    def _new_host(self, name: str) -> Host:
        medium, number = self.network.medium, len(self.hosts)
        machine = self._machines[number % medium.machines] if medium.machines else Machine(medium.listen_s)
        return Host(name, self.kernel, self.network, str(self.seed), machine)

    async def __aenter__(self) -> World:
        self._time.enter()
        try:
            for host in self.hosts:
                await host.start(SIMULATED, self.stack)
        except BaseException:
            self._time.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            if host.bus is not None:
                host.bus.abandon()
        self._time.leave()


def world(
    members: int = 3,
    seed: int = 0,
    *,
    stack: str = BEST_EFFORT,
    medium: Medium = Medium(),  # noqa: B008 - it is frozen
    trace: Callable[[str], None] | None = None,
) -> World:
    """A world for ``async with``. ``stack`` is a name or layers, as ``connect`` takes them. ``medium`` is the kind of
    engine that its hosts have. ``trace`` is called with a line for everything that happens."""
    return World(members, seed, stack=stack, medium=medium, trace=trace)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that opens worlds: ``asyncio.run`` on the standard loop, which worlds need."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        try:
            return runner.run(main)
        finally:
            _end_tasks(runner.get_loop())


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what a world that failed has left behind, more than once: a task that gets its answer in the same moment
    goes on as if nothing had been, and may then wait for a virtual time that does not come any more."""
    for _ in range(CANCELS_MAX):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        with suppress(Exception):  # the world may fail once more while it is left
            loop.run_until_complete(asyncio.wait(tasks, timeout=0.0))


def split(members: Sequence[int], random: Random) -> tuple[list[int], list[int]]:
    """Two sides by chance, none of them empty."""
    shuffled = list(members)
    random.shuffle(shuffled)
    at = random.randrange(1, len(shuffled))
    return sorted(shuffled[:at]), sorted(shuffled[at:])
