"""Members that do not hear themselves: a sample of the campaign, and the mutants that it must find."""

import pytest

import pluribus
from pluribus.runtime.bus import VIEWS
from tests.mutants import deaf
from tests.mutants.hunt import assert_found, sample


def test_a_sample_of_seeds_breaks_no_promise():
    found = sample("deaf", deaf.FOUND, 6_000, 6_001)
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", deaf.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = deaf.FOUND[mutant]
    assert_found(mutant, seed, sentence, "deaf")


@pytest.mark.parametrize(("order", "comes_back"), [("fifo", 0), ("causal", 0), ("semantic", 1), ("total", 1)])
def test_own_messages_come_back_only_where_an_order_needs_them(order: str, comes_back: int):
    async def main() -> tuple[int, list[bytes]]:
        async with pluribus.sim.world(members=2, seed=1, stack=VIEWS) as world:
            one, other = [await bus.group("red", order=order, own=False) for bus in world.buses]
            await one.wait_for(2)
            await other.wait_for(2)
            seen = []
            world.buses[0]._dispatch.observe = lambda what: seen.append(getattr(what, "sender", None))
            await one.send(b"question")
            assert (await other.receive(5)).body == b"question"
            await other.send(b"answer")
            return seen.count(int(world.buses[0].me)), [(await one.receive(5)).body]

    assert pluribus.sim.run(main()) == (comes_back, [b"answer"])
