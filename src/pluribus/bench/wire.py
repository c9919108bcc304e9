"""A wire in one thread, under virtual time: members without sockets, and a record of all their frames.

``pluribus bench fuzz`` gets valid frames of every sort from it, and a node for which it chooses every datagram.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from ..core.errors import Overflow, TooLarge
from ..core.frame import Frame, Header
from ..core.limits import PATH_BYTES_LOOPBACK, SILENCE_S
from ..core.ports import Address, Datagram, EngineStats, Ports, Timer
from ..core.url import BusUrl
from ..runtime.bus import Bus, opened
from ..runtime.group.group import Group
from ..sim.machinery.kernel import Kernel
from ..stack.stack import header_types
from ..wire.bodies import register
from ..wire.questions import FAILED, GOOD, Answered, Asked, Called, wrapped

URL = BusUrl("inproc", "fuzz", text="inproc://fuzz")
GROUPS = ("x", "y")
KEPT_OF_A_SORT = 12


class Wire:
    """Datagrams wait here until ``deliver``; ``lose`` chooses those that never arrive."""

    def __init__(self, seed: int) -> None:
        self.kernel = Kernel()
        self.random = Random(seed)
        self.engines: dict[Address, WireEngine] = {}
        self.waiting: list[tuple[bytes, Address, Address]] = []
        self.said: list[Datagram] = []
        self.loss = 0.0

    async def member(self, name: str, stack: str) -> Bus:
        clock = WireClock(self.kernel)
        ports = Ports(clock=clock, random=Random(self.random.random()), engine=WireEngine(self, (name, 0)))
        return await opened(URL, name, ports, stack)

    def deliver(self) -> None:
        waiting, self.waiting = self.waiting, []
        for data, source, target in waiting:
            engine = self.engines.get(target)
            self.said.append((data, source))
            if engine is not None and self.random.random() >= self.loss:
                engine.receive([(data, source)])

    async def run(self, seconds: float, step_s: float = 0.01) -> None:
        """Let time pass, with turns for the members' own tasks."""
        end = self.kernel.now + seconds
        while self.kernel.now < end:
            self.kernel.run(self.kernel.now + step_s)
            self.deliver()
            await asyncio.sleep(0)

    async def during(self, work: Any) -> Any:
        """Let time pass until a coroutine is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.run(0.05)
        return await task


class WireClock:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def now(self) -> float:
        return self._kernel.now

    elapsed = now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self._kernel.after(delay_s, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._kernel.after(0.0, callback)


class WireEngine:
    broadcasts = True
    name = "wire"
    writable = local = True
    heard_s = 0.0
    places = ()

    def __init__(self, wire: Wire, address: Address) -> None:
        self._wire = wire
        self.address = address
        self.path_bytes = self.long_bytes = PATH_BYTES_LOOPBACK
        self.buffer_bytes = 4 << 20
        self.stats = EngineStats()
        self.receive: Callable[[list[Datagram]], None] = lambda datagrams: None

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        self.receive = receive
        self._wire.engines[self.address] = self

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        self._wire.waiting += [(datagram, self.address, to) for datagram in datagrams]

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        for address in self._wire.engines:
            if address != self.address:
                self.send(datagrams, address)

    def set_peers(self, peers: Sequence[Address]) -> None:
        """The wire reaches everybody."""

    async def close(self) -> None:
        self._wire.engines.pop(self.address, None)


@register
class FuzzTick(msgspec.Struct):
    """A registered type, so that frames with such bodies are recorded, too."""

    symbol: str
    price: float


async def recorded(stack: str, seed: int) -> list[Frame]:
    """Frames of every sort that members of this stack send to each other in a short and eventful run."""
    wire = Wire(seed)
    a, b = await wire.member("a", stack), await wire.member("b", stack)
    groups = [[await wire.during(bus.group(name)) for name in GROUPS] for bus in (a, b)]
    await wire.run(2.0)
    await _talk(wire, groups[0][0], groups[1][0])
    wire.loss = 0.3
    await _talk(wire, groups[0][1], groups[1][1])
    await wire.run(3.0)
    wire.loss = 0.0
    stranger = await wire.member("stranger", _without_one_layer(stack))
    c = await wire.member("c", stack)
    await wire.run(2.0)
    await wire.during(c.group(GROUPS[0]))
    c.abandon()
    await wire.engines[("c", 0)].close()
    await wire.run(2 * SILENCE_S)
    for bus in (stranger, b, a):
        await wire.during(bus.close())
        await wire.run(1.0)
    return _one_of_each_sort(a, wire.said)


async def _talk(wire: Wire, one: Group, other: Group) -> None:
    """Send every kind of body, to all and to one, with answers; then send more than the other member reads, until it
    reads."""
    plain = [b"", b"bytes" * 20, "text", "größe" * 10, None, 7, [1.5, {"deep": [True]}], FuzzTick("IBM", 101.5)]
    words = [
        Asked(1, wrapped("?")),
        Asked(2, wrapped(7), (5, 6)),
        Called(3, "add", (wrapped(1),), {"by": wrapped("x")}),
    ]
    bodies = [*plain, *words, Answered(1, GOOD, wrapped(b"yes")), Answered(2, FAILED, wrapped(["KeyError", "no"]))]
    for sender, receiver in ((one, other), (other, one)):
        sent = None
        for body in bodies:
            sent = await wire.during(sender.send(body, parent=sent))
            await wire.during(sender.send(body, to=receiver.me))
            await wire.run(0.02)
    with suppress(TooLarge):  # of a stack that does not cut
        await wire.during(one.send(bytes(2 * PATH_BYTES_LOOPBACK)))
    with suppress(Overflow):
        for _ in range(3_000):
            await one.send(bytes(1_000), timeout=0)
            await wire.run(0.01)
    await wire.run(1.0)
    for group in (one, other):
        with suppress(TimeoutError):
            while True:
                await group.receive_many(timeout=0)
    await wire.run(1.0)


def _without_one_layer(stack: str) -> str:
    """A stack whose hellos we understand, and refuse."""
    layers = stack.split("|")
    return "|".join([*layers[:-2], layers[-1]])


def _one_of_each_sort(member: Bus, said: list[Datagram]) -> list[Frame]:
    """A few frames of each combination of headers and kind of bodies, small ones first: they are quicker to feed."""
    kept: dict[object, list[Frame]] = {}
    codec = member._stack.node.codec
    for data, _ in sorted(set(said), key=lambda datagram: (len(datagram[0]), datagram)):
        frame = codec.decode(data)
        sort = (tuple(type(header).__name__ for header in frame.headers), frame.kind, frame.to == 0)
        if len(kept.setdefault(sort, [])) < KEPT_OF_A_SORT:
            kept[sort].append(frame)
    frames = [frame for frames in kept.values() for frame in frames]
    seen = {type(header) for frame in frames for header in frame.headers}
    unheard = [header for header in header_types(member._stack.layers) if header not in seen]
    return frames + [_invented(header, frames) for header in unheard]


def _invented(header: type[Header], frames: list[Frame]) -> Frame:
    """A frame with a header that was not sent in this run, and that a peer may send all the same."""
    data = next(frame for frame in frames if frame.count)
    invented = data.copy()
    invented.headers.insert(0, msgspec.convert(_some(msgspec.inspect.type_info(header)), header))
    return invented


def _some(of: msgspec.inspect.Type) -> Any:
    """Any value of a type."""
    match of:
        case msgspec.inspect.StructType():
            tag = [] if of.tag is None else [of.tag]
            return [*tag, *(_some(field.type) for field in of.fields)]
        case msgspec.inspect.UnionType():
            return _some(of.types[0])
        case msgspec.inspect.TupleType():
            return [_some(item) for item in of.item_types]
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType() | msgspec.inspect.SetType():
            return [_some(of.item_type)]
        case msgspec.inspect.DictType():
            return {}
        case msgspec.inspect.BytesType():
            return b"x"
        case msgspec.inspect.StrType():
            return "x"
        case msgspec.inspect.BoolType():
            return True
    return None if isinstance(of, msgspec.inspect.NoneType) else 1
