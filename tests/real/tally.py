"""A real process that has tokens kept by a replica: ``python -m tests.real.tally URL NAME FILE``.

Every line of the file is an object: who it is (``me``), a view that it is shown, a token that was acknowledged to it,
what it was told is lost, and what the replica holds at the end. The end comes with the end of standard input.
"""

import asyncio
import os
import sys

import msgspec

import pluribus
from pluribus.core.errors import PluribusError
from pluribus.events import Dissolved, Event, ViewInstalled

PACE_S = 0.01
CALL_S = 1.0


class Tally:
    def __init__(self) -> None:
        self.tokens: list[str] = []

    def apply(self, index: int, command: bytes) -> bytes:
        self.tokens.append(command.decode())
        return b""

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self.tokens)

    def restore(self, state: bytes) -> None:
        self.tokens = msgspec.json.decode(state, type=list[str])


class Process:
    def __init__(self, bus: pluribus.Bus, path: str) -> None:
        self.bus = bus
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        bus.on_event(self.watch)
        self.write({"me": f"{bus.me}", "address": list(bus._engine.address)})

    def write(self, line: dict[str, object]) -> None:
        os.write(self.file, msgspec.json.encode(line) + b"\n")

    def watch(self, event: Event) -> None:
        if isinstance(event, ViewInstalled):
            self.write({"members": len(event.view), "primary": event.primary})
        elif isinstance(event, Dissolved):
            self.write({"lost": event.count})

    async def call(self, replica: "pluribus.Replica[Tally]") -> None:
        count = 0
        while True:
            count += 1
            token = f"{self.bus.name}/{self.bus.me}/{count}"
            try:
                await replica.call(token.encode(), timeout=CALL_S)
            except PluribusError:
                continue
            self.write({"acknowledged": token})
            await asyncio.sleep(PACE_S)


async def main(url: str, name: str, path: str) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with pluribus.connect(url, name=name) as bus:
        process = Process(bus, path)
        replica = await bus.replica("tally", Tally())
        calling = asyncio.create_task(process.call(replica))
        await reader.read()
        calling.cancel()
        await asyncio.wait([calling])
        process.write({"end": await replica.read(lambda tally: list(tally.tokens))})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
