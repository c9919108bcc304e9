"""The producer: sends numbers on its red port, now and then one on its green port. ``python producer.py COUNT``."""

import asyncio
import sys

import pluribus


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    async with pluribus.connect(name="producer", stack="best-effort") as bus:
        slot = await bus.enroll("producer", timeout=30)
        for number in range(count):
            await slot.send("red", number)
            if number % 10 == 0:
                await slot.send("green", number)
            await asyncio.sleep(0.005)
        while slot.queued:  # noqa: ASYNC110 - until every consumer has acknowledged all of it
            await asyncio.sleep(0.05)
        print(f"{count} numbers sent, {slot.expired_count} expired")


asyncio.run(main())
