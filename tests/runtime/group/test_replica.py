"""Replicas as applications use them: on a real loop, in worlds, and without a loop."""

import asyncio
import threading

import pytest

import pluribus
from pluribus.core.errors import BadInput, Closed, GroupMismatch, NotPrimary, Refused, Uncertain
from pluribus.group.replica import CALLS_MAX
from pluribus.runtime.bus import VIEWS
from tests.harness import new_bus, on_a_loop


class Ledger:
    """Accounts by name; a command is "name amount"."""

    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    def apply(self, index: int, command: bytes) -> bytes:
        name, amount = command.decode().split()
        total = self.accounts.get(name, 0) + int(amount)
        if total < 0:
            raise ValueError(f"{name} has not that much")
        self.accounts[name] = total
        return str(total).encode()

    def snapshot(self) -> bytes:
        return "\n".join(f"{name} {amount}" for name, amount in sorted(self.accounts.items())).encode()

    def restore(self, state: bytes) -> None:
        rows = [line.split() for line in state.decode().splitlines()]
        self.accounts = {name: int(amount) for name, amount in rows}


def balance(name: str):
    return lambda ledger: ledger.accounts.get(name, 0)


@on_a_loop
async def test_calls_reads_and_joiners():
    url = new_bus()
    async with pluribus.connect(url, name="ann", stack="views") as ann:
        one = await ann.replica("ledger", Ledger())
        assert await one.call(b"ann 5") == b"5"
        async with pluribus.connect(url, name="bob", stack="views") as bob:
            other = await bob.replica("ledger", Ledger())
            assert other.machine.accounts == {"ann": 5}
            assert await other.call(b"ann 2") == b"7"
            assert await one.read(balance("ann")) == 7
            assert await one.read(balance("ann"), stale=True) == 7
            with pytest.raises(Refused, match="has not that much"):
                await other.call(b"ann -50")
            await asyncio.gather(*[(one, other)[n % 2].call(b"ann 1") for n in range(2_000)])
            assert await other.read(balance("ann")) == 2_007
            assert other.applied == one.applied and other.generation == one.generation
            assert len((await one.wait_for(2)).members) == 2


@on_a_loop
async def test_a_read_that_fails_is_the_readers_alone():
    async with pluribus.connect(new_bus(), stack="views") as bus:
        replica = await bus.replica("ledger", Ledger())
        failing = [replica.read(lambda ledger: next(iter(ledger.accounts))), replica.read(lambda ledger: ledger.no)]
        found = await asyncio.gather(*failing, replica.read(balance("ann")), return_exceptions=True)
        assert list(map(type, found)) == [RuntimeError, AttributeError, int]


@on_a_loop
async def test_asking_again_gives_the_same_and_another_machine_is_refused():
    async with pluribus.connect(new_bus(), stack="views") as bus:
        ledger = Ledger()
        replica = await bus.replica("ledger", ledger)
        assert await bus.replica("ledger", ledger) is replica
        with pytest.raises(GroupMismatch, match="another machine"):
            await bus.replica("ledger", Ledger())
        await replica.close()
        assert replica.closed
        with pytest.raises(Closed):
            await replica.call(b"ann 1")
        assert (await bus.replica("ledger", Ledger())).machine.accounts == {}


def test_a_group_of_that_name_with_other_promises_is_in_the_way():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=6, stack=VIEWS) as world:
            plain = await world.buses[0].group("replica/ledger", order="fifo")
            await plain.wait_for(1)
            with pytest.raises(GroupMismatch, match="ledger"):
                await world.buses[1].replica("ledger", Ledger())

    pluribus.sim.run(main())


def test_statistics_tell_of_states():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=7, stack=VIEWS) as world:
            for bus in world.buses:
                await bus.replica("ledger", Ledger())
            first, second = (bus.stats()["groups"] for bus in world.buses)
            assert (first["states"], first["snapshots"], second["restored"], second["states_awaited"]) == (1, 1, 1, 0)

    pluribus.sim.run(main())


@on_a_loop
async def test_a_replica_needs_views():
    async with pluribus.connect(new_bus(), stack="best-effort") as bus:
        with pytest.raises(BadInput, match="total order"):
            await bus.replica("ledger", Ledger())


def test_outside_a_primary_calls_wait_or_raise():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            replicas = [await bus.replica("ledger", Ledger()) for bus in world.buses]
            await replicas[0].call(b"ann 5")
            world.partition([0], [1, 2])
            await asyncio.sleep(10)
            for question in (replicas[0].call(b"ann 1", timeout=0), replicas[0].read(balance("ann"), timeout=0)):
                with pytest.raises(NotPrimary, match="primary"):
                    await question
            with pytest.raises(NotPrimary, match="for 2 s"):
                await replicas[0].call(b"ann 1", timeout=2)
            assert await replicas[0].read(balance("ann"), stale=True) == 5
            waiting = asyncio.create_task(replicas[0].call(b"ann 10"))
            reading = asyncio.create_task(replicas[0].read(balance("ann")))
            assert await replicas[1].call(b"ann 100") == b"105"
            assert not waiting.done() and not reading.done()
            world.heal()
            assert await waiting == b"115"
            assert await reading in (105, 115)
            world.validate()

    pluribus.sim.run(main())


def test_a_call_waits_for_room_no_longer_than_it_was_told():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            replicas = [await bus.replica("ledger", Ledger()) for bus in world.buses]
            world.partition([0], [1, 2])
            await asyncio.sleep(10)
            waiting = [asyncio.create_task(replicas[0].call(b"ann 1")) for _ in range(CALLS_MAX)]
            await asyncio.sleep(1)
            with pytest.raises(NotPrimary, match="for 2 s"):
                await asyncio.wait_for(replicas[0].call(b"ann 1", timeout=2), 10)
            world.heal()
            assert sorted(map(int, await asyncio.gather(*waiting))) == list(range(1, CALLS_MAX + 1))

    pluribus.sim.run(main())


def test_an_answer_in_the_very_moment_of_the_time_out_counts():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            replica, *_ = [await bus.replica("ledger", Ledger()) for bus in world.buses]
            world.partition([0], [1, 2])
            loop, core = asyncio.get_running_loop(), replica._core
            loop.call_later(2, lambda: core._end(*core._calls, b"7", None))
            loop.call_later(2, lambda: [ready(None) for ready in core._reads])
            called = asyncio.create_task(replica.call(b"ann 7", timeout=2))
            read = asyncio.create_task(replica.read(balance("ann"), timeout=2))
            assert await called == b"7"
            assert await read == 0

    pluribus.sim.run(main())


def test_a_call_that_is_cut_off_is_uncertain_and_safe_to_repeat():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=2, stack=VIEWS) as world:
            replicas = [await bus.replica("ledger", Ledger()) for bus in world.buses]
            await replicas[0].call(b"ann 5")
            world.partition([0], [1, 2])
            with pytest.raises(Uncertain, match="same id") as caught:
                await replicas[0].call(b"ann 1", timeout=0.05)
            with pytest.raises(Uncertain):
                await replicas[0].call(b"ann 1", id=caught.value.id, timeout=0)
            world.heal()
            assert await replicas[0].call(b"ann 1", id=caught.value.id) == b"6"
            assert await replicas[0].call(b"ann 1", id=caught.value.id) == b"6"
            assert await replicas[2].call(b"ann 1", id=caught.value.id) == b"6", "from anywhere"
            assert await replicas[1].read(balance("ann")) == 6

    pluribus.sim.run(main())


def test_an_identity_that_is_written_down_first():
    async def main() -> None:
        async with pluribus.sim.world(members=1, seed=3, stack=VIEWS) as world:
            replica = await world.buses[0].replica("ledger", Ledger())
            written = replica.new_id()
            assert await replica.call(b"ann 1") == b"1"
            assert await replica.call(b"ann 1", id=written) == b"2"
            assert await replica.call(b"ann 1", id=written) == b"2"

    pluribus.sim.run(main())


class Forgetful(Ledger):
    """Takes the state of another member only so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def restore(self, state: bytes) -> None:
        self.times -= 1
        if self.times < 0:
            raise ValueError("what is this?")
        super().restore(state)


def test_a_machine_that_cannot_take_the_state_is_no_replica():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=4, stack=VIEWS) as world:
            replicas = [await bus.replica("ledger", Ledger()) for bus in world.buses[:2]]
            await replicas[0].call(b"ann 5")
            with pytest.raises(Closed):
                await asyncio.wait_for(world.buses[2].replica("ledger", Forgetful(0)), 20)
            once = await world.buses[2].replica("ledger", Forgetful(1))
            assert once.machine.accounts == {"ann": 5}
            world.partition([2], [0, 1])
            await asyncio.sleep(10)
            await replicas[0].call(b"ann 5")
            calling = asyncio.create_task(once.call(b"ann 1"))
            world.heal()
            with pytest.raises(Uncertain):
                await asyncio.wait_for(calling, 20)
            assert once.closed
            with pytest.raises(Closed):
                await once.read(balance("ann"))
            again = await world.buses[2].replica("ledger", Ledger())
            assert await again.read(balance("ann")) == await replicas[0].read(balance("ann")) >= 10

    pluribus.sim.run(main())


class Tired(Ledger):
    """A process that runs out of memory once."""

    def apply(self, index: int, command: bytes) -> bytes:
        if command.startswith(b"much"):
            raise MemoryError
        return super().apply(index, command)


def test_a_member_that_could_not_apply_a_command_leaves_and_gets_the_state_of_the_others_when_it_is_back():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=4, stack=VIEWS) as world:
            machines = [Tired(), Ledger(), Ledger()]
            tired, *others = [
                await bus.replica("ledger", machine) for bus, machine in zip(world.buses, machines, strict=True)
            ]
            asked = asyncio.create_task(tired.call(b"much 5"))
            assert await others[0].call(b"ann 1") == b"1"
            with pytest.raises(Uncertain) as lost:
                await asked
            assert tired.closed and not others[0].closed
            again = await world.buses[0].replica("ledger", Ledger())
            assert await again.call(b"much 5", id=lost.value.id) == b"5", "the others had applied it"
            assert await again.read(lambda ledger: ledger.accounts) == {"much": 5, "ann": 1}

    pluribus.sim.run(main())


def test_closing_ends_calls():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=4, stack=VIEWS) as world:
            replicas = [await bus.replica("ledger", Ledger()) for bus in world.buses]
            world.partition([0], [1, 2])
            sent = asyncio.create_task(replicas[0].call(b"ann 1"))
            read = asyncio.create_task(replicas[0].read(balance("ann")))
            await asyncio.sleep(0.01)
            await replicas[0].close()
            with pytest.raises(Uncertain):
                await sent
            with pytest.raises(Closed):
                await read

    pluribus.sim.run(main())


def test_a_replica_whose_opening_was_given_up_may_be_opened_with_another_machine():
    async def main() -> None:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            replicas = [await bus.replica("ledger", Ledger()) for bus in world.buses[1:]]
            world.partition([0], [1, 2])
            await replicas[0].call(b"ann 5")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(world.buses[0].replica("ledger", Ledger()), 5)
            world.heal()
            again = await world.buses[0].replica("ledger", Ledger())
            assert again.machine.accounts == {"ann": 5}

    pluribus.sim.run(main())


def test_after_everybody_with_the_state_is_gone_it_begins_anew():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=5, stack=VIEWS) as world:
            first = await world.buses[0].replica("ledger", Ledger())
            await first.call(b"ann 5")
            life = first.generation
            await first.close()
            second = await world.buses[1].replica("ledger", Ledger())
            assert second.generation not in (0, life) and second.machine.accounts == {}

    pluribus.sim.run(main())


def test_without_a_loop():
    url = new_bus()
    with pluribus.sync.connect(url, name="ann", stack="views") as bus:
        with bus.replica("ledger", Ledger()) as replica:
            assert replica.call(b"ann 5") == b"5"
            threads = [threading.Thread(target=replica.call, args=(b"ann 1",)) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert replica.read(balance("ann")) == 15
            assert replica.read(balance("ann"), stale=True) == 15
            assert replica.applied == 11 and replica.name == "ledger"
        assert replica.closed
