"""Hosts and worlds: crashes, restarts, pauses, drift, partitions; and what a world refuses."""

import asyncio
import subprocess
import sys
from random import Random

import pytest

from pluribus import sim
from pluribus.core.errors import BadInput, BadStack
from pluribus.sim.machinery.kernel import Kernel
from pluribus.sim.machinery.network import Link, Network
from pluribus.sim.machinery.world import SIMULATED, Host, split
from tests.sim.inside import in_a_world


async def everybody(world, name="group"):
    groups = [await bus.group(name) for bus in world.buses]
    for group in groups:
        await group.wait_for(len(groups), timeout=30)
    return groups


def read(group, into):
    async def reader():
        async for message in group:
            into.append(message.body)

    return asyncio.create_task(reader())


@in_a_world(members=5, seed=42)
async def test_members_find_each_other_and_talk(world):
    groups = await everybody(world)
    await groups[0].send("hello")
    assert [(await group.receive(timeout=1)).body for group in groups] == ["hello"] * 5
    assert [bus.name for bus in world.buses] == ["m0", "m1", "m2", "m3", "m4"]
    assert 0 < world.now < 5


@in_a_world(members=3)
async def test_a_crashed_member_says_nothing_and_is_missed(world):
    groups = await everybody(world)
    crashed = world.buses[2]
    world.crash(2)
    assert not world.hosts[2].up and crashed.closed and groups[2].closed
    assert len(world.buses) == 2
    assert len(groups[0].view) == 3, "nobody was told"
    await asyncio.sleep(10)
    assert len(groups[0].view) == len(groups[1].view) == 2
    assert world.faults["crash"] == 1
    world.crash(2)
    assert world.faults["crash"] == 1, "a dead machine cannot die"


@in_a_world(members=2)
async def test_a_restarted_machine_is_a_new_member(world):
    groups = await everybody(world)
    first = world.buses[1].me
    world.crash(1)
    bus = await world.restart(1)
    assert bus.me != first and bus.name == "m1"
    assert world.hosts[1].incarnations == 2
    await asyncio.sleep(10)
    again = await bus.group("group")
    await again.wait_for(2)
    await groups[0].wait_for(2)
    await groups[0].send(b"welcome back")
    assert (await again.receive(timeout=1)).body == b"welcome back"
    assert first not in groups[0].view
    with pytest.raises(BadInput, match="m1 is up: crash it before"):
        await world.restart(1)


@in_a_world(members=1)
async def test_what_was_synced_is_there_after_a_restart(world):
    disk, done = world.hosts[0].disk, asyncio.Event()
    disk.append("log", [b"synced"], lambda error: done.set())
    await done.wait()
    disk.append("log", [b"not"] * 50, lambda error: pytest.fail("it crashed before"))
    world.crash(0)
    await world.restart(0)
    assert world.hosts[0].disk.read("log", 0, 1) == [b"synced"]
    await asyncio.sleep(1)


@in_a_world(members=2)
async def test_a_pause_delays_everything_in_order_and_loses_nothing(world):
    groups = await everybody(world)
    got = []
    task = read(groups[1], got)
    world.pause(1, 3.0)
    for number in range(20):
        await groups[0].send(number)
        await asyncio.sleep(0.05)
    world.pause(1, 3.0)  # it begins again before it is over, and holds longer
    for number in range(20, 40):
        await groups[0].send(number)
        await asyncio.sleep(0.1)
    assert got == []
    await asyncio.sleep(1.5)
    assert got == list(range(40))
    assert world.faults["pause"] == 2
    task.cancel()


@in_a_world(members=2)
async def test_a_paused_member_is_not_suspected_by_itself_alone(world):
    """The paused one finds everybody's hellos waiting; the others missed it, and take it back."""
    groups = await everybody(world)
    world.pause(1, 20.0)
    await asyncio.sleep(15)
    assert len(groups[0].view) == 1
    await asyncio.sleep(15)
    assert len(groups[0].view) == len(groups[1].view) == 2


@in_a_world(members=1)
async def test_the_disk_of_a_paused_host_tells_nobody(world):
    disk, done = world.hosts[0].disk, []
    world.pause(0, 5.0)
    disk.append("log", [b"1"], lambda error: done.append(world.now))
    await asyncio.sleep(4)
    assert done == []
    await asyncio.sleep(2)
    assert done == [5.0]


@in_a_world(members=2)
async def test_a_crash_ends_a_pause(world):
    world.pause(1, 1_000.0)
    world.crash(1)
    bus = await world.restart(1)
    group, again = await world.buses[0].group("x"), await bus.group("x")
    await again.wait_for(2, timeout=5)
    await group.wait_for(2, timeout=5)
    assert world.now < 10
    world.crash(1)
    world.pause(1, 1_000.0)
    assert world.faults["pause"] == 1, "nobody is there to pause"


async def host_alone() -> tuple[Kernel, Host]:
    kernel = Kernel()
    host = Host("h", kernel, Network(kernel, Random(0), lambda *note: None), "0")
    await host.start(SIMULATED, "transport | presence | groups")
    return kernel, host


def test_a_hosts_clock_drifts_and_never_jumps_or_turns_back():
    kernel, host = sim.run(host_alone())
    clock = host.bus._stack.ports.clock
    seen = []
    for rate, seconds in ((1.0, 10.0), (1.1, 10.0), (0.5, 10.0), (0.5, 1.0), (2.0, 0.001)):
        before = clock.now()
        host.drift(rate)
        assert clock.now() == before
        kernel.run(kernel.now + seconds)
        assert clock.now() == pytest.approx(before + rate * seconds)
        seen.append(clock.now())
    assert seen == sorted(seen)


@pytest.mark.parametrize(("rate", "then"), [(1.0, 0.5), (1.0, 2.0), (0.9, 1.1)])
def test_a_timer_never_fires_before_its_time_by_the_hosts_clock(rate, then):
    kernel, host = sim.run(host_alone())
    clock = host.bus._stack.ports.clock
    host.drift(rate)
    due, fired = clock.now() + 10.0, []
    clock.call_later(10.0, lambda: fired.append(clock.now()))
    kernel.run(kernel.now + 4.0)
    host.drift(then)
    kernel.run(kernel.now + 60.0)
    assert len(fired) == 1
    assert fired[0] >= due - 1e-6


def test_a_timer_that_is_cancelled_while_the_host_is_paused_does_not_fire():
    kernel, host = sim.run(host_alone())
    clock, ran = host.bus._stack.ports.clock, []
    clock.call_later(1.0, lambda: (ran.append("first"), second.cancel()))
    second = clock.call_later(1.5, lambda: ran.append("second"))
    host.pause(5.0)
    kernel.run(10.0)
    assert ran == ["first"]


def test_what_comes_at_the_very_end_of_a_pause_comes_behind_what_waited():
    kernel, host = sim.run(host_alone())
    ran = []
    kernel.at(1.0, lambda: host.gate(lambda: ran.append("at the end")))
    kernel.at(0.5, lambda: host.gate(lambda: ran.append("waited")))
    host.pause(1.0)
    kernel.run(1.0)
    assert ran == ["waited", "at the end"]


def test_timers_of_a_dead_incarnation_never_fire():
    async def main():
        kernel, host = await host_alone()
        ran = []
        host.bus._stack.ports.clock._clock.call_later(1.0, lambda: ran.append("dead"))
        host.crash()
        await host.start(SIMULATED, "transport | presence | groups")
        kernel.run(10.0)
        return ran

    assert sim.run(main()) == []


@in_a_world(members=4)
async def test_a_partition_has_two_views_and_healing_one(world):
    groups = await everybody(world)
    world.partition([0, 1], [2, 3])
    await asyncio.sleep(10)
    assert [len(group.view) for group in groups] == [2] * 4
    assert world.buses[0].me in groups[1].view and world.buses[2].me not in groups[1].view
    world.heal()
    for group in groups:
        await group.wait_for(4, timeout=30)
    assert world.faults["partition"] == world.faults["heal"] == 1


@in_a_world(members=2)
async def test_links_are_set_for_all_or_for_one_direction(world):
    groups = await everybody(world)
    world.set_link(Link(latency_s=2.0, jitter_s=0.0))
    sent_at = world.now
    await groups[0].send(b"slow")
    await groups[1].receive(timeout=10)
    assert world.now - sent_at == pytest.approx(2.0)
    world.set_link(Link(loss=1.0), 0, 1)
    await groups[0].send(b"lost")
    await groups[1].send(b"heard")
    assert (await groups[0].receive(timeout=10)).body == b"slow"
    bodies = [(await groups[0].receive(timeout=10)).body for _ in range(2)]
    assert bodies == [b"lost", b"heard"]
    assert world.faults["loss"] >= 1


@in_a_world(members=1)
async def test_a_machine_is_added_while_the_world_runs(world):
    await asyncio.sleep(5)
    host = await world.add()
    groups = await everybody(world)
    assert host.name == "m1" and len(groups) == 2


@in_a_world(members=2)
async def test_bits_flip_on_the_disk_that_was_named(world):
    assert world.flip_bit(0) is False, "an empty disk has no bits"
    world.hosts[0].disk.append("log", [b"row"], lambda error: None)
    await asyncio.sleep(1)
    assert world.flip_bit(0) is True
    assert world.hosts[0].disk.read("log", 0, 9) == [None]


WRONG = {
    "no such member 7": lambda world: world.crash(7),
    "no such member -1": lambda world: world.crash(-1),
    "pause of": lambda world: world.pause(0, -1.0),
    "rate 0": lambda world: world.drift(0, 0.0),
    "rate nan": lambda world: world.drift(0, float("nan")),
    "two sides": lambda world: world.partition([0, 1], [1]),
    "two ends": lambda world: world.set_link(Link(), 0),
    "no probability": lambda world: world.set_link(Link(loss=2)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_is_refused_in_one_sentence(wrong):
    async def main():
        async with sim.world(members=2) as world:
            with pytest.raises(BadInput, match=wrong.removeprefix("no such ").replace("member ", "no member ")):
                WRONG[wrong](world)

    sim.run(main())


def test_a_world_of_fewer_than_none_is_refused():
    with pytest.raises(BadInput, match="-1 members"):
        sim.world(members=-1)


def test_a_stack_that_does_not_fit_is_refused_and_the_loop_freed():
    async def main():
        with pytest.raises(BadStack):
            async with sim.world(members=1, stack="transport | window | groups"):
                pass
        return await asyncio.to_thread(lambda: 1)

    assert sim.run(main()) == 1


def test_a_split_has_two_sides_and_everybody_on_one():
    for seed in range(50):
        left, right = split(range(5), Random(seed))
        assert left and right and sorted(left + right) == [0, 1, 2, 3, 4]


PROGRAM = """
import asyncio, pluribus
from pluribus.core.errors import BadInput

async def main():
    async with pluribus.sim.world(members=4, seed=3, stack="views") as world:
        a, b, c, d = world.buses
        memory = await a.queue("memory", durable=False)
        await memory.send("x")
        async with (await d.queue("memory", durable=False)).receive("priority = 4", timeout=10) as m:
            assert m.body == "x"
        await (await d.space("numbers")).write((1, 2))
        assert await (await a.space("numbers")).take((1, int), timeout=10)

        for member in range(3):
            await world.keep(member, voters=3)
        orders = await d.queue("orders", timeout=60)
        for number in range(10):
            await orders.send(number, properties={"n": number})
        world.crash(0)
        async with orders.receive("n = 7", timeout=60) as m:
            assert m.body == 7, "two of three are a majority"
        for member in (1, 2):
            world.crash(member)
        try:
            await world.keep(0)
        except BadInput as error:
            assert "m0 is down" in str(error)
        for member in range(3):
            await world.restart(member)
            await world.keep(member, voters=3)
        got = []
        async with orders.messages() as messages:
            async for m in messages:
                got.append(m.body)
                if len(got) == 9:
                    break
        assert got == [0, 1, 2, 3, 4, 5, 6, 8, 9]
        world.validate()
        print(world.trace_hash)

pluribus.sim.run(main())
"""


def test_styles_and_keepers_work_in_a_world_also_in_a_program_that_has_loaded_nothing_yet():
    runs = [subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True) for _ in range(2)]
    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 2
    assert runs[0].stdout == runs[1].stdout
