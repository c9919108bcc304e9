"""Watching a bus: events by iteration, by call-back and without a loop; what a slow one misses, and how it ends."""

import asyncio
import gc
import logging

import pytest

import pluribus
from pluribus.core.events import Gone, Skipped, Suspected
from pluribus.core.limits import EVENTS_WAITING_MAX
from pluribus.events import BecamePrimary, Event, Merged, Unsuspected, ViewInstalled
from pluribus.runtime.bus import VIEWS
from pluribus.runtime.loop.events import Watchers
from tests.harness import eventually, new_bus, on_a_loop
from tests.sim.inside import in_a_world


@on_a_loop
async def test_views_are_told_while_members_come_and_go():
    url = new_bus()
    async with pluribus.connect(url, name="ann", stack="views") as ann:
        events = ann.events()
        async with pluribus.connect(url, name="bob", stack="views") as bob:
            me = (ann.me, bob.me)
            async for event in events:
                if isinstance(event, ViewInstalled) and set(event.view.members) == set(me):
                    assert event.view.names == {ann.me: "ann", bob.me: "bob"}
                    assert event.view.agreed
                    break
        seen = []
        async for event in events:
            seen.append(event)
            if isinstance(event, ViewInstalled) and event.view.members == (ann.me,):
                break
        assert Gone(bob.me, "it left", "bob") in seen
        assert not any(isinstance(event, Merged) for event in seen), "a newcomer is no side"
    assert not any(isinstance(event, ViewInstalled) for event in [event async for event in events])


@on_a_loop
async def test_a_listener_is_called_until_it_is_told_to_stop_and_its_failure_is_its_own(caplog):
    url = new_bus()
    async with pluribus.connect(url, name="ann", stack="best-effort") as ann:
        heard: list[Event] = []

        def fail(event: Event) -> None:
            raise KeyError("a listener's own mistake")

        ann.on_event(fail)
        stop = ann.on_event(heard.append)
        with caplog.at_level(logging.CRITICAL):
            async with pluribus.connect(url, name="bob", stack="best-effort") as bob:
                await eventually(lambda: len(ann.members) == 2)
            await eventually(lambda: heard == [Gone(bob.me, "it left", "bob")])
        stop()
        stop()
        async with pluribus.connect(url, name="cid", stack="best-effort"):
            await eventually(lambda: len(ann.members) == 2)
        await eventually(lambda: len(ann.members) == 1)
        await asyncio.sleep(0)
        assert len(heard) == 1


def test_without_a_loop():
    url = new_bus()
    with pluribus.sync.connect(url, name="ann", stack="views") as ann:
        heard: list[Event] = []
        stop = ann.on_event(heard.append)
        events = ann.events()
        with pluribus.sync.connect(url, name="bob", stack="views") as bob:
            found = next(e for e in events if isinstance(e, ViewInstalled) and len(e.view) == 2)
            assert set(found.view.members) == {ann.me, bob.me}
        assert any(isinstance(event, Gone) for event in events)
        stop()
        assert any(isinstance(event, ViewInstalled) for event in heard)
    assert list(events) is not None, "it ends with the bus"


@on_a_loop
async def test_who_looks_too_slowly_is_told_how_much_it_missed():
    watchers = Watchers()
    events = watchers.iteration(ended=False)
    for member in range(1, EVENTS_WAITING_MAX + 4):
        watchers.tell(Suspected(member, "m"))
    watchers.end()
    seen = [event async for event in events]
    assert seen[0] == Skipped(3)
    assert seen[1] == Suspected(4, "m") and len(seen) == EVENTS_WAITING_MAX + 1


@on_a_loop
async def test_an_iteration_that_was_dropped_is_forgotten():
    watchers = Watchers()
    events = watchers.iteration(ended=False)
    assert len(watchers._iterations) == 1
    del events
    gc.collect()
    assert len(watchers._iterations) == 0


@on_a_loop
async def test_a_closed_bus_has_no_events():
    bus = await pluribus.connect(new_bus(), name="ann")
    await bus.close()
    assert [event async for event in bus.events()] == []


@in_a_world(members=4, seed=5, stack=VIEWS)
async def test_suspicions_partitions_and_merges_are_told(world):
    groups = await asyncio.gather(*[bus.group("all") for bus in world.buses])
    for group in groups:
        await group.wait_for(4)
    await asyncio.sleep(2)
    seen: list[list[Event]] = [[] for _ in world.buses]
    for bus, told in zip(world.buses, seen, strict=True):
        bus.on_event(told.append)
    me = [bus.me for bus in world.buses]
    world.partition([0], [1, 2, 3])
    await asyncio.sleep(10)
    assert {event.member for event in seen[0] if isinstance(event, Suspected)} == set(me[1:])
    assert [(e.member, e.name) for e in seen[1] if isinstance(e, Suspected)] == [(me[0], "m0")]
    assert any(isinstance(event, pluribus.events.LostPrimary) for event in seen[0])
    assert not any(isinstance(event, pluribus.events.LostPrimary) for event in seen[1])
    world.heal()
    for group in groups:
        await group.wait_for(4, timeout=30)
    await asyncio.sleep(1)
    for member, told in enumerate(seen):
        (merged,) = [event for event in told if isinstance(event, Merged)]
        assert sorted(map(sorted, merged.sides)) == sorted([[me[0]], sorted(me[1:])]), member
    assert {event.member for event in seen[0] if isinstance(event, Unsuspected)} == set(me[1:])
    assert [(e.member, e.name) for e in seen[2] if isinstance(e, Unsuspected)] == [(me[0], "m0")]
    assert any(isinstance(event, BecamePrimary) for event in seen[0])


@pytest.mark.parametrize("name", pluribus.events.__all__)
def test_every_event_says_what_it_means(name):
    assert issubclass(getattr(pluribus.events, name), Event)
    assert getattr(pluribus.events, name).__doc__
