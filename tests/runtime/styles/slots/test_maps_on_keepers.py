"""A bus without a router whose map is on keepers as well, and clients on a bus without a router."""

import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.slots.check import plan_of
from pluribus.slots.machine import MapMachine, outcome_of, packed
from pluribus.slots.map import Begin, Connect, Enrol, Resume
from pluribus.slots.plan import Connection, End
from tests.harness import eventually, new_bus, on_a_loop
from tests.runtime.clients.test_client import served, url_of
from tests.runtime.styles.slots.test_slots import reading

PLAN = "bus kept\nslot p 0..4 { out o }\nslot c 0..4 { in in }\nslot d { in in }\np.o -> c.in"
MORE = ("p.o", "d.in")


@on_a_loop
async def test_a_map_outlives_all_its_members(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="keeper", store=tmp_path / "k.db"):
        async with pluribus.connect(url, name="one") as one:
            await one.slots(plan_of(PLAN), by="replica")
            producer = await one.enroll("p", on="kept")
            await producer.add_route(*MORE)
            epoch, ticket = producer._occupant.routes.version[0], producer.ticket
        async with pluribus.connect(url, name="two") as two:
            host = await two.slots(plan_of(PLAN), by="replica")
            assert [str(found) for found in host.map.connections.values()] == ["p.o -> c.in", "p.o -> d.in"]
            assert host.map.epoch > epoch, "a later life"
            await eventually(lambda: ticket not in host.map.seats, "who is gone is given up")
            read = [await reading(await two.enroll(slot, on="kept")) for slot in ("c", "d")]
            await (await two.enroll("p", on="kept")).send("o", "here", wait="all", timeout=20)
            assert [into for into, _ in read] == [["here"], ["here"]]
            for _, task in read:
                task.cancel()


@on_a_loop
async def test_keepers_may_come_later(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="one") as one:
        host = await one.slots(plan_of(PLAN), by="replica")
        async with pluribus.connect(url, name="keeper", store=tmp_path / "k.db"):
            producer = await one.enroll("p", on="kept")
            await producer.add_route(*MORE)
            await producer.drop_out()
            await host.close()
            again = await one.slots(plan_of(PLAN), by="replica")
            assert again.map is not host.machine.map and not again.map.seats
            assert [str(found) for found in again.map.connections.values()] == [], "its slot was left for good"


@on_a_loop
async def test_keepers_that_come_back_are_right(tmp_path):
    """A bus that was begun anew while they were away goes on with what they were told."""
    url = new_bus()
    store = tmp_path / "k.db"
    async with pluribus.connect(url, name="keeper", store=store), pluribus.connect(url, name="one") as one:
        await one.slots(plan_of(PLAN), by="replica")
        await (await one.enroll("p", on="kept")).add_route(*MORE)
    async with pluribus.connect(url, name="two") as two:
        host = await two.slots(plan_of(PLAN), by="replica")
        assert len(host.map.connections) == 1
        early = await two.enroll("c", on="kept")
        async with pluribus.connect(url, name="keeper", store=store):
            await two.enroll("p", on="kept")
            await eventually(lambda: len(host.map.connections) == 2)
            assert early.state == "expelled", "its ticket was of a map that nobody goes on with"


def begun():
    machine = MapMachine()
    machine.apply(0, packed(Begin(plan_of(PLAN), 10)))
    return machine


def done(machine, command):
    return outcome_of(machine.apply(0, packed(command)))


def copy_of(machine):
    made = MapMachine()
    made.restore(machine.snapshot())
    return made


def test_no_ticket_is_issued_twice_though_two_lives_go_on_from_one_state():
    """A forced primary that went on with an older map issued numbers that the lost one had issued."""
    one = begun()
    other = copy_of(one)
    tickets = {
        done(machine, Enrol(slot, member, nonce)).seat.number
        for machine, member in ((one, 1), (other, 2))
        for slot in ("p", "c")
        for nonce in (100 + member, 200 + member)
    }
    assert len(tickets) == 8


def test_a_ticket_that_was_given_up_is_not_given_again():
    """Not even for the same request, which may come late and twice."""
    machine = begun()
    wish = Enrol("p", 1, 100)
    first = done(machine, wish).seat.number
    assert done(machine, wish).seat.number == first
    machine.map._leave(first, False)
    assert done(machine, wish).seat.number != first


def test_of_two_states_a_replica_goes_on_with_the_one_that_has_more():
    kept = begun()
    behind = copy_of(kept)
    seat = done(kept, Enrol("p", 1, 100)).seat
    done(kept, Connect(seat.number, Connection(End("p", "o"), End("d", "in"))))
    ahead = copy_of(kept)
    assert behind.map.age < kept.map.age
    for machine, connections in ((behind, 2), (ahead, 2)):
        done(machine, Resume(10, 11, kept.snapshot()))
        assert len(machine.map.connections) == connections and machine.map.epoch == 11
        done(machine, Resume(10, 99, b""))
        assert machine.map.epoch == 11, "somebody else was quicker"
    new = MapMachine()
    done(new, Resume(0, 5, kept.snapshot()))
    assert new.map.epoch == 11 and seat.number in new.map.seats, "later than the life that it goes on from"


@on_a_loop
async def test_a_client_occupies_a_slot_where_there_is_no_router():
    async with served("kept-client") as member, pluribus.connect(url_of(member), name="outside") as client:
        host = await member.slots(plan_of(PLAN), by="replica")
        consumers = [await member.enroll("c", on="kept"), await member.enroll("d", on="kept")]
        read = [await reading(slot) for slot in consumers]
        producer = await client.enroll("p", on="kept")
        assert [seat.name for seat in host.map.occupants("p").values()] == ["outside"]
        assert (await producer.send("o", 1, wait="all", timeout=20)).count == 1
        await producer.add_route(*MORE)
        await producer.send("o", 2, wait="all", timeout=20)
        assert [into for into, _ in read] == [[1, 2], [2]]
        mine = await reading(await client.enroll("c", on="kept"))
        await (await member.enroll("p", on="kept")).send("o", 3, wait="all", timeout=20)
        assert mine[0] == [3]
        for _, task in (*read, mine):
            task.cancel()
        await producer.drop_out()
        assert producer.state == "out"
        with pytest.raises(BadInput, match="has no copy of a map"):
            await client.slots(plan_of(PLAN), by="replica")
        client.line._writer.transport.abort()
        await eventually(lambda: len(host.map.occupants("c")) == 1, "who is gone is given up", 30)
