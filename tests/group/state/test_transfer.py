"""State transfer in worlds of members: whoever joins has applied every message once, whatever happens meanwhile."""

import asyncio
from collections.abc import Iterable

import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.runtime.bus import VIEWS
from pluribus.sim.machinery.network import Link

ORDERS = ("fifo", "causal", "semantic", "total", "total safe")


class Notes:
    """An application whose state is the list of what it read."""

    def __init__(self, padding: int = 0) -> None:
        self.read: list[bytes] = []
        self.padding = bytes(padding)
        self.restores = 0
        self.fails = False

    def snapshot(self) -> bytes | Iterable[bytes]:
        if self.fails:
            raise RuntimeError("the disk is on fire")
        return b",".join([*self.read, self.padding])

    def restore(self, state: bytes) -> None:
        *self.read, self.padding = state.split(b",")
        self.restores += 1


class Parted(Notes):
    def snapshot(self) -> Iterable[bytes]:
        yield from (note + b"," for note in self.read.copy())


class Cluster:
    def __init__(self, world: pluribus.sim.World, order: str, kind: type[Notes] = Notes) -> None:
        self.world = world
        self.order = order
        self.kind = kind
        self.notes: dict[int, Notes] = {}
        self.groups: dict[int, pluribus.Group] = {}
        self.readers: dict[int, asyncio.Task[None]] = {}

    async def join(self, number: int, notes: Notes | None = None, *, read: bool = True) -> None:
        bus = self.world.hosts[number].bus
        notes = notes or self.kind()
        order, _, safe = self.order.partition(" ")
        self.groups[number] = await bus.group("notes", order=order, safe=bool(safe), state=notes)
        self.notes[number] = notes
        if read:
            self.readers[number] = asyncio.create_task(self._read(number))

    async def _read(self, number: int) -> None:
        async for message in self.groups[number]:
            self.notes[number].read.append(message.body)

    async def chatter(self, number: int, rounds: int, every_s: float = 0.01) -> None:
        for round in range(rounds):
            for part in range(3):
                await self.groups[number].send(b"%d/%d/%d" % (number, round, part))
            await asyncio.sleep(every_s)

    def check(self, *numbers: int, messages: int | None = None) -> None:
        """All have read the same, each message once; in ordered groups in the same order."""
        first = self.notes[numbers[0]].read
        assert len(set(first)) == len(first)
        assert messages is None or len(first) == messages
        for number in numbers[1:]:
            mine = self.notes[number].read
            assert sorted(mine) == sorted(first)
            assert not self.order.startswith("total") or mine == first


def transfer_of(group: pluribus.Group):
    return group._channel.state


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", [1, 2])
def test_joiners_have_applied_every_message_once_while_the_group_goes_on(order: str, seed: int):
    async def main() -> None:
        async with pluribus.sim.world(members=5, seed=seed, stack=VIEWS) as world:
            world.set_link(Link(loss=0.05, jitter_s=0.002))
            cluster = Cluster(world, order)
            await cluster.join(0)
            await cluster.join(1)
            talking = [asyncio.create_task(cluster.chatter(number, 60)) for number in (0, 1)]
            for joiners in ((2,), (3, 4)):
                await asyncio.sleep(0.2)
                await asyncio.gather(*[cluster.join(number) for number in joiners])
            await asyncio.gather(*talking)
            await cluster.chatter(4, 5)
            await asyncio.sleep(2)
            cluster.check(*range(5), messages=2 * 60 * 3 + 15)
            assert all(cluster.notes[number].restores == 1 for number in (2, 3, 4))
            world.validate()

    pluribus.sim.run(main())


@pytest.mark.parametrize("order", ["fifo", "total safe"])
def test_a_provider_that_dies_is_replaced(order: str):
    async def main() -> None:
        async with pluribus.sim.world(members=4, seed=7, stack=VIEWS) as world:
            cluster = Cluster(world, order)
            await cluster.join(0, Notes(padding=3_000_000))
            await cluster.join(1)
            await cluster.join(2)
            talking = [asyncio.create_task(cluster.chatter(number, 150, 0.02)) for number in (1, 2)]
            world.set_link(Link(latency_s=0.05))
            joining = asyncio.create_task(cluster.join(3))
            provider = await begun(world, cluster, 3)
            world.crash(provider)
            await joining
            await asyncio.gather(*talking, return_exceptions=True)
            await asyncio.sleep(5)
            up = [number for number in range(4) if number != provider]
            cluster.check(*up)
            assert cluster.notes[3].restores == 1 and len(cluster.notes[3].padding) == 3_000_000

    pluribus.sim.run(main())


async def begun(world: pluribus.sim.World, cluster: Cluster, joiner: int) -> int:
    """The provider, as soon as some of its chunks have come."""
    while True:
        await asyncio.sleep(0.01)
        for channel in world.hosts[joiner].bus._dispatch.channels.values():
            pull = channel.state._pull
            if pull is not None and pull.size > 100_000:
                return next(n for n, host in enumerate(world.hosts) if host.up and host.bus.me == pull.provider)


def test_a_large_state_does_not_hold_up_the_group():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=3, stack=VIEWS) as world:
            world.set_link(Link(latency_s=0.05))
            cluster = Cluster(world, "total safe")
            await cluster.join(0, Notes(padding=20_000_000))
            await cluster.join(1)
            joining = asyncio.create_task(cluster.join(2))
            await begun(world, cluster, 2)
            before, now = len(cluster.notes[1].read), world.now
            await cluster.chatter(0, 20)
            await asyncio.sleep(0.3)
            assert len(cluster.notes[1].read) == before + 60
            assert not joining.done() and world.now - now < 1
            await joining
            await asyncio.sleep(1)
            cluster.check(0, 1, 2, messages=60)

    pluribus.sim.run(main())


def test_what_a_joiner_holds_beyond_its_bound_waits_in_the_windows(monkeypatch):
    from pluribus.group.state import transfer

    monkeypatch.setattr(transfer, "HELD_BYTES_MAX", 10_000)

    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=3, stack=VIEWS) as world:
            world.set_link(Link(latency_s=0.02))
            cluster = Cluster(world, "total")
            await cluster.join(0, Notes(padding=4_000_000))
            await cluster.join(1)
            joining = asyncio.create_task(cluster.join(2))
            await begun(world, cluster, 2)
            for number in range(100):
                await cluster.groups[1].send(b"%d" % number + bytes(1_000))
            await joining
            await asyncio.sleep(1)
            cluster.check(0, 1, 2, messages=100)
            world.validate()

    pluribus.sim.run(main())


@pytest.mark.parametrize("order", ["total", "total safe"])
def test_who_was_in_a_minority_comes_back_as_a_joiner(order: str):
    async def main() -> None:
        async with pluribus.sim.world(members=5, seed=11, stack=VIEWS) as world:
            cluster = Cluster(world, order)
            for number in range(5):
                await cluster.join(number)
            await cluster.chatter(0, 5)
            world.partition([0, 1], [2, 3, 4])
            await asyncio.sleep(10)
            await cluster.chatter(3, 5)
            world.heal()
            await cluster.groups[0].wait_for(5, timeout=30)
            await cluster.chatter(1, 5)
            await asyncio.sleep(2)
            cluster.check(*range(5), messages=45)
            assert [cluster.notes[number].restores for number in range(2)] == [2 - (n == 0) for n in range(2)]

    pluribus.sim.run(main())


def test_if_all_lost_each_other_the_one_that_came_farthest_is_followed():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=12, stack=VIEWS) as world:
            cluster = Cluster(world, "total safe")
            for number in range(3):
                await cluster.join(number)
            await cluster.chatter(0, 5)
            await asyncio.sleep(1)
            world.partition([0], [1], [2])
            await asyncio.sleep(10)
            assert not any(bus.primary for bus in world.buses)
            world.heal()
            await cluster.groups[0].wait_for(3, timeout=30)
            await cluster.chatter(1, 5)
            await asyncio.sleep(2)
            cluster.check(*range(3), messages=30)

    pluribus.sim.run(main())


def test_if_all_with_the_latest_state_are_gone_those_who_go_on_with_an_older_one_are_told():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=12, stack=VIEWS) as world:
            told: list[pluribus.events.Event] = []
            cluster = Cluster(world, "total")
            await cluster.join(0)
            await cluster.join(1)
            world.hosts[1].bus.on_event(told.append)
            await cluster.chatter(0, 5)
            await asyncio.sleep(1)
            world.partition([0, 2], [1])
            await asyncio.sleep(5)
            await cluster.chatter(0, 5)
            await asyncio.sleep(1)
            assert len(cluster.notes[0].read) == 30 and len(cluster.notes[1].read) == 15
            world.crash(0)
            world.heal()
            await asyncio.sleep(5)
            assert not any(isinstance(event, pluribus.events.Reverted) for event in told), "there is no primary yet"
            world.hosts[1].bus.force_primary()
            await asyncio.sleep(5)
            assert [event for event in told if isinstance(event, pluribus.events.Reverted)] == [
                pluribus.events.Reverted("notes")
            ]
            await cluster.chatter(1, 1)
            await asyncio.sleep(1)
            assert len(cluster.notes[1].read) == 18

    pluribus.sim.run(main())


def test_weaker_orders_live_on_apart_and_get_nothing_afterwards():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=13, stack=VIEWS) as world:
            cluster = Cluster(world, "fifo")
            for number in range(3):
                await cluster.join(number)
            world.partition([0], [1, 2])
            await asyncio.sleep(10)
            await cluster.chatter(0, 2)
            await cluster.chatter(1, 3)
            world.heal()
            await cluster.groups[0].wait_for(3, timeout=30)
            await cluster.chatter(2, 1)
            await asyncio.sleep(1)
            assert [len(cluster.notes[number].read) for number in range(3)] == [9, 12, 12]

    pluribus.sim.run(main())


def test_members_that_start_together_and_apart_end_with_one_state():
    async def main() -> None:
        async with pluribus.sim.world(members=4, seed=14, stack=VIEWS) as world:
            world.partition([0], [1], [2], [3])
            cluster = Cluster(world, "fifo")
            await asyncio.gather(*[cluster.join(number, Notes(padding=number + 1)) for number in range(4)])
            world.heal()
            await cluster.groups[0].wait_for(4, timeout=30)
            await asyncio.sleep(5)
            assert len({cluster.notes[number].padding for number in range(4)}) == 1
            await cluster.chatter(3, 2)
            await asyncio.sleep(1)
            cluster.check(*range(4), messages=6)

    pluribus.sim.run(main())


def test_the_snapshot_is_what_the_reader_has_applied_and_not_what_waits_in_its_inbox():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=15, stack=VIEWS) as world:
            cluster = Cluster(world, "total")
            await cluster.join(0, read=False)
            for number in range(6):
                await cluster.groups[0].send(b"%d" % number)
                await asyncio.sleep(0.01)
            joining = asyncio.create_task(cluster.join(1))
            await asyncio.sleep(2)
            assert not joining.done(), "nobody has read up to the view"
            for _ in range(5):
                cluster.notes[0].read.append((await cluster.groups[0].receive()).body)
            await asyncio.sleep(1)
            assert not joining.done()
            cluster.readers[0] = asyncio.create_task(cluster._read(0))
            await joining
            assert cluster.notes[1].read[:6] == [b"%d" % number for number in range(6)]

    pluribus.sim.run(main())


def test_a_member_that_cannot_take_a_snapshot_is_left_for_another():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=16, stack=VIEWS) as world:
            cluster = Cluster(world, "total")
            await cluster.join(0)
            await cluster.join(1)
            await cluster.chatter(0, 3)
            cluster.notes[0].fails = True
            await cluster.join(2)
            await asyncio.sleep(1)
            cluster.check(0, 1, 2, messages=9)

    pluribus.sim.run(main())


def test_a_snapshot_may_come_in_parts():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=17, stack=VIEWS) as world:
            cluster = Cluster(world, "total", Parted)
            await cluster.join(0)
            await cluster.chatter(0, 30)
            await cluster.join(1)
            await asyncio.sleep(1)
            cluster.check(0, 1, messages=90)

    pluribus.sim.run(main())


def test_a_member_without_the_state_is_not_in_the_way():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=18, stack=VIEWS) as world:
            plain = await world.buses[0].group("notes", order="total")
            cluster = Cluster(world, "total")
            await cluster.join(1)
            await plain.wait_for(2)
            await plain.send(b"hello")
            await cluster.join(2)
            await asyncio.sleep(1)
            cluster.check(1, 2, messages=1)

    pluribus.sim.run(main())


def test_state_needs_agreed_views():
    async def main() -> None:
        async with pluribus.sim.world(members=1, seed=19) as world:
            with pytest.raises(BadInput, match="agreed views"):
                await world.buses[0].group("notes", state=Notes())

    pluribus.sim.run(main())
