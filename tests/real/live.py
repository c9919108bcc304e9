"""Programs that the tests of live topics kill: members that publish numbers, and members that write down what comes."""

import asyncio
import sys
from pathlib import Path

import pluribus

PAUSE_EVERY = 50
JOBS = 400


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


async def hand_out(url: str, name: str, file: Path) -> None:
    """Jobs for those who share them."""
    async with pluribus.connect(url, name=name) as bus:
        await bus.wait_for(3)
        for number in range(JOBS):
            await bus.publish("jobs", number)
        await asyncio.Event().wait()


async def work(url: str, name: str, file: Path) -> None:
    """A line when a job is begun: which, and whether somebody may have begun it before."""
    async with pluribus.connect(url, name=name) as bus, bus.subscribe("jobs", shared="workers") as jobs:
        with file.open("a") as told:
            told.write("ready no\n")
            told.flush()
            async for job in jobs:
                told.write(f"{job.body} {'again' if job.again else 'first'}\n")
                told.flush()
                await asyncio.sleep(0.005)


PROGRAMS = {"publish": publish, "subscribe": subscribe, "hand_out": hand_out, "work": work}

if __name__ == "__main__":
    what, url, name, file = sys.argv[1:]
    asyncio.run(PROGRAMS[what](url, name, Path(file)))
