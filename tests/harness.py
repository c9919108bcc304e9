"""A world in the hand: members without a loop, a clock that moves when told, datagrams that wait until delivered.

For tests that must say which datagram is lost and when a timer fires. Tests of whole runs use ``pluribus.sim``; tests
of the runtime use ``on_a_loop`` and ``eventually``.
"""

import asyncio
import functools
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any, TypeVar

from pluribus import Bus, Group, connect
from pluribus.core.ports import Address, Datagram, EngineStats, Ports
from pluribus.group.dispatch import Dispatch
from pluribus.layers import CATALOGUE
from pluribus.layers.transport import Transport
from pluribus.stack.layer import Layer, Node
from pluribus.stack.specification import build
from pluribus.stack.stack import Stack

T = TypeVar("T")
BEST_EFFORT = "transport | presence | window | groups"


def only(things: Sequence[T]) -> T:
    """The one that there is."""
    (thing,) = things
    return thing


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    def __init__(self) -> None:
        self._now = 0.0
        self._heap: list[tuple[float, int, ManualTimer]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    elapsed = now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> ManualTimer:
        self._count += 1
        timer = ManualTimer(callback)
        heapq.heappush(self._heap, (self._now + delay_s, self._count, timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0.0, callback)

    @property
    def pending(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._heap)

    def advance(self, seconds: float, between: Callable[[], Any] = lambda: None) -> None:
        """Move on, firing timers in their order; ``between`` is called after each, e.g. to deliver what it sent."""
        end = self._now + seconds
        while self._heap and self._heap[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._heap)
            if timer.callback is not None:
                timer.callback()
                between()
        self._now = end


class Medium:
    """Where datagrams wait. ``lose`` says which of them never arrive."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engines: dict[Address, FakeEngine] = {}
        self.waiting: list[tuple[bytes, Address, Address]] = []
        self.lose: Callable[[bytes, Address, Address], bool] = lambda data, source, target: False

    def deliver(self) -> int:
        """Hand over everything that waits, and what is sent in answer to it, until it is quiet."""
        count = 0
        while self.waiting:
            count += self.deliver_next()
        return count

    def deliver_next(self, at: int = 0) -> int:
        data, source, target = self.waiting.pop(at)
        engine = self.engines.get(target)
        if engine is None or self.lose(data, source, target):
            return 0
        engine.receive([(data, source)])
        return 1

    def run(self, seconds: float) -> None:
        """Time goes on and everything is delivered at once."""
        self.deliver()
        self.clock.advance(seconds, self.deliver)


class FakeEngine:
    name = "fake"

    def __init__(self, medium: Medium, address: Address, path_bytes: int = 60_000) -> None:
        self.medium = medium
        self.address = address
        self.path_bytes = self.long_bytes = path_bytes
        self.buffer_bytes = 4 << 20
        self.stats = EngineStats()
        self.writable = True
        self.peers: Sequence[Address] = ()
        self.receive: Callable[[list[Datagram]], None] = lambda datagrams: None
        medium.engines[address] = self

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        self.receive = receive
        self.room = room

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        assert all(len(datagram) <= self.path_bytes for datagram in datagrams)
        self.medium.waiting += [(datagram, self.address, to) for datagram in datagrams]

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        for address in sorted(self.medium.engines):
            if address != self.address:
                self.send(datagrams, address)

    def set_peers(self, peers: Sequence[Address]) -> None:
        self.peers = peers

    async def close(self) -> None:
        self.medium.engines.pop(self.address, None)


class Member:
    """A whole stack on the medium, without a loop above it."""

    def __init__(
        self, medium: Medium, name: str, stack: str = BEST_EFFORT, *, layers: list[Layer] | None = None, **engine: Any
    ) -> None:
        self.medium = medium
        self.name = name
        self.engine = FakeEngine(medium, (name, 0), **engine)
        self.me = Random(name).getrandbits(62) + 1
        self.layers = layers or build(stack, {**CATALOGUE, Dispatch.name: Dispatch})
        ports = Ports(clock=medium.clock, random=Random(f"chance of {name}"), engine=self.engine)
        self.stack = Stack(self.layers, ports, Node(self.me, name, "demo"))
        transport = self.layer(Transport)
        self.engine.receive = lambda datagrams: self.stack.run(lambda: transport.receive(datagrams))

    def layer(self, kind: type[Any]) -> Any:
        return next(layer for layer in self.layers if isinstance(layer, kind))

    def start(self) -> "Member":
        self.stack.start()
        return self

    def crash(self) -> None:
        self.stack.abandon()
        self.medium.engines.pop(self.engine.address, None)

    def stats(self, layer: str) -> dict[str, Any]:
        return self.stack.stats()[layer]


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine; it ends within half a minute, one way or the other."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(30):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return run


async def eventually(condition: Callable[[], Any], what: str = "", within_s: float = 10.0) -> Any:
    """Give the loop turns until the condition holds; its value. The deadline is a failure, never a way to pass."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not (found := condition()):
        assert loop.time() < deadline, f"{what or 'the condition'} did not come true within {within_s} s"
        await asyncio.sleep(0.001)
    return found


_buses = count(1)


def new_bus() -> str:
    """The URL of an in-process bus that no other test is on."""
    return f"inproc://test-{next(_buses)}"


@asynccontextmanager
async def two(url: str | None = None, **options: Any) -> AsyncIterator[tuple[Bus, Bus]]:
    """Two members of a bus, best effort unless told otherwise."""
    url = url or new_bus()
    options.setdefault("stack", "best-effort")
    async with connect(url, name="a", **options) as a, connect(url, name="b", **options) as b:
        yield a, b


@asynccontextmanager
async def two_in_a_group(
    url: str | None = None, own: bool = True, **options: Any
) -> AsyncIterator[tuple[Group, Group]]:
    """Two members that know each other in group x."""
    async with two(url, **options) as (a, b):
        one, other = await a.group("x", own=own), await b.group("x", own=own)
        await one.wait_for(2)
        await other.wait_for(2)
        yield one, other
