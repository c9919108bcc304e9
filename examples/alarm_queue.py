"""The fire alarm of the book with a message queue: alarms wait until one fire brigade has taken each of them.

A warden sends alarms of a type and from a place; crews share the queue. A crew that breaks down gives its alarm back,
an alarm that nobody can handle becomes a dead letter, and a crew that is for one district only takes what is there for
it. Run it: ``python examples/alarm_queue.py``.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec

import pluribus


@pluribus.register
class Alarm(msgspec.Struct):
    type: str
    place: str


async def main(store: Path) -> list[str]:
    """What happened, in words."""
    told: list[str] = []
    async with pluribus.connect("inproc://fire-brigade", store=store) as bus:
        alarms = await bus.queue("alarms", tries=2, backoff=(0.01, 0.1))
        await alarms.send(Alarm("smoke", "kitchen"), properties={"district": "north"}, key="kitchen")
        await alarms.send(Alarm("fire", "kitchen"), properties={"district": "north"}, key="kitchen", priority=9)
        await alarms.send(Alarm("fire", "harbour"), properties={"district": "south"}, priority=9)
        await alarms.send(Alarm("test", "nowhere"), properties={"district": "none"})

        async with alarms.receive("district = 'south'", timeout=30) as message:
            told.append(f"the southern crew drives to the {message.body.place}")

        try:
            async with alarms.receive("district = 'north'", timeout=30) as message:
                raise RuntimeError("the engine broke down")
        except RuntimeError as error:
            told.append(f"{error}: the {message.body.type} in the {message.body.place} is given back")

        for _ in range(2):  # of one place in order, however urgent: first the smoke, then the fire
            async with alarms.receive("district = 'north'", timeout=30) as message:
                told.append(f"try {message.deliveries}: {message.body.type} in the {message.body.place} is put out")

        message = await alarms.receive(timeout=30)
        await message.reject("there is no such place")
        dead = [one async for one in alarms.browse(dead=True)]
        told.append(f"dead letter: {dead[0].body.type}, because {dead[0].reason}")
        stats = await alarms.stats()
        told.append(f"{stats.depth} alarms wait, {stats.dead} dead letter")
    return told


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(asyncio.run(main(Path(folder) / "alarms.db"))))
