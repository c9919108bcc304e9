"""Processes of a shop with an outbox, which kill themselves: ``python -m tests.outbox.shop ROLE URL DSN STEP``.

The shop writes an order and sends a parcel; the forwarder moves the parcel to its queue; the store handles it, and
writes into its own table of the same database.
"""

import asyncio
import os
import signal
import sys

import psycopg

import pluribus
from pluribus import outbox

HOLD_S = 3.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(outbox.Forwarder):
    """Dies at a step."""

    step = ""

    async def _reached(self, step: str) -> None:
        if step == self.step:
            die()


def shop(dsn: str, step: str, numbers: range) -> None:
    with psycopg.connect(dsn) as db:
        for number in numbers:
            with db.transaction():
                db.execute("INSERT INTO orders VALUES (%s)", (number,))
                outbox.send(db, "parcels", {"order": number}, key=f"k{number % 3}", properties={"number": number})
                if step == "the shop, before its commit" and number == numbers[-1]:
                    die()
    if step == "the shop, after its commit":
        die()


async def forward(url: str, dsn: str, step: str) -> None:
    async with pluribus.connect(url) as bus:
        forwarder = Mortal(bus, dsn, hold=HOLD_S)
        forwarder.step = step.removeprefix("the forwarder, ")
        await forwarder.run(once=True)


async def store(url: str, dsn: str, step: str, count: int) -> None:
    """Handle what comes, until ``count`` parcels are there."""
    async with pluribus.connect(url) as bus, await psycopg.AsyncConnection.connect(dsn) as db:
        parcels = await bus.queue("parcels")
        while True:
            done = await (await db.execute("SELECT count(*) FROM parcels")).fetchone()
            await db.commit()
            if done[0] >= count:
                return
            async with parcels.receive(timeout=2) as parcel:
                if parcel is None:
                    continue
                if step == "the consumer, with the message in its hands":
                    die()
                async with db.transaction():
                    if await outbox.first_async(db, parcel, "store"):
                        await db.execute("INSERT INTO parcels VALUES (%s)", (parcel.body["order"],))
                    if step == "the consumer, before its commit":
                        die()
                if step == "the consumer, after its commit":
                    die()
            if step == "the consumer, after it settled the message":
                die()


def main() -> None:
    role, url, dsn, step = sys.argv[1:5]
    if role == "shop":
        shop(dsn, step, range(int(sys.argv[5]), int(sys.argv[6])))
    elif role == "forward":
        asyncio.run(forward(url, dsn, step))
    else:
        asyncio.run(store(url, dsn, step, int(sys.argv[5])))


if __name__ == "__main__":
    main()
