"""A consumer: prints each number that comes. ``python consumer.py SLOT [CARRY]``.

On a line of standard input it leaves, to go on elsewhere: what it takes along is written to the file CARRY. If that
file is there when it starts, it goes on with that.
"""

import asyncio
import sys
from pathlib import Path

import pluribus


async def main() -> None:
    name = sys.argv[1]
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    carry = kept.read_bytes() if kept is not None and kept.exists() else None
    async with pluribus.connect(name=name, stack="best-effort") as bus:
        slot = await bus.enroll(name, carry=carry, timeout=30)
        print("enrolled", flush=True)

        async def read() -> None:
            async for message in slot.port("in"):
                print(message.body, flush=True)

        reading = asyncio.create_task(read())
        await asyncio.to_thread(sys.stdin.readline)
        moved = await slot.move()
        await reading
        if kept is not None:
            kept.write_bytes(moved.packed())


asyncio.run(main())
