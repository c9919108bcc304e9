"""What a send costs, counted at the groups of all members, for every number of recipients up to 32."""

import asyncio

import pytest

from pluribus.runtime.styles.slots.buses import Slots
from pluribus.sim.machinery.world import World, run
from pluribus.slots.check import plan_of
from pluribus.slots.words import DATA_PATH

PLAN = "bus count\nslot p { out o }\nslot c 0..many { in in }\np.o -> c.in"
RECIPIENTS_MAX = 32


def stations(world):
    return [found for bus in world.buses if (found := bus._style(Slots).stations.get("count")) is not None]


def cost(world):
    """Messages on the way of data since it was last asked."""
    found = sum(station.said[word] for station in stations(world) for word in DATA_PATH)
    for station in stations(world):
        station.said.clear()
    return found


@pytest.mark.parametrize(
    ("by", "stack", "formula"),
    [
        ("router", "best-effort", lambda recipients: 2 + recipients),
        ("replica", "views", lambda recipients: 1 + recipients),
        ("central", "best-effort", lambda recipients: 2 + 2 * recipients),
    ],
    ids=["router", "replica", "central"],
)
def test_messages_per_send(by, stack, formula):
    """With warm caches exactly what the report's equations say, and 1 + R without a router."""

    async def play():
        async with World(RECIPIENTS_MAX + 1, 1, stack=stack) as world:
            host = await world.buses[0].slots(plan_of(PLAN), by=by)
            producer = await world.buses[0].enroll("p", on="count")
            got, counted = [], {}

            async def read(slot):
                async for message in slot.port("in"):
                    got.append(message.body)

            async def send(recipients):
                before = len(got)
                await producer.send("o", b"x", wait=None if by == "central" else "all")
                while len(got) < before + recipients or (by == "central" and host.router.waiting):  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

            tasks = []
            for recipients in range(1, RECIPIENTS_MAX + 1):
                slot = await world.buses[recipients].enroll("c", on="count")
                tasks.append(asyncio.create_task(read(slot)))
                await send(recipients)  # caches are cold
                cost(world)
                await send(recipients)
                counted[recipients] = cost(world)
            for task in tasks:
                task.cancel()
            world.validate()
            return counted

    assert run(play()) == {recipients: formula(recipients) for recipients in range(1, RECIPIENTS_MAX + 1)}
