"""Who begins the keepers' log, and with whom."""

import pytest

import pluribus
from pluribus.core.errors import BadInput, NoMembers
from pluribus.pubsub.durable.requests import Find
from pluribus.runtime.keepers.keeper import NOTHING, Here, founders_of
from tests.harness import eventually, new_bus, on_a_loop


def fresh(keeper: int, votes: bool = True, voters: int = 1) -> Here:
    return Here(keeper, False, votes, voters)


@pytest.mark.parametrize(
    ("heard", "found"),
    [
        ({1: fresh(11), 2: fresh(12)}, [11]),
        ({1: NOTHING, 2: fresh(12)}, [12]),  # who keeps nothing begins nothing
        ({2: fresh(12)}, []),  # 1 has not said yet what it keeps
        ({1: fresh(11), 2: Here(12, True)}, []),  # there is a log
        ({1: fresh(11), 2: fresh(12, voters=2)}, [11, 12]),
        ({1: fresh(11, voters=3), 2: fresh(12, voters=3)}, []),  # one is missing
        ({1: fresh(11, votes=False), 2: fresh(12, voters=2)}, []),  # a learner is no founder of several
        ({1: fresh(11, votes=False), 2: NOTHING}, [11]),
        ({1: NOTHING, 2: NOTHING}, []),
    ],
)
def test_founders(heard, found):
    assert founders_of([1, 2], heard) == found


@on_a_loop
async def test_a_keeper_begins_though_somebody_came_before_who_keeps_nothing():
    url = new_bus()
    async with pluribus.connect(url, name="early") as early:
        with pytest.raises(NoMembers):
            await early.keeping.ask(Find("#"))
        async with pluribus.connect(url, name="keeper", store=":memory:") as keeper:
            await keeper.publish("t", 1, durable=True)
            assert await early.log("t").offsets() == (0, 1)


@on_a_loop
async def test_three_found_a_log_together_and_any_two_go_on():
    url = new_bus()
    options = {"store": ":memory:", "votes": True, "voters": 3}
    a = await pluribus.connect(url, name="a", **options)
    b = await pluribus.connect(url, name="b", **options)
    try:
        assert not a.keeping.keeper.ready and not b.keeping.keeper.ready
        async with pluribus.connect(url, name="c", **options) as c:
            await c.publish("t", 1, durable=True)
            for bus in (a, b, c):
                await eventually(lambda bus=bus: bus.keeping.keeper.counted)
                assert len(bus.keeping.keeper.keeper.voters) == 3
            await a.close(timeout=0)
            await b.publish("t", 2, durable=True)
            assert await c.log("t").offsets() == (0, 2)
            assert [event.body for event in (await c.log("t").read()).events()] == [1, 2]
    finally:
        for bus in (a, b):
            await bus.close(timeout=0)


@on_a_loop
async def test_a_number_of_voters_that_cannot_be():
    with pytest.raises(BadInput, match="voters=0 are none"):
        await pluribus.connect(new_bus(), name="a", store=":memory:", voters=0)
