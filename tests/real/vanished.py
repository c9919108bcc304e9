"""A member and a client at two sites, for a test that cuts the sites apart. Each prints what happens to it."""

import asyncio
import sys

import pluribus

PATIENCE_S = 60


def say(*words: object) -> None:
    print(*words, flush=True)


async def member(serve: str) -> None:
    """Shares jobs with the client, which takes one, and then asks for what the client has."""
    async with pluribus.connect("inproc://vanished", serve=serve) as bus, bus.subscribe("taken") as taken:
        ours = await bus.subscribe("jobs", shared="w")
        say("serves", bus.doors[0].address[1])
        await bus.wait_for_subscribers("jobs", 2, timeout=PATIENCE_S)
        await bus.publish("jobs", "a job")
        await taken.receive(PATIENCE_S)
        say("taken")
        event = await ours.receive(PATIENCE_S)
        say("again" if event.again else "new", event.body)


async def client(url: str) -> None:
    async with pluribus.connect(url) as bus, bus.subscribe("news") as news:
        job = await bus.subscribe("jobs", shared="w").open()
        await job.receive(PATIENCE_S)
        await bus.publish("taken", "a job")
        try:
            await news.receive(PATIENCE_S)
        except pluribus.errors.Gap:
            say("gap")


if __name__ == "__main__":
    what, where = sys.argv[1:]
    asyncio.run({"member": member, "client": client}[what](where))
