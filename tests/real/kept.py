"""Programs that the tests of keepers kill: a publisher, a subscriber, and a member of a consumer group, clients all.

Each writes down what it is sure of: the publisher what was acknowledged, the others what they handled.
"""

import asyncio
import sys
from pathlib import Path

import pluribus

TOPIC = "kept"
BATCH = 20


async def publish(url: str, name: str, file: Path) -> None:
    """Numbers from 0 on, under a name that is new with every life."""
    async with pluribus.connect(url, name=name) as client:
        number = 0
        with file.open("a") as told:
            while True:
                bodies = [f"{name} {n}" for n in range(number, number + BATCH)]
                await client.publish_many([(TOPIC, body) for body in bodies], durable=True, live=False)
                told.writelines(f"{body}\n" for body in bodies)
                told.flush()
                number += BATCH


async def subscribe(url: str, name: str, file: Path) -> None:
    """Handle each event, write that down, then commit."""
    async with pluribus.connect(url, name=name) as client:
        events = client.subscribe(TOPIC, durable="reader", start="earliest", commit="manual")
        with file.open("a") as told:
            while True:
                some = await events.receive_many(50)
                told.writelines(f"{event.offset} {event.body}\n" for event in some)
                told.flush()
                await events.commit(some[-1])


async def share(url: str, name: str, file: Path) -> None:
    """As one of a group: write down which events were given, settle them, and write that down. All members write to one
    file, a line at a time."""
    async with pluribus.connect(url, name=name) as client:
        events = client.subscribe(TOPIC, durable="workers", shared=True, start="earliest", commit="manual")
        with file.open("a", buffering=1) as told:
            while True:
                some = await events.receive_many(50)
                for event in some:
                    told.write(f"given {event.offset} {name} {event.body}\n")
                ends = await asyncio.gather(*[events.commit(event) for event in some], return_exceptions=True)
                for event, end in zip(some, ends, strict=True):
                    if end is None:
                        told.write(f"settled {event.offset} {name} {event.body}\n")


if __name__ == "__main__":
    what, url, name, file = sys.argv[1:]
    asyncio.run({"publish": publish, "subscribe": subscribe, "share": share}[what](url, name, Path(file)))
