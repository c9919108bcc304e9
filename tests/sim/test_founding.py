"""Founding: a sample of the campaign, the mutants that it must find, and the plain cases."""

import asyncio

import msgspec
import pytest

import pluribus
from pluribus.core.errors import Violation
from pluribus.events import Dissolved
from pluribus.layers.membership import Membership
from pluribus.runtime.bus import VIEWS
from pluribus.sim.checkers.founding import APART, alike, kept, told
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.machinery.network import Link, Medium
from tests.mutants import founding
from tests.mutants.hunt import assert_found, sample

ONCE_FAILED = (17,)
"""Three chains met, and the one that was forced took the state of another chain than its members came from."""


def test_a_sample_of_seeds_breaks_no_promise():
    found = sample("founding", founding.FOUND, *ONCE_FAILED)
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", founding.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = founding.FOUND[mutant]
    assert_found(mutant, seed, sentence, "founding")


# The checkers

TOKEN = (1, 7)
TOKENS = msgspec.msgpack.encode([TOKEN])
NOTHING = msgspec.msgpack.encode([])
ACKNOWLEDGED = Happening(1.0, 1, "acknowledged", "calls", TOKEN, parent=(9, 3))
GETS = Happening(0.9, 1, "gets", "calls", TOKEN)


def history(*happenings: Happening) -> History:
    found = History()
    for happening in happenings:
        found.add(happening)
    return found


def ended(body: bytes, *living: int) -> list[Happening]:
    return [
        Happening(9.0, 0, "settled", members=living),
        *(Happening(9.0, m, "end", "calls", body=body) for m in living),
    ]


def test_what_was_acknowledged_is_kept():
    assert kept(history(GETS, ACKNOWLEDGED, *ended(TOKENS, 1, 2))) == 1
    with pytest.raises(Violation, match=r"although .* lives"):
        kept(history(GETS, ACKNOWLEDGED, *ended(NOTHING, 1, 2)))
    with pytest.raises(Violation, match=r"although .* lives"):
        kept(history(Happening(2.0, 2, "has", "calls", body=TOKENS), GETS, ACKNOWLEDGED, *ended(NOTHING, 2)))


def test_what_nobody_has_who_lives_may_be_lost():
    assert kept(history(GETS, ACKNOWLEDGED, *ended(NOTHING, 2))) == 1
    assert kept(history(Happening(0.0, 0, APART), GETS, ACKNOWLEDGED, *ended(NOTHING, 1))) == 1


@pytest.mark.parametrize("runs", [[], [(9, 4, 8)], [(8, 0, 8)]], ids=["nothing", "others", "another's"])
def test_what_is_lost_is_told_with_its_identity(runs):
    said = Happening(8.0, 1, "dissolved", "calls", body=msgspec.msgpack.encode(runs))
    with pytest.raises(Violation, match="never told"):
        told(history(ACKNOWLEDGED, said, *ended(NOTHING, 1)))
    right = Happening(8.0, 1, "dissolved", "calls", body=msgspec.msgpack.encode([(9, 0, 4)]))
    assert told(history(ACKNOWLEDGED, right, *ended(NOTHING, 1))) == 1


def test_all_have_the_same_in_the_end():
    assert alike(history(*ended(TOKENS, 1, 2))) == 2
    with pytest.raises(Violation, match="do not have the same"):
        alike(history(*ended(TOKENS, 1), *ended(NOTHING, 2)))


# The plain cases


class Sum:
    def __init__(self) -> None:
        self.value = 0

    def apply(self, index: int, command: bytes) -> bytes:
        self.value += int(command)
        return str(self.value).encode()

    def snapshot(self) -> bytes:
        return str(self.value).encode()

    def restore(self, state: bytes) -> None:
        self.value = int(state)


def cut_off(world, number: int) -> None:
    for other in range(len(world.hosts)):
        if other != number:
            world.set_link(Link(loss=1.0), number, other)
            world.set_link(Link(loss=1.0), other, number)


async def primary_of(world, *numbers: int):
    for _ in range(100):
        await asyncio.sleep(0.1)
        buses = [world.hosts[number].bus for number in numbers]
        if all(bus.primary and len(bus.members) == len(numbers) for bus in buses):
            return buses
    raise AssertionError(f"{numbers} are in no primary of their own")


@pytest.mark.parametrize("medium", [Medium(machines=1), Medium(broadcasts=False, machines=1)], ids=str)
def test_on_one_machine_nobody_founds_while_others_of_the_primary_stand_still(medium):
    async def main() -> None:
        async with pluribus.sim.world(3, seed=1, stack=VIEWS, medium=medium) as world:
            world.crash(2)
            one, _ = await primary_of(world, 0, 1)
            replica = await one.replica("sum", Sum())
            assert await replica.call(b"5") == b"5"
            world.pause(0, 20)
            world.pause(1, 20)
            started = await world.restart(2)
            await asyncio.sleep(19)
            assert not started.primary, "those who are there are paused, and not gone"
            await primary_of(world, 0, 1, 2)
            assert await (await started.replica("sum", Sum())).call(b"1") == b"6"

    pluribus.sim.run(main())


def test_on_one_machine_whoever_starts_founds_as_soon_as_the_others_are_gone():
    async def main() -> None:
        async with pluribus.sim.world(2, seed=1, stack=VIEWS, medium=Medium(machines=1)) as world:
            world.crash(1)
            await primary_of(world, 0)
            world.pause(0, 60)
            started = await world.restart(1)
            await asyncio.sleep(10)
            assert not started.primary
            world.crash(0)
            await asyncio.sleep(0.5)
            assert started.primary

    pluribus.sim.run(main())


@pytest.mark.parametrize("claimer", [0, 1])
def test_whoever_has_claimed_the_lock_founds_though_another_is_the_eldest(claimer):
    """Its first attempt was outbid, say. Nobody else of the machine can have the lock any more."""

    async def main() -> None:
        async with pluribus.sim.world(2, seed=1, stack=VIEWS, medium=Medium(machines=1)) as world:
            membership = world.hosts[claimer].bus._stack.find(Membership)
            membership._claimed = membership.ports.founding.claim()
            assert membership._claimed
            await primary_of(world, 0, 1)
            assert world.now < 1, "it does not wait for the eldest, which cannot"

    pluribus.sim.run(main())


def test_elsewhere_whoever_is_heard_in_time_keeps_a_starter_from_founding():
    async def main() -> None:
        async with pluribus.sim.world(3, seed=1, stack=VIEWS, medium=Medium(listen_s=1.5)) as world:
            world.crash(2)
            await primary_of(world, 0, 1)
            chains = []
            cut_off(world, 2)
            started = await world.restart(2)
            started.on_event(lambda event: chains.append((type(event).__name__, len(started.members))))
            await asyncio.sleep(1.2)
            world.network.clear_links()
            await primary_of(world, 0, 1, 2)
            assert ("BecamePrimary", 1) not in chains, "it was never the primary by itself"

    pluribus.sim.run(main())


def test_the_most_cautious_of_the_founders_is_heeded():
    """Members that ask for different numbers understand each other."""

    async def main() -> None:
        async with pluribus.sim.world(2, seed=1, stack=VIEWS) as world:
            world.stack = VIEWS.replace("membership", "membership(founders=4)")
            world.crash(0)
            world.crash(1)
            cautious = await world.restart(0)
            world.stack = VIEWS.replace("membership", "membership(founders=2)")
            other = await world.restart(1)
            await asyncio.sleep(5)
            assert len(cautious.members) == len(other.members) == 2 and not (cautious.primary or other.primary)
            views = cautious.stats()["membership"]["views"]
            await asyncio.sleep(20)
            assert cautious.stats()["membership"]["views"] == views, "they do not try again and again"
            await world.add()
            await world.add()
            await primary_of(world, 0, 1, 2, 3)

    pluribus.sim.run(main())


def test_whoever_was_in_the_primary_that_gives_way_is_told_what_is_lost():
    async def main() -> None:
        async with pluribus.sim.world(3, seed=3, stack=VIEWS) as world:
            world.crash(2)
            pair = await primary_of(world, 0, 1)
            cut_off(world, 2)
            lone = await world.restart(2)
            await primary_of(world, 2)
            events: dict[str, list[Dissolved]] = {"pair": [], "lone": []}
            for name, bus in (("pair", pair[0]), ("lone", lone)):
                bus.on_event(lambda event, name=name: isinstance(event, Dissolved) and events[name].append(event))
            replicas = [await bus.replica("sum", Sum()) for bus in (*pair, lone)]
            groups = [await bus.group("safe", safe=True) for bus in (*pair, lone)]
            calls = [replicas[2].new_id() for _ in range(3)]
            for call in calls:
                await replicas[2].call(b"100", id=call)
            sent = [await groups[2].send(b"lost", wait="stable") for _ in range(2)]
            for _ in range(2):
                await groups[2].receive(timeout=5)
            await replicas[0].call(b"7")
            world.network.clear_links()
            await primary_of(world, 0, 1, 2)
            assert await replicas[2].call(b"1") == b"8", "it goes on with what the others have"
            assert events["pair"] == []
            told = {event.what: event for event in events["lone"]}
            assert told["messages"] == Dissolved("messages", "safe", 2, ((sent[0][0], sent[0][1], sent[1][1] + 1),))
            assert told["calls"] == Dissolved("calls", "sum", 3, ((calls[0][0], calls[0][1], calls[2][1] + 1),))

    pluribus.sim.run(main())
