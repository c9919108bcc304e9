"""The same seed gives the same run, to the byte, in any process, whatever the hashes of strings are there."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from pluribus import sim
from pluribus.group.calls import exposed
from pluribus.runtime.bus import VIEWS
from pluribus.sim.machinery.campaign import play_seed


def pluribus_sim(*arguments: str, hash_seed: int = 0) -> str:
    command = [sys.executable, "-m", "pluribus", "sim", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("scenario", ["flood", "disk", "asks"])
def test_two_processes_with_different_hashes_do_the_same(scenario):
    runs = [json.loads(pluribus_sim(scenario, "--seed", "7", "--json", hash_seed=seed)) for seed in (1, 20_251)]
    assert runs[0] == runs[1]
    assert runs[0]["seed"] == 7
    assert len(runs[0]["trace_hash"]) == 32
    assert runs[0]["failure"] == ""
    assert runs[0]["events"] > 1_000


def test_a_trace_is_the_same_twice_and_its_lines_are_what_happened():
    first, second = (pluribus_sim("flood", "--seed", "3", "--trace", "--json", hash_seed=seed) for seed in (5, 6))
    assert first == second
    *lines, summary = first.splitlines()
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    kinds = {line.split()[1] for line in lines}
    assert {"datagram", "deliver", "crash", "restart"} <= kinds
    assert json.loads(summary)["trace_hash"] == play_seed("flood", 3).trace_hash


def test_another_seed_is_another_run():
    assert len({play_seed("flood", seed).trace_hash for seed in range(2)}) == 2


async def talk(world: sim.World, rounds: int) -> None:
    groups = [await bus.group("x") for bus in world.buses]
    for group in groups:
        await group.wait_for(len(groups))
    for number in range(rounds):
        await groups[number % len(groups)].send(number)
        await asyncio.sleep(0.01)


def trace_of(seed: int, rounds: int = 20) -> tuple[str, list[str]]:
    lines: list[str] = []

    async def main() -> str:
        async with sim.world(members=3, seed=seed, trace=lines.append) as world:
            world.set_link(sim.Link(loss=0.1, duplicate=0.1, reorder=0.1))
            await talk(world, rounds)
            return world.trace_hash

    return sim.run(main()), lines


def test_a_users_own_world_is_the_same_every_time():
    assert trace_of(42) == trace_of(42)
    assert trace_of(42)[0] != trace_of(43)[0]
    assert trace_of(42)[0] != trace_of(42, rounds=21)[0]


def test_the_hash_covers_what_when_where_and_every_byte():
    def hash_of(kind, where, data, at=0.0):
        world = sim.world(members=0)
        world.kernel.now = at
        world.note(kind, where, data)
        return world.trace_hash

    notes = [("a", "b", b"c"), ("x", "b", b"c"), ("a", "x", b"c"), ("a", "b", b"x"), ("a", "b", b"c", 1e-9)]
    assert len({hash_of(*note) for note in notes}) == len(notes)


def test_tracing_changes_nothing():
    async def main() -> str:
        async with sim.world(members=3, seed=42) as world:
            world.set_link(sim.Link(loss=0.1, duplicate=0.1, reorder=0.1))
            await talk(world, 20)
            return world.trace_hash

    assert sim.run(main()) == trace_of(42)[0]


def test_a_world_after_another_in_one_process_is_not_changed_by_it():
    alone = trace_of(1)
    trace_of(2)
    assert trace_of(1) == alone


def order_of_ends(clutter: int) -> list[str]:
    """In which order those who wait for one member hear that it is over, with other objects in the memory between."""
    ended: list[str] = []
    held: list[list[int]] = []

    async def noted(what: str, waiting: object) -> None:
        try:
            await waiting  # type: ignore[misc]
        except BaseException:
            ended.append(what)
            raise

    class Slow:
        @exposed
        async def wait(self, number: int) -> None:
            await noted(f"call {number}", asyncio.sleep(60))

    async def main() -> None:
        async with sim.world(members=2, seed=1, stack=VIEWS) as world:
            one, other = [await bus.group("x") for bus in world.buses]
            await one.wait_for(2)
            other.serve(Slow())
            world.partition([0], [1])
            tasks = []
            for number in range(20):
                held.append([number] * (number * clutter % 7))
                tasks.append(asyncio.create_task(noted(f"send {number}", one.send(b"x", wait="stable"))))
            world.heal()
            for number in range(20):
                tasks.append(asyncio.create_task(one.call("wait", number, to=other.me)))
            await asyncio.sleep(0.1)
            world.partition([0], [1])
            for number in range(20):
                held.append([number] * (number * clutter % 5))
                tasks.append(asyncio.create_task(noted(f"again {number}", one.send(b"x", wait="stable"))))
            await asyncio.sleep(0.1)
            await asyncio.gather(one.close(), other.close())
            await asyncio.gather(*tasks, return_exceptions=True)

    sim.run(main())
    return ended


def test_those_who_wait_hear_the_end_in_their_order_wherever_they_lie_in_memory():
    ended = order_of_ends(0)
    assert [what for what in ended if what.startswith("again")] == [f"again {number}" for number in range(20)]
    assert [what for what in ended if what.startswith("call")] == [f"call {number}" for number in range(20)]
    assert order_of_ends(3) == ended


def test_those_who_iterate_over_events_hear_the_end_in_their_order():
    ended: list[int] = []

    async def iterate(number: int, events: object) -> None:
        async for _ in events:  # type: ignore[attr-defined]
            pass
        ended.append(number)

    async def main() -> None:
        async with sim.world(members=1, seed=1) as world:
            iterations = [world.buses[0].events() for _ in range(30)]
            tasks = [asyncio.create_task(iterate(*numbered)) for numbered in enumerate(iterations)]
            await asyncio.sleep(1)
            world.crash(0)
            await asyncio.gather(*tasks)

    sim.run(main())
    assert ended == list(range(30))


def test_the_hash_covers_everything_that_is_done_to_a_world():
    def hash_of(deed: str) -> str:
        async def main() -> str:
            async with sim.world(members=2, seed=1, stack="views") as world:
                if deed == "add":
                    await world.add()
                elif deed == "flip":
                    world.flip_bit(0)
                elif deed == "link":
                    world.set_link(sim.Link(loss=0.5), 0, 1)
                elif deed == "all links":
                    world.set_link(sim.Link(loss=0.5))
                return world.trace_hash

        return sim.run(main())

    deeds = ("", "add", "flip", "link", "all links")
    assert len({hash_of(deed) for deed in deeds}) == len(deeds)
