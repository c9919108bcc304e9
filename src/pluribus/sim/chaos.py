"""Chaos: faults at random times, of every kind, for a while; then calm. Driven by the world's seed alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..runtime.bus import Bus
from .network import Link, faulty_link
from .world import World, split

CALM = Link()


async def torment(
    world: World, seconds: float, restarted: Callable[[int, Bus], Awaitable[None]], every_s: float = 0.5
) -> None:
    """Strike with one fault after another for so many virtual seconds, then heal, restart and calm everything.

    ``restarted`` is told of every member that came back, so that the application can join its groups again.
    """
    random = world.random
    faults = (_crash, _crash, _restart, _restart, _pause, _drift, _partition, _heal, _bad_links, _good_links, _flip)
    end = world.now + seconds
    world.set_link(faulty_link(random, 0.3))
    while world.now < end:
        await asyncio.sleep(every_s * random.random() * 2)
        await random.choice(faults)(world, restarted)
    world.heal()
    world.network.clear_links()
    world.set_link(CALM)
    for member, host in enumerate(world.hosts):
        host.drift(1.0)
        if not host.up:
            await restarted(member, await world.restart(member))


Restarted = Callable[[int, Bus], Awaitable[None]]


async def _crash(world: World, restarted: Restarted) -> None:
    up = [number for number, host in enumerate(world.hosts) if host.up]
    if len(up) > 1:
        world.crash(world.random.choice(up))


async def _restart(world: World, restarted: Restarted) -> None:
    down = [number for number, host in enumerate(world.hosts) if not host.up]
    if down:
        member = world.random.choice(down)
        await restarted(member, await world.restart(member))


async def _pause(world: World, restarted: Restarted) -> None:
    world.pause(world.random.randrange(len(world.hosts)), world.random.random() * 8)


async def _drift(world: World, restarted: Restarted) -> None:
    world.drift(world.random.randrange(len(world.hosts)), 0.9 + 0.2 * world.random.random())


async def _partition(world: World, restarted: Restarted) -> None:
    if len(world.hosts) > 1:
        world.partition(*split(range(len(world.hosts)), world.random))


async def _heal(world: World, restarted: Restarted) -> None:
    world.heal()


async def _bad_links(world: World, restarted: Restarted) -> None:
    source, target = (world.random.randrange(len(world.hosts)) for _ in range(2))
    world.set_link(faulty_link(world.random), source, target)


async def _good_links(world: World, restarted: Restarted) -> None:
    world.network.clear_links()


async def _flip(world: World, restarted: Restarted) -> None:
    world.flip_bit(world.random.randrange(len(world.hosts)))
