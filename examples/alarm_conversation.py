"""A fire alarm that people answer: each alarm begins a thread, and whoever goes says so under it.

    python examples/alarm_conversation.py

Three wardens are in the conversation "alarms". One raises a fire and a flood; the others answer, each in the right
thread, although one of them was away when the alarms were raised.
"""

import asyncio

import pluribus

URL = "inproc://building"


def show(room) -> list[str]:
    return ["  " * depth + f"{entry.by}: {entry.body}" for depth, entry in room.tree().walk()]


async def knows(room, count: int) -> None:
    """Wait until so many messages are there."""
    async with asyncio.timeout(10):
        while len(room.history()) < count:  # noqa: ASYNC110 - a short look is simpler than a subscription
            await asyncio.sleep(0.02)


async def main() -> list[str]:
    async with (
        pluribus.connect(URL, name="warden 1", stack="adhoc") as one,
        pluribus.connect(URL, name="warden 2", stack="adhoc") as two,
    ):
        first = await one.conversation("alarms", description="fire and water")
        second = await two.conversation("alarms")
        fire = await first.send("FIRE on floor 3, kitchen")
        flood = await first.send("FLOOD in the cellar")
        await knows(second, 2)
        await second.send("I close the valve", parent=flood)
        async with pluribus.connect(URL, name="warden 3", stack="adhoc") as three:
            third = await three.conversation("alarms")  # it was away until now
            await knows(third, 3)
            await third.send("on my way with the extinguisher", parent=fire)
            await knows(first, 4)
            await knows(second, 4)
            assert show(first) == show(second) == show(third)
        return show(first)


if __name__ == "__main__":
    print("\n".join(pluribus.run(main())))
