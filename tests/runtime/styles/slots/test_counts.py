"""What a send costs, counted at the groups of all members, for every number of recipients up to 32."""

import asyncio

import pytest

from pluribus.core.ids import ALL
from pluribus.runtime.styles.slots.buses import Slots
from pluribus.sim.machinery.world import World, run
from pluribus.slots.check import plan_of
from pluribus.slots.machine import MapMachine, MapRoutes, outcome_of, packed
from pluribus.slots.map import Begin, Enrol
from pluribus.slots.occupant import Occupant
from pluribus.slots.words import DATA_PATH, Ticket
from pluribus.wire.questions import wrapped

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
    ("by", "stack", "most", "formula"),
    [
        ("router", "best-effort", RECIPIENTS_MAX, lambda recipients: 2 + recipients),
        ("replica", "views", 8, lambda recipients: 1 + recipients),
        ("central", "best-effort", RECIPIENTS_MAX, lambda recipients: 2 + 2 * recipients),
    ],
    ids=["router", "replica", "central"],
)
def test_messages_per_send(by, stack, most, formula):
    """With warm caches exactly what the report's equations say, and 1 + R without a router."""

    async def play():
        async with World(most + 1, 1, stack=stack) as world:
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
            for recipients in range(1, most + 1):
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

    assert run(play()) == {recipients: formula(recipients) for recipients in range(1, most + 1)}


def test_without_a_router_a_send_costs_one_message_and_the_acknowledgements():
    """For every number of recipients, without the group below it, whose views of 33 members take long to play."""
    machine, members, counted = MapMachine(), {}, {}
    machine.apply(0, packed(Begin(plan_of(PLAN), 1)))

    def enrol(slot, member):
        seat = outcome_of(machine.apply(0, packed(Enrol(slot, member, member)))).seat
        here, routes = machine.map, MapRoutes(machine)
        occupant = members[member] = Occupant(slot, member, 0.0, legs_of=here.legs, routes=routes)
        generation = here.generation(slot)
        ticket = Ticket(member, seat.number, slot, generation, here.version, here.plan, (), "replica")
        occupant.granted(ticket, 0.0)
        return occupant

    def passed():
        """Hand over what was said; how much that was."""
        said = [(member, to, word) for member, occupant in members.items() for to, word in occupant.out]
        for occupant in members.values():
            occupant.out = []
        for member, to, word in said:
            for other, hearer in members.items():
                if other != member and to in (ALL, other):
                    hearer.take(member, word, 0.0)
        return len(said)

    producer = enrol("p", 1)
    for recipients in range(1, RECIPIENTS_MAX + 1):
        enrol("c", 1 + recipients)
        queued = producer.send("o", wrapped(b"x"), 0.0)
        counted[recipients] = passed()
        for occupant in members.values():
            while (arrived := occupant.take_next("in", 0.0)) is not None:
                occupant.acknowledge(arrived)
        counted[recipients] += passed()
        assert queued.done
    assert counted == {recipients: 1 + recipients for recipients in range(1, RECIPIENTS_MAX + 1)}
