"""Chaos: faults at random times, of every kind, for a while; then calm. Driven by the world's seed alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from ...core.errors import Violation
from ...core.view import is_quorum
from ...layers.membership import Membership
from ...runtime.bus import Bus
from .network import Link, faulty_link
from .world import World, split

CALM = Link()


Restarted = Callable[[int, Bus], Awaitable[None]]
Fault = Callable[[World, Restarted], Awaitable[None]]
"""A fault that strikes once; it gets the function to call when it restarts a member."""


async def torment(
    world: World, seconds: float, restarted: Restarted, every_s: float = 0.5, faults: Sequence[Fault] = ()
) -> None:
    """Strike with one fault after another for so many virtual seconds, then heal, restart and calm everything.

    ``restarted`` is called with every member that came back, so that the application can join its groups again.
    ``faults`` are the faults that strike; by default all.
    """
    random = world.random
    faults = faults or EVERY_FAULT
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
        host.disk.full = False
        if not host.up:
            await restarted(member, await world.restart(member))


class Tormented(Protocol):
    """An application's program on one host, as a scenario plays it."""

    bus: Bus
    calm: bool
    """Set when the faults are over: then the program ends."""
    task: asyncio.Task[None]


async def ordeal(
    world: World,
    players: Mapping[int, Tormented],
    begin: Restarted,
    seconds: float,
    calm_s: float,
    waits: str,
    faults: Sequence[Fault] = (),
) -> None:
    """Begin on every host, torment, and calm down. Everybody must have come to an end ``calm_s`` after the last fault;
    ``waits`` names the thing for which a player is still waiting. If no primary is left, one is founded. ``faults`` are
    the faults that strike; by default all."""
    for number, host in enumerate(world.hosts):
        if host.bus is not None:
            await begin(number, host.bus)
    await torment(world, seconds, begin, faults=faults)
    for player in players.values():
        player.calm = True
    await asyncio.sleep(calm_s / 2)
    restore_primary(world)
    await asyncio.sleep(calm_s / 2)
    for player in players.values():
        if not player.task.done():
            raise Violation(f"{player.bus.me!r} still waits {waits} {calm_s:g} s after the last fault")
        player.task.result()


def restore_primary(world: World) -> None:
    """Where most members of the last primary are gone for good, somebody who knows that founds another. Where enough of
    them are there, they must have gone on by themselves: ``Violation`` if not. If members of several chains meet, the
    chain that wins may be one that cannot go on."""
    if any(bus.primary for bus in world.buses):
        return
    here = {int(bus.me) for bus in world.buses}
    pasts = [_membership_of(bus)._past() for bus in world.buses]
    links = [past.last for past in pasts if past.last is not None]
    if len({link.lineage for link in links}) == 1:
        last = max(links, key=lambda link: (link.epoch, link.view))
        attempts = {attempt for past in pasts for attempt in past.attempts if attempt.epoch > last.epoch}
        if all(is_quorum(here, link.members) for link in (last, *attempts)):
            raise Violation(f"enough members of primary {last.epoch} are there, and none has followed it")
    world.buses[0].force_primary()


def _membership_of(bus: Bus) -> Membership:
    found = bus._stack.find(Membership)
    assert isinstance(found, Membership)
    return found


async def crash(world: World, restarted: Restarted) -> None:
    up = [number for number, host in enumerate(world.hosts) if host.up]
    if len(up) > 1:
        world.crash(world.random.choice(up))


async def restart(world: World, restarted: Restarted) -> None:
    down = [number for number, host in enumerate(world.hosts) if not host.up]
    if down:
        member = world.random.choice(down)
        await restarted(member, await world.restart(member))


async def pause(world: World, restarted: Restarted) -> None:
    world.pause(world.random.randrange(len(world.hosts)), world.random.random() * 8)


async def drift(world: World, restarted: Restarted) -> None:
    world.drift(world.random.randrange(len(world.hosts)), 0.9 + 0.2 * world.random.random())


async def partition(world: World, restarted: Restarted) -> None:
    if len(world.hosts) > 1:
        world.partition(*split(range(len(world.hosts)), world.random))


async def heal(world: World, restarted: Restarted) -> None:
    world.heal()


async def bad_links(world: World, restarted: Restarted) -> None:
    source, target = (world.random.randrange(len(world.hosts)) for _ in range(2))
    world.set_link(faulty_link(world.random), source, target)


async def good_links(world: World, restarted: Restarted) -> None:
    world.network.clear_links()


async def flip(world: World, restarted: Restarted) -> None:
    world.flip_bit(world.random.randrange(len(world.hosts)))


STRIKES = (
    *("loss", "duplicate", "reorder", "corrupt", "together", "crash", "restart"),
    *("pause", "drift", "partition", "heal", "cut"),
)
"""Counters of the world, in every scenario."""

EVERY_FAULT: tuple[Fault, ...] = (
    *(crash, crash, restart, restart, pause, drift),
    *(partition, heal, bad_links, good_links, flip),
)
