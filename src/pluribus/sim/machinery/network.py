"""The simulated network: links with latency, bandwidth, loss, duplication, reordering and damage; partitions.

A host that is busy reads late: it gets the datagrams that came meanwhile in one list, as with sockets.

Datagrams between two hosts keep their order unless the link reorders them. Damage is found by the receiving host's
checksum, as UDP finds it, and counts as loss; ``unchecked`` lets the damaged bytes through, for testing what the layers
make of them. Every fault that strikes is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import msgspec

from ...core.errors import BadInput
from ...core.limits import PATH_BYTES_LOOPBACK
from ...core.ports import Address, Datagram, EngineStats
from .kernel import Kernel

LATE_S = 0.01


class Link(msgspec.Struct, frozen=True):
    """The way of one host's datagrams to another."""

    latency_s: float = 0.0005
    jitter_s: float = 0.0005
    bandwidth_bytes_s: float = 0.0
    """The bytes that a host can send in a second; 0 for no bound."""
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    late: float = 0.0
    """How often the receiver is busy when something arrives, and reads it up to ``LATE_S`` later."""
    unchecked: bool = False

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt", "late"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name}={getattr(self, name)} of a link is no probability: use 0 to 1")
        for name in ("latency_s", "jitter_s", "bandwidth_bytes_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadInput(f"{name}={getattr(self, name)} of a link cannot be: use 0 or more")


class Medium(msgspec.Struct, frozen=True):
    """What engine the hosts have: one send reaches everybody, or each is sent to by itself; and how long a datagram may
    be. Without broadcast, hosts know the first two of the world from the beginning and learn of the others."""

    broadcasts: bool = True
    path_bytes: int = PATH_BYTES_LOOPBACK
    machines: int = 0
    """Hosts are processes of so many machines, whose locks they share; 0: each has a machine of its own."""
    shared: bool = False
    """What is sent to everybody takes the sender's line once, as multicast does; else once for each."""
    listen_s: float = 0.0
    """A member that starts listens for so long before it founds a primary by itself."""

    def __str__(self) -> str:
        shared = f" on {self.machines} machines" if self.machines else ""
        return f"{'broadcast' if self.broadcasts else 'unicast'} {self.path_bytes}{shared}"


class Network:
    """The links between hosts, and their quality."""

    def __init__(
        self,
        kernel: Kernel,
        random: Random,
        note: Callable[[str, str, bytes], None],
        medium: Medium = Medium(),  # noqa: B008 - it is frozen
    ) -> None:
        self.medium = medium
        self.places: tuple[Address, ...] = ()
        """Where a host without broadcast looks for others."""
        self._kernel = kernel
        self._random = random
        self._note = note
        self._engines: dict[Address, SimEngine] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._sides: dict[str, int] = {}
        self._last_arrival: dict[tuple[Address, Address], float] = {}
        self._uplink_free_at: dict[str, float] = {}
        self.link = Link()
        self.faults: Counter[str] = Counter()

    def engine(self, address: Address, gate: Callable[[Callable[[], None]], None]) -> SimEngine:
        """A new engine at an address; ``gate`` holds back what arrives while the host is paused."""
        return SimEngine(self, address, gate)

    def set_link(self, source: Address, target: Address, link: Link) -> None:
        self._links[(source[0], target[0])] = link

    def clear_links(self) -> None:
        self._links.clear()

    def partition(self, sides: Sequence[Iterable[Address]]) -> None:
        """Only hosts of the same side reach each other; hosts on no side are a side of their own together."""
        self._sides = {address[0]: number for number, side in enumerate(sides, 1) for address in side}
        self.faults["partition"] += 1

    def heal(self) -> None:
        if self._sides:
            self.faults["heal"] += 1
        self._sides = {}

    @property
    def partitioned(self) -> bool:
        return bool(self._sides)

    def attach(self, engine: SimEngine) -> None:
        self._engines[engine.address] = engine

    def detach(self, engine: SimEngine) -> None:
        if self._engines.get(engine.address) is engine:
            del self._engines[engine.address]

    def others(self, address: Address) -> list[Address]:
        """At the same port of other hosts."""
        return [other for other in sorted(self._engines) if other != address and other[1] == address[1]]

    def carry(self, source: Address, target: Address, data: bytes) -> None:
        """One datagram is sent; its fate is decided now and happens later."""
        if self._sides and self._sides.get(source[0], 0) != self._sides.get(target[0], 0):
            self.faults["cut"] += 1
            return
        link = self._links.get((source[0], target[0]), self.link)
        random = self._random
        if link.loss and random.random() < link.loss:
            self.faults["loss"] += 1
            return
        if link.corrupt and random.random() < link.corrupt:
            self.faults["corrupt"] += 1
            if not link.unchecked:
                return
            damaged = bytearray(data)
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
            data = bytes(damaged)
        self._schedule(source, target, data, link)
        if link.duplicate and random.random() < link.duplicate:
            self.faults["duplicate"] += 1
            self._schedule(source, target, data, link)

    def carry_all(self, source: Address, targets: Sequence[Address], data: bytes) -> None:
        """One datagram for everybody, which takes the sender's line once."""
        free_at = self._uplink_free_at.get(source[0], 0.0)
        for target in targets:
            self._uplink_free_at[source[0]] = free_at
            self.carry(source, target, data)

    def _schedule(self, source: Address, target: Address, data: bytes, link: Link) -> None:
        kernel, random, pair = self._kernel, self._random, (source, target)
        leaves_at = kernel.now
        if link.bandwidth_bytes_s:
            leaves_at = max(leaves_at, self._uplink_free_at.get(source[0], 0.0)) + len(data) / link.bandwidth_bytes_s
            self._uplink_free_at[source[0]] = leaves_at
        arrives_at = leaves_at + link.latency_s + link.jitter_s * random.random()
        if link.reorder and random.random() < link.reorder:
            self.faults["reorder"] += 1
            arrives_at += 10 * (link.latency_s + link.jitter_s) * random.random()
        else:
            arrives_at = max(arrives_at, self._last_arrival.get(pair, 0.0))
            self._last_arrival[pair] = arrives_at
        late_s = LATE_S * random.random() if link.late and random.random() < link.late else 0.0
        kernel.at(arrives_at, lambda: self._arrive(source, target, data, late_s))

    def _arrive(self, source: Address, target: Address, data: bytes, late_s: float) -> None:
        engine = self._engines.get(target)
        if engine is None:
            return
        self._note("datagram", target[0], data)
        if engine.arrive((data, source)):
            if late_s:
                self._kernel.after(late_s, engine.read)
            else:
                engine.read()


class SimEngine:
    """The engine port on the simulated network."""

    name = "sim"
    writable = True
    local = False
    heard_s = 0.0
    places = ()

    def __init__(self, network: Network, address: Address, gate: Callable[[Callable[[], None]], None]) -> None:
        self._network = network
        self._gate = gate
        self._receive: Callable[[list[Datagram]], None] | None = None
        self.address = address
        self.broadcasts = network.medium.broadcasts
        self.path_bytes = self.long_bytes = network.medium.path_bytes
        self._peers: tuple[Address, ...] = ()
        self._arrived: list[Datagram] = []
        self.buffer_bytes = 4 << 20
        self.stats = EngineStats()

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        self._receive = receive
        self._network.attach(self)

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        self.stats.calls_out += 1
        for datagram in datagrams:
            self.stats.datagrams_out += 1
            self.stats.bytes_out += len(datagram)
            self._network.carry(self.address, to, datagram)

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        others = self._network.others(self.address) if self.broadcasts else self._targets()
        if self._network.medium.shared:
            self.stats.calls_out += 1
            for datagram in datagrams:
                self.stats.datagrams_out += 1
                self.stats.bytes_out += len(datagram)
                self._network.carry_all(self.address, others, datagram)
            return
        for other in others:
            self.send(datagrams, other)

    def _targets(self) -> list[Address]:
        known = dict.fromkeys((*self._network.places, *self._peers))
        return [address for address in known if address != self.address]

    def set_peers(self, peers: Sequence[Address]) -> None:
        self._peers = tuple(peers)

    def arrive(self, datagram: Datagram) -> bool:
        """True if it is the first that waits to be read."""
        self.stats.datagrams_in += 1
        self.stats.bytes_in += len(datagram[0])
        self._arrived.append(datagram)
        return len(self._arrived) == 1

    def read(self) -> None:
        """The host reads the datagrams that have come, as soon as it can."""
        self._gate(self._hand_over)

    def _hand_over(self) -> None:
        arrived, self._arrived = self._arrived, []
        if len(arrived) > 1:
            self._network.faults["together"] += 1
        if arrived and self._receive is not None:
            self._receive(arrived)

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        """Off the network at once, as a crash does."""
        self._receive = None
        self._arrived.clear()
        self._network.detach(self)

    def __repr__(self) -> str:
        return f"<simulated engine {self.address[0]}>"


def faulty_link(random: Random, severity: float = 1.0) -> Link:
    """A link with every fault at once, each of a strength that chance picks up to ``severity``."""

    def up_to(most: float) -> Any:
        return round(random.random() * most * severity, 4)

    return Link(
        latency_s=0.0002 + up_to(0.005),
        jitter_s=up_to(0.005),
        bandwidth_bytes_s=random.choice([0.0, 0.0, 1e6, 1e7]),
        loss=up_to(0.2),
        duplicate=up_to(0.1),
        reorder=up_to(0.2),
        corrupt=up_to(0.05),
        late=up_to(0.5),
    )
