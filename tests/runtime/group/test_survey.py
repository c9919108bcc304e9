"""Looking at a bus from outside, on real sockets: everybody answers, and nothing changes by it."""

import asyncio
import time

import pytest

import pluribus
from pluribus.bench.ports import free_port
from pluribus.core.errors import BadUrl
from pluribus.runtime.group.survey import GAUGES, QUIET_S, SurveyAnswer, survey
from tests.harness import on_a_loop

SECRET = "sixteen characters and more"


def urls() -> list[tuple[str, str, str | None]]:
    return [
        ("multicast://survey-{port}", "views", None),
        ("udp://127.0.0.1:{port}/survey", "views", None),
        ("tcp://127.0.0.1:{port}/survey", "best-effort", None),
        ("multicast://survey-{port}", "views", SECRET),
    ]


@pytest.mark.parametrize(("url", "stack", "secret"), urls())
def test_every_member_answers_and_no_view_changes(url: str, stack: str, secret: str | None):
    @on_a_loop
    async def look() -> None:
        place = url.format(port=free_port())
        async with (
            pluribus.connect(place, name="ann", stack=stack, secret=secret) as ann,
            pluribus.connect(place, name="bob", stack=stack, secret=secret) as bob,
        ):
            group = await ann.group("g")
            await bob.group("g")
            await group.wait_for(2)
            views = ann.stats().get("membership", {}).get("views")
            async with survey(place, secret=secret) as asked:
                first = await asked.take()
                for _ in range(50):
                    await group.send(b"x")
                second = await asked.take()
            assert [answer.name for answer in first] == [answer.name for answer in second] == ["ann", "bob"]
            assert [answer.member for answer in second] == [ann.me, bob.me]
            window = "reliable" if stack == "views" else "window"
            before, after = first[0].layers[window], second[0].layers[window]
            assert after["messages_out"] - before["messages_out"] == 50
            assert second[0].rates(first[0])[window]["messages_out"] > 0
            assert len(ann.members) == 2
            assert ann.stats().get("membership", {}).get("views") == views

    look()


@on_a_loop
async def test_a_loop_that_was_held_still_hears_everybody():
    url = f"udp://127.0.0.1:{free_port()}/held"
    async with (
        pluribus.connect(url, name="ann", stack="views") as ann,
        pluribus.connect(url, name="bob", stack="views"),
    ):
        await (await ann.group("g")).wait_for(1)
        async with survey(url) as asked:
            hear = asked._inquirer.on_answer

            def hear_and_hold(member: int, encoded: bytes) -> None:
                hear(member, encoded)
                time.sleep(2 * QUIET_S)

            asked._inquirer.on_answer = hear_and_hold
            assert [answer.name for answer in await asked.take()] == ["ann", "bob"]


@on_a_loop
async def test_nobody_is_an_empty_answer():
    async with survey(f"multicast://nobody-{free_port()}") as asked:
        assert await asked.take(wait_s=0.05) == []


@on_a_loop
async def test_another_secret_gets_no_answer():
    url = f"multicast://sealed-{free_port()}"
    async with pluribus.connect(url, name="ann", stack="views", secret=SECRET):
        async with survey(url, secret="another secret, long enough") as asked:
            assert await asked.take(wait_s=0.3) == []
        async with survey(url) as asked:
            assert await asked.take(wait_s=0.3) == []


@on_a_loop
async def test_a_url_that_is_none_is_refused():
    with pytest.raises(BadUrl):
        async with survey("nonsense"):
            pass


def test_rates_are_of_what_grows():
    early = SurveyAnswer(pluribus.MemberId(1), "ann", 10.0, {"transport": {"bytes_in": 100}, "detector": {"peers": 3}})
    late = SurveyAnswer(
        pluribus.MemberId(1),
        "ann",
        12.0,
        {"transport": {"bytes_in": 300, "errors": 2}, "detector": {"peers": 5}, "new": {"a": 1}},
    )
    assert late.rates(early) == {"transport": {"bytes_in": 100.0, "errors": 1.0}, "detector": {}}


@on_a_loop
async def test_every_statistic_that_is_no_gauge_only_grows():
    url = f"multicast://grows-{free_port()}"
    async with (
        pluribus.connect(url, name="ann", stack="views") as ann,
        pluribus.connect(url, name="bob", stack="views") as bob,
    ):
        groups = [await ann.group("g", order="total"), await bob.group("g", order="total")]
        await groups[0].wait_for(2)
        before = ann.stats()
        await asyncio.gather(*(group.send(b"x") for group in groups))
        for group in groups:
            await group.receive_many(2, timeout=5)
        async with pluribus.connect(url, name="carl", stack="views") as carl:
            await carl.group("g", order="total")
            await groups[0].wait_for(3)
        after = ann.stats()
    for layer, counts in before.items():
        for name, value in counts.items():
            assert name in GAUGES or after[layer][name] >= value, (layer, name)
