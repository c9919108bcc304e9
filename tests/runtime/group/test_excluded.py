"""What a member that is cut off may do, what it is told, and how it comes back."""

import asyncio
from contextlib import suppress

import pytest

from pluribus import errors, events
from pluribus.runtime.bus import VIEWS
from pluribus.runtime.group.group import Group
from pluribus.sim.machinery.world import World
from tests.sim.inside import in_a_world


async def joined(world: World, name: str, **promises: object) -> list[Group]:
    groups = await asyncio.gather(*[bus.group(name, **promises) for bus in world.buses])
    for group in groups:
        await group.wait_for(len(groups))
    return groups


def told(bus) -> list[events.Event]:
    seen: list[events.Event] = []
    bus.on_event(seen.append)
    return seen


def of(seen: list[events.Event], kind: type) -> list:
    return [event for event in seen if isinstance(event, kind)]


async def healed(world: World, groups: list[Group]) -> None:
    world.heal()
    for group in groups:
        await group.wait_for(len(groups), timeout=30)
    await asyncio.sleep(1)


async def read_all(group: Group) -> list[bytes]:
    """What there is, with a mark where something was missed."""
    found: list[bytes] = []
    while group._channel.inbox:
        try:
            found += [message.body for message in await group.receive_many()]
        except errors.Excluded:
            found.append(b"missed")
    return found


@in_a_world(members=5, seed=3, stack=VIEWS)
async def test_outside_a_primary_ordered_calls_wait_and_without_patience_they_raise(world):
    total = await joined(world, "total", order="total")
    safe = await joined(world, "safe", safe=True)
    fifo = await joined(world, "fifo")
    world.partition([0, 1], [2, 3, 4])
    await asyncio.sleep(10)
    for group in (total[0], safe[0]):
        for timeout in (0, 0.5):
            with pytest.raises(errors.NotPrimary, match="is not in the primary view"):
                await group.send(b"nobody orders this", timeout=timeout)
        with pytest.raises(errors.NotPrimary) as raised:
            await group.send_many([b"one", b"two"], timeout=0)
        assert raised.value.__notes__ == ["0 of 2 messages were sent before"]
    await fifo[0].send(b"weaker orders go on")
    assert (await fifo[1].receive(timeout=5)).body == b"weaker orders go on"
    waiting = [asyncio.create_task(group.send(b"later")) for group in (total[0], safe[0])]
    await asyncio.sleep(10)
    assert not any(task.done() for task in waiting), "they wait"
    await healed(world, total)
    assert all(task.done() for task in waiting), "and go on when there is a primary"
    for groups in (total, safe):
        sender, neighbour, *others = [await read_all(group) for group in groups]
        assert [sender, *others] == [[b"missed", b"later"], *[[b"later"]] * 3]
        assert neighbour in ([b"missed", b"later"], [b"missed"]), "it may come back after the sender, and after that"


@in_a_world(members=5, seed=4, stack=VIEWS)
async def test_an_excluded_member_is_told_where_it_has_a_gap(world):
    votes, talk = await joined(world, "votes", order="total"), await joined(world, "talk")
    seen = [told(bus) for bus in world.buses]
    await votes[4].send(b"before")
    await asyncio.sleep(1)
    world.partition([0, 1], [2, 3, 4])
    await asyncio.sleep(10)
    assert of(seen[0], events.LostPrimary) and not of(seen[0], events.Excluded), "it does not know yet"
    await votes[2].send(b"without them")
    await asyncio.sleep(1)
    await healed(world, votes)
    for member in (0, 1):
        assert of(seen[member], events.Excluded) == [events.Excluded(("votes",))]
        kinds = [type(event) for event in seen[member]]
        assert kinds.index(events.LostPrimary) < kinds.index(events.BecamePrimary) < kinds.index(events.Excluded)
    for member in (2, 3, 4):
        assert not of(seen[member], events.Excluded)
    await votes[0].send(b"after")
    await asyncio.sleep(1)
    assert [await read_all(group) for group in votes] == [[b"before", b"missed", b"after"]] * 2 + [
        [b"before", b"without them", b"after"]
    ] * 3
    assert [await read_all(group) for group in talk] == [[]] * 5, "weaker orders promise nothing across a merge"


@in_a_world(members=5, seed=4, stack=VIEWS)
async def test_iteration_goes_on_behind_the_gap(world):
    votes = await joined(world, "votes", order="total")
    read: list[bytes] = []

    async def reader() -> None:
        while not votes[0].closed:
            try:
                async for message in votes[0]:
                    read.append(message.body)
            except errors.Excluded:
                read.append(b"missed")

    task = asyncio.create_task(reader())
    await votes[1].send(b"one")
    await asyncio.sleep(1)
    world.partition([0], [1, 2, 3, 4])
    await asyncio.sleep(10)
    await votes[1].send(b"two")
    await asyncio.sleep(1)
    await healed(world, votes)
    await votes[1].send(b"three")
    await asyncio.sleep(1)
    assert read == [b"one", b"missed", b"three"]
    await votes[0].close()
    await task


@in_a_world(members=3, seed=9, stack=VIEWS)
async def test_no_primary_for_a_while_is_no_exclusion(world):
    votes = await joined(world, "votes", order="total")
    seen = [told(bus) for bus in world.buses[1:]]
    world.crash(0)
    world.partition([1], [2])
    await asyncio.sleep(10)
    assert not any(bus.primary for bus in world.buses)
    del votes[0]
    await healed(world, votes)
    assert all(bus.primary for bus in world.buses)
    for events_told in seen:
        assert of(events_told, events.BecamePrimary)
        assert not of(events_told, events.Excluded), "nobody went on without anybody"
    await votes[1].send(b"on we go")
    await asyncio.sleep(1)
    assert [await read_all(group) for group in votes] == [[b"on we go"]] * 2


@pytest.mark.parametrize("promises", [{"order": "total"}, {"safe": True}], ids=["total", "safe"])
def test_unconfirmed_sends_of_a_member_that_is_cut_off_are_uncertain(promises):
    @in_a_world(members=3, seed=6, stack=VIEWS)
    async def play(world):
        votes = await joined(world, "votes", **promises)
        at = next(place for place, bus in enumerate(world.buses) if bus.me != votes[0].view.members[0])
        seen = told(world.buses[at])
        world.partition([at], [other for other in range(3) if other != at])
        ids = tuple([await votes[at].send(b"does anybody hear me?") for _ in range(3)])
        await asyncio.sleep(10)
        (uncertain,) = of(seen, events.Uncertain)
        assert uncertain == events.Uncertain("votes", ids)
        assert seen.index(uncertain) > seen.index(of(seen, events.LostPrimary)[0])
        assert world.buses[at].stats()["total"]["uncertain"] == 3
        await healed(world, votes)
        await votes[at].send(b"here I am")
        await asyncio.sleep(1)
        assert [await read_all(group) for place, group in enumerate(votes) if place != at] == [[b"here I am"]] * 2
        assert await read_all(votes[at]) == [b"missed", b"here I am"]
        assert len(of(seen, events.Uncertain)) == 1

    play()


@in_a_world(members=3, seed=6, stack=VIEWS)
async def test_of_a_message_in_pieces_only_the_message_is_uncertain(world):
    votes = await joined(world, "votes", order="total")
    at = next(place for place, bus in enumerate(world.buses) if bus.me != votes[0].view.members[0])
    seen = told(world.buses[at])
    world.partition([at], [other for other in range(3) if other != at])
    with suppress(errors.Overflow):
        sent = await votes[at].send(bytes(100_000), timeout=0.5)
    await asyncio.sleep(10)
    (uncertain,) = of(seen, events.Uncertain)
    assert uncertain.ids == (sent,) and world.buses[at].stats()["total"]["uncertain"] > 1


@in_a_world(members=3, seed=8, stack=VIEWS)
async def test_a_stream_to_one_member_goes_on_when_only_its_receiver_had_lost_sight_of_it(world):
    """The receiver was alone for a while; the sender stood still meanwhile and never noticed."""
    talk = await joined(world, "talk")
    await talk[0].send(b"one", to=talk[1].me)
    assert (await talk[1].receive(timeout=5)).body == b"one"
    world.pause(0, 4.0)
    await asyncio.sleep(3)
    assert len(talk[1].view) == 2
    await talk[1].wait_for(3, timeout=30)
    await asyncio.sleep(2)
    await talk[0].send(b"two", to=talk[1].me)
    assert (await talk[1].receive(timeout=5)).body == b"two"
