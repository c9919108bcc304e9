"""Row patterns on a subscription of a real bus."""

import msgspec
import pytest

import pluribus
import pluribus.sync
from pluribus.core.errors import BadPattern
from pluribus.pubsub.event import Event
from pluribus.runtime.styles.topics.patterns import _value
from tests.harness import new_bus, on_a_loop, two


class Level(msgspec.Struct, frozen=True):
    place: str
    level: float
    at: float


pluribus.register(Level, "tests.patterns.Level")

RISE = """
    PARTITION BY topic ORDER BY at MEASURES FIRST(level) AS low, LAST(level) AS high
    PATTERN (A UP{2}) DEFINE UP AS level >= 1.1 * PREV(level)
"""


def members():
    return two(stack="views")


async def together(*buses):
    for group in [(await bus.pubsub.base()).group for bus in buses]:
        await group.wait_for(len(buses))


@on_a_loop
async def test_matches_of_a_subscription_come_as_they_are_decided():
    async with members() as (station, watcher), watcher.matches("river/#", RISE) as found:
        await together(station, watcher)
        for number, level in enumerate([1.0, 1.2, 1.4, 1.4, 2.0]):
            await station.publish("river/eden", Level("Appleby", level, number))
            await station.publish("river/esk", {"level": 5.0, "at": number})
        match = await found.receive(10)
        assert match.partition == {"topic": "river/eden"}
        assert match.measures == {"low": 1.0, "high": 1.4}
        assert not found.problems


@on_a_loop
async def test_what_cannot_be_placed_is_told_and_the_rest_goes_on():
    told = []
    async with members() as (station, watcher), watcher.matches("r", RISE, on_problem=told.append) as found:
        await together(station, watcher)
        for body in [{"level": 1.0, "at": 1}, "a text", {"level": 9.0, "at": 0}, {"level": 2.0, "at": 2}]:
            await station.publish("r", body)
        await station.publish("r", {"level": 3.0, "at": 3})
        assert (await found.receive(10))["high"] == 3.0
        assert [(problem.kind, problem.event.body) for problem in told] == [
            ("misfit", "a text"),
            ("late", {"level": 9.0, "at": 0}),
        ]


@on_a_loop
async def test_where_no_event_comes_the_clock_decides():
    text = """
        PARTITION BY sender ORDER BY time MEASURES COUNT(*) AS n
        PATTERN (A B*) WITHIN INTERVAL '0.2' SECOND DEFINE A AS x = 1, B AS x = 2
    """
    async with members() as (station, watcher), watcher.matches("r", text, tick_s=0.05) as found:
        await together(station, watcher)
        await station.publish_many([("r", {"x": 1}), ("r", {"x": 2}), ("r", {"x": 2})])
        match = await found.receive(10)
        assert match["n"] == 3 and match["sender"] == station.me


@on_a_loop
async def test_all_rows_are_the_events_themselves():
    text = "ORDER BY at ALL ROWS PER MATCH PATTERN (A B) DEFINE A AS x = 1, B AS x = 2"
    async with members() as (station, watcher), watcher.matches("r", text) as found:
        await together(station, watcher)
        sent = [await station.publish("r", {"at": number, "x": number}) for number in (1, 2)]
        rows = [await found.receive(10) for _ in range(2)]
        assert [(row.variable, row.event.id) for row in rows] == [("A", sent[0]), ("B", sent[1])]


@on_a_loop
async def test_a_wrong_pattern_is_refused_before_anything_begins():
    async with members() as (_, watcher):
        with pytest.raises(BadPattern, match="goes on without bound"):
            watcher.matches("r", "ORDER BY t PATTERN (A+)")


@on_a_loop
async def test_closing_it_ends_the_iteration():
    async with members() as (_, watcher):
        found = await watcher.matches("r", RISE).open()
        await found.close()
        assert [match async for match in found] == []


def test_without_a_loop_it_is_the_same():
    with pluribus.sync.connect(new_bus(), stack="views") as bus, bus.matches("r", RISE) as found:
        for number, level in enumerate([1.0, 1.2, 1.4]):
            bus.publish("r", Level("Appleby", level, number))
        assert found.receive(10)["high"] == 1.4
        for number, level in enumerate([1.0, 1.2, 1.4], start=9):
            bus.publish("r", Level("Appleby", level, number))
        assert next(iter(found))["high"] == 1.4


@pytest.mark.parametrize("body", [{"time": None, "price": 1}, {"time": None}])
def test_a_field_of_the_body_that_is_null_is_the_bodys(body):
    event = Event(body, 1, (1, 1), "a", 5.0)
    assert _value(event, ("time",)) is None and _value(event, ("topic",)) == "a"
    assert _value(Event({}, 1, (1, 1), "a", 5.0), ("time",)) == 5.0
