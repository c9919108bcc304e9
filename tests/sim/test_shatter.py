"""All members lose each other at once: a sample of the campaign, the mutant that it must find, and the plain case."""

import asyncio
from collections.abc import Callable

import pytest

import pluribus
from pluribus.core.errors import Violation
from pluribus.layers.total import Total
from pluribus.runtime.bus import VIEWS
from pluribus.sim.checkers.totals import survives
from pluribus.sim.machinery.campaign import campaign
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.machinery.network import Link
from tests.mutants import limbo
from tests.mutants.hunt import assert_found, released

ONCE_FAILED = (10,)
"""Pieces of a message that had come before were forgotten on the way to the rest."""


def test_a_sample_of_seeds_breaks_no_promise():
    found = campaign("shatter", (0, 2_000, *ONCE_FAILED))
    assert (found["failures"], found["reasons"]) == ([], {})
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", limbo.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = limbo.FOUND[mutant]
    assert_found(mutant, seed, sentence, "shatter")


def delivered_after_all_lost_all() -> list[list[bytes]]:
    """One member delivers a safe message, all lose each other, that member dies: what the other two have delivered."""

    async def main() -> list[list[bytes]]:
        async with pluribus.sim.world(members=3, seed=1, stack=VIEWS) as world:
            groups = [await bus.group("red", safe=True) for bus in world.buses]
            for group in groups:
                await group.wait_for(3)
            eldest = next(at for at, bus in enumerate(world.buses) if bus.me == bus._dispatch.view.members[0])
            others = [at for at in range(3) if at != eldest]
            orders = [world.buses[at]._stack.find(Total) for at in others]
            await groups[eldest].send(b"once")
            await until(lambda: all(order._queue for order in orders))
            for other in others:
                world.set_link(Link(loss=1.0), eldest, other)
            await until(lambda: groups[eldest]._channel.inbox)
            world.partition([0], [1], [2])
            await asyncio.sleep(5)
            assert not any(groups[at]._channel.inbox for at in others), "only one has delivered it"
            world.crash(eldest)
            world.heal()
            for at in others:
                await groups[at].send(b"after")
            return [[(await groups[at].receive(timeout=10)).body for _ in range(3)] for at in others]

    return pluribus.sim.run(main())


async def until(condition: Callable[[], object]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.00005)
    raise AssertionError("it never happened")


def test_a_safe_message_that_one_delivered_is_in_the_next_primary():
    assert [bodies[0] for bodies in delivered_after_all_lost_all()] == [b"once", b"once"]


def test_without_the_limbo_it_would_be_missing():
    with released(limbo.Amnesiac), pytest.raises(TimeoutError):
        delivered_after_all_lost_all()


def test_who_goes_on_without_a_safe_message_that_another_delivered_is_found():
    def bus(at: float, member: int, number: int, epoch: int) -> list[Happening]:
        chain = (7, epoch) if epoch else (0, 0)
        view = Happening(at, member, "view", "red", (number, 1), members=(1, 2), promises="total safe")
        return [Happening(at, member, "bus", "", (number, 1), members=(1, 2), chain=chain), view]

    def delivery(at: float, member: int, *, late: bool = False) -> Happening:
        return Happening(at, member, "deliver", "red", (1, 0), late=late)

    def history(*what: Happening) -> History:
        found = History()
        found.happenings = [*bus(0, 1, 1, 1), *bus(0, 2, 1, 1), delivery(1, 1), *bus(2, 2, 2, 0), *what]
        found.happenings += bus(3, 2, 3, 2)
        return found

    with pytest.raises(Violation, match=r"which <member .*> had delivered"):
        survives(history())
    assert survives(history(delivery(3, 2, late=True))) == 1
