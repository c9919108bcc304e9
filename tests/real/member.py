"""A real process on a real bus: sends to groups of every order, and writes down what it does and sees.

``python -m tests.real.member URL NAME FILE``. Every line of the file is a ``Happening`` with the time of the machine's
one monotonic clock, written before anything else is done, so that a process that is killed leaves its history too.
Commands come on standard input: ``hush`` ends the sending, ``quit`` leaves the bus.
"""

import asyncio
import os
import sys
import time
from contextlib import suppress

import msgspec

import pluribus
from pluribus.core.errors import Excluded
from pluribus.events import Event, Suspected, Unsuspected
from pluribus.sim.machinery.history import Happening
from pluribus.sim.machinery.observer import Observer

GROUPS = {
    "talk": {"order": "fifo"},
    "causes": {"order": "causal"},
    "votes": {"order": "total"},
    "ledger": {"safe": True},
}
PACE_S = 0.02


class Member:
    def __init__(self, bus: pluribus.Bus, path: str) -> None:
        self.bus = bus
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.hushed = asyncio.Event()
        Observer(bus, GROUPS, time.monotonic, self.write)
        bus.on_event(self.watch)

    def write(self, happening: Happening) -> None:
        os.write(self.file, msgspec.json.encode(happening, enc_hook=int) + b"\n")

    def watch(self, event: Event) -> None:
        if isinstance(event, Suspected | Unsuspected):
            what = type(event).__name__.lower()
            self.write(Happening(time.monotonic(), self.bus.me, what, members=(event.member,)))

    async def send(self, name: str, group: pluribus.Group) -> None:
        """The identity of a message is known before it is sent, and written down then."""
        number = 0
        while not self.hushed.is_set():
            body = f"{self.bus.name}/{name}/{number}".encode()
            self.write(Happening(time.monotonic(), self.bus.me, "send", name, (self.bus.me, number), body))
            assert await group.send(body) == (self.bus.me, number)
            number += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self.hushed.wait(), PACE_S)
        self.write(Happening(time.monotonic(), self.bus.me, "hushed", name))

    async def read(self, group: pluribus.Group) -> None:
        while not group.closed:
            with suppress(Excluded):
                async for _ in group:
                    pass

    async def obey(self) -> None:
        """The commands, until there are no more."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while (command := (await reader.readline()).decode().strip()) not in ("", "quit"):
            assert command == "hush"
            self.hushed.set()


async def main(url: str, name: str, path: str) -> None:
    async with pluribus.connect(url, name=name, stack="views") as bus:
        member = Member(bus, path)
        opened = [bus.group(name, **promises) for name, promises in GROUPS.items()]
        groups = dict(zip(GROUPS, await asyncio.gather(*opened), strict=True))
        member.write(Happening(time.monotonic(), bus.me, "joined"))
        tasks = [asyncio.create_task(member.send(name, group)) for name, group in groups.items()]
        tasks += [asyncio.create_task(member.read(group)) for group in groups.values()]
        await member.obey()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
