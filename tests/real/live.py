"""Programs that the tests of live topics kill: members that publish numbers, and members that write down what comes."""

import asyncio
import sys
from pathlib import Path

import pluribus

PAUSE_EVERY = 50


async def publish(url: str, name: str, file: Path) -> None:
    """Numbers from 0 on under a topic of its own, as fast as others read, with a breath now and then."""
    async with pluribus.connect(url, name=name) as bus:
        number = 0
        while True:
            await bus.publish(f"live/{name}", number)
            number += 1
            if number % PAUSE_EVERY == 0:
                await asyncio.sleep(0.01)


async def subscribe(url: str, name: str, file: Path) -> None:
    """One line an event: whose, and which."""
    async with pluribus.connect(url, name=name) as bus, bus.subscribe("live/#") as events:
        with file.open("a") as told:
            while True:
                some = await events.receive_many(500)
                told.writelines(f"{event.topic.removeprefix('live/')} {event.body}\n" for event in some)
                told.flush()


if __name__ == "__main__":
    what, url, name, file = sys.argv[1:]
    asyncio.run({"publish": publish, "subscribe": subscribe}[what](url, name, Path(file)))
