"""The busiest log of a load, carried by its keepers in the simulator. ``pluribus pipeline scale --simulate SECONDS``.

The voters are hosts of a simulated world and run the keepers that real members run; publishers gather events for a
while, as real ones do, and publish them to the leader. Disks and links have the latencies that are given, and nothing
fails.

Virtual time passes on disks and links only; the work of a processor takes none. So what is found here is what the
protocol makes of a load: the bytes that go to each disk and to the network, how often a disk is synchronised, and how
long a publisher waits for disks and links. How many events a processor takes is measured elsewhere
(``pluribus bench log``), and computed with in ``scale.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.errors import BadInput
from ..core.ports import Datagram
from ..group.keepers import Keeper
from ..runtime.keepers.desk import KeeperDesk
from ..runtime.styles.topics.durable import Durable
from ..sim.machinery.network import Link
from ..sim.machinery.world import World
from ..sim.machinery.world import run as run_world

PUBLISHERS = 64
GATHER_S = 0.05
"""How long a publisher gathers events before it publishes them."""
PORT = 7
EPOCH_S = 1e9
"""The time of day when the world begins."""
EVENTS_MAX = 300_000
PATIENCE_S = 60.0


class Site(msgspec.Struct, frozen=True):
    """Where the keepers stand."""

    voters: int = 3
    disk_s: float = 0.002
    """Of one synchronisation of a disk, on average."""
    link_s: float = 0.0005
    """One way, between any two machines."""
    line_bytes_s: float = 125e6
    """What a machine can send: a gigabit."""


def simulated(topics: Mapping[str, float], rate: float, body_bytes: int, seconds: float, seed: int, site: Site) -> Any:
    """``rate`` events a second to these topics, by their weights, for so many seconds: what it costs disks and network,
    and how long publishers wait. ``BadInput`` if that is too much to be played."""
    events = rate * seconds
    if not 1 <= events <= EVENTS_MAX:
        raise BadInput(
            f"{seconds:g} s of {rate:,.0f} events a second are {events:,.0f} events: between 1 and {EVENTS_MAX:,} can "
            "be played, simulate more or fewer seconds"
        )
    return run_world(_played(topics, rate, body_bytes, seconds, seed, site))


class _Voter:
    """One keeper, with its desk, on a host of the world."""

    def __init__(self, room: _Room, number: int) -> None:
        host = room.world.hosts[number]
        host.disk.latency_s = room.site.disk_s
        self.disk, self.engine = host.disk, host.port(PORT)
        self._room = room
        wall = lambda: EPOCH_S + room.world.now  # noqa: E731
        self.keeper = Keeper("load", host.disk, self, host.clock(), host.random("/keeper"), wall=wall)
        self.desk = KeeperDesk(self.keeper)
        self._address = (host.name, PORT)

    async def start(self) -> None:
        await self.engine.open(self._receive, lambda: None)
        self._room.addresses[self.keeper.id] = self._address
        self.keeper.start()
        self.desk.tending.start()

    def stop(self) -> None:
        self.keeper.stop()
        self.desk.close()

    def send(self, to: int, words: bytes) -> None:
        self.engine.send([words], self._room.addresses[to])

    def others(self) -> list[int]:
        return [keeper for keeper in self._room.addresses if keeper != self.keeper.id]

    def _receive(self, datagrams: list[Datagram]) -> None:
        for datagram, _ in datagrams:
            self.keeper.receive(datagram)

    def costs(self) -> tuple[int, int, int]:
        """Bytes and synchronisations of its disk, and bytes that it has sent."""
        return self.disk.written_bytes, self.disk.writes, self.engine.stats.bytes_out

    def events(self) -> int:
        return sum(end - first for first, end in self.desk.of_topics.topics.bounds.values())


class _Room:
    """The voters of the log, and a line of publishers to their leader."""

    def __init__(self, world: World, site: Site) -> None:
        self.world = world
        self.site = site
        self.addresses: dict[int, tuple[str, int]] = {}
        self.voters = [_Voter(self, number) for number in range(site.voters)]

    async def begin(self) -> None:
        for voter in self.voters:
            await voter.start()
        keepers = [voter.keeper for voter in self.voters]
        await self.until(lambda: all(keeper.seat.may_speak for keeper in keepers), "keepers may speak")
        keepers[0].found([keeper.id for keeper in keepers])
        await self.until(lambda: any(keeper.leads for keeper in keepers), "a keeper leads")

    async def until(self, holds: Any, what: str) -> None:
        last = self.world.now + PATIENCE_S
        while not holds():
            if self.world.now > last:
                raise AssertionError(f"{what}: not within {PATIENCE_S:g} s")
            await asyncio.sleep(0.01)

    @property
    def leader(self) -> _Voter:
        return next(voter for voter in self.voters if voter.keeper.leads)

    async def ask(self, request: Any) -> Any:
        await asyncio.sleep(self.site.link_s)
        answer = await self.leader.desk.ask(request)
        await asyncio.sleep(self.site.link_s)
        return answer

    def ask_now(self, put: Any, answered: Any) -> bool:
        return False


async def _played(
    topics: Mapping[str, float], rate: float, body_bytes: int, seconds: float, seed: int, site: Site
) -> dict[str, Any]:
    async with World(site.voters, seed) as world:
        world.set_link(Link(latency_s=site.link_s, jitter_s=0.0, bandwidth_bytes_s=site.line_bytes_s))
        room = _Room(world, site)
        await room.begin()
        names, weights, body = list(topics), list(topics.values()), bytes(body_bytes)
        waits: list[float] = []
        under_way: set[asyncio.Task[None]] = set()

        async def publish(durable: Durable, count: int) -> None:
            began = world.now
            some = sorted(world.random.choices(names, weights, k=count))
            await durable.publish_many([(topic, body) for topic in some])
            waits.extend([world.now - began] * count)

        async def publisher() -> None:
            """In bursts: in each stretch between nothing and twice its share."""
            durable = Durable(room, 1, lambda: world.random.getrandbits(62) + 1, lambda: EPOCH_S + world.now)
            await asyncio.sleep(GATHER_S * world.random.random())
            left = 0.0
            while world.now < until:
                await asyncio.sleep(GATHER_S)
                left += 2 * world.random.random() * rate * GATHER_S / PUBLISHERS
                if left >= 1:
                    task = asyncio.ensure_future(publish(durable, int(left)))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    left -= int(left)

        until = world.now + seconds
        before = [voter.costs() for voter in room.voters]
        await asyncio.gather(*(publisher() for _ in range(PUBLISHERS)))
        await asyncio.gather(*under_way)
        await room.until(
            lambda: all(voter.events() == len(waits) for voter in room.voters), "all voters have all events"
        )
        spent = [
            [now - then for now, then in zip(voter.costs(), old, strict=True)]
            for voter, old in zip(room.voters, before, strict=True)
        ]
        found = _costs(spent, sorted(waits), seconds)
        for voter in room.voters:
            voter.stop()
        return found


def _costs(spent: list[list[int]], waits: list[float], seconds: float) -> dict[str, Any]:
    disk_bytes, writes, sent = (max(column) for column in zip(*spent, strict=True))
    return {
        "seconds": seconds,
        "events": len(waits),
        "disk_bytes_s": round(disk_bytes / seconds),
        "disk_bytes_an_event": round(disk_bytes / len(waits), 1),
        "disk_syncs_s": round(writes / seconds),
        "leader_sends_bytes_s": round(sent / seconds),
        "wait_p50_s": round(waits[len(waits) // 2], 4),
        "wait_p99_s": round(waits[int(0.99 * len(waits))], 4),
    }
