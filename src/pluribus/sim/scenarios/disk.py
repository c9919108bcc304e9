"""Disk: rows that a store acknowledged survive; a lost or damaged row is never read as something else."""

from __future__ import annotations

import asyncio
from functools import partial

from ...core.errors import Violation
from ...runtime.bus import BEST_EFFORT, Bus
from ..machinery.chaos import torment
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario

LOG = "log"


async def play(world: World, history: History) -> None:
    """Every host appends rows and records which were acknowledged; afterwards each disk is read back."""
    counts = [0] * len(world.hosts)
    running = True

    def acknowledged(host: int, position: int, row: bytes, error: Exception | None) -> None:
        if error is None:
            history.add(Happening(world.now, host, "acknowledged", LOG, (host, position), row))

    async def write(host: int) -> None:
        while running:
            await asyncio.sleep(world.random.random() * 0.01)
            machine = world.hosts[host]
            if machine.up:
                counts[host] += 1
                row = f"{host}/{counts[host]}".encode() * 3
                position = machine.disk.end(LOG)
                history.add(Happening(world.now, host, "append", LOG, (host, position), row))
                machine.disk.append(LOG, [row], partial(acknowledged, host, position, row))

    async def restarted(host: int, bus: Bus) -> None:
        """Stores take part in no protocol, so there is nothing to do."""

    writers = [asyncio.create_task(write(host)) for host in range(len(world.hosts))]
    await torment(world, 20.0, restarted)
    running = False
    await asyncio.gather(*writers)
    await asyncio.sleep(1)
    for number, host in enumerate(world.hosts):
        for position, row in enumerate(host.disk.read(LOG, 0, host.disk.end(LOG))):
            body = b"?" if row is None else row
            world.note("read", host.name, body)
            history.add(Happening(world.now, number, "read", LOG, (number, position), body))


def durable(history: History) -> int:
    """An acknowledged row is read back at its place, whole, or is known to be damaged; never anything else."""
    flips = 0
    last: dict[tuple[int, int], bytes] = {h.id: h.body for h in history.of("acknowledged")}
    read = {h.id: h.body for h in history.of("read")}
    for place, row in last.items():
        found = read.get(place)
        if found is None:
            raise Violation(f"row {place[1]} of host {place[0]} was acknowledged and is gone")
        if found == b"?":
            flips += 1
        elif found != row:
            raise Violation(f"row {place[1]} of host {place[0]} reads {found!r}, acknowledged was {row!r}")
    return len(last)


def appended(history: History) -> int:
    """Every row that can be read was once appended at that place."""
    known: dict[tuple[int, int], set[bytes]] = {}
    for h in history.of("append"):
        known.setdefault(h.id, set()).add(h.body)
    checks = 0
    for h in history.of("read"):
        checks += 1
        if h.body != b"?" and h.body not in known.get(h.id, ()):
            raise Violation(f"row {h.id[1]} of host {h.id[0]} reads {h.body!r}, which was never appended there")
    return checks


DISK = Scenario(
    "disk",
    "what the store acknowledged survives crashes, torn writes and flipped bits",
    BEST_EFFORT,
    play,
    {"durable": durable, "appended": appended},
    ("crash", "restart", "unsynced_lost", "torn_write", "bit_flip"),
)
