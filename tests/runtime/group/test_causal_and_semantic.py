"""Causal and semantic groups as an application sees them."""

import asyncio

import pytest

from pluribus import connect
from pluribus.core.errors import BadInput
from pluribus.runtime.bus import VIEWS
from pluribus.runtime.loop.tracing import replay
from pluribus.sim import world
from pluribus.sim.machinery.network import Link
from pluribus.sim.machinery.world import run
from tests.harness import new_bus, on_a_loop, two


@on_a_loop
async def test_a_stack_with_views_offers_every_order():
    async with two(new_bus(), stack=VIEWS) as (a, b):
        assert {"fifo", "causal", "semantic"} <= set(a.orders)
        for order in ("causal", "semantic"):
            one, other = await a.group(order, order=order), await b.group(order, order=order)
            await one.wait_for(2)
            question = await one.send("why?")
            heard = await other.receive()
            assert (heard.body, heard.id, heard.parent) == ("why?", question, None)
            answer = await other.send("because", parent=heard.id)
            assert (await one.receive()).id == question
            got = await one.receive()
            assert (got.body, got.id, got.parent, got.orphan) == ("because", answer, question, False)


@pytest.mark.parametrize("own", [True, False])
@on_a_loop
async def test_semantic_order_needs_no_agreed_views(own):
    async with two(new_bus(), stack="transport | presence | window | semantic | groups") as (a, b):
        one, other = await a.group("x", order="semantic", own=own), await b.group("x", order="semantic", own=own)
        await one.wait_for(2)
        await other.wait_for(2)
        question = await one.send("why?")
        assert (await other.receive()).id == question
        await other.send("because", parent=question)
        got = [await one.receive(timeout=5) for _ in range(1 + own)]
        assert got[-1].parent == question and not got[-1].orphan


@on_a_loop
async def test_a_best_effort_stack_offers_neither():
    async with two(new_bus()) as (a, _):
        with pytest.raises(BadInput, match="is not offered by the stack"):
            await a.group("x", order="causal")


def test_a_cause_overtaken_by_its_effect_comes_first():
    async def main() -> list[object]:
        async with world(members=3, seed=1, stack=VIEWS) as cluster:
            groups = [await bus.group("x", order="causal") for bus in cluster.buses]
            await asyncio.gather(*(group.wait_for(3) for group in groups))
            cluster.set_link(Link(latency_s=0.5), source=0, target=2)
            await groups[0].send("question")
            assert (await groups[1].receive()).body == "question"
            await groups[1].send("answer")
            return [(await groups[2].receive()).body for _ in range(2)]

    assert run(main()) == ["question", "answer"]


def test_an_answer_waits_for_its_question_and_other_messages_do_not():
    async def main() -> list[object]:
        async with world(members=3, seed=1, stack=VIEWS) as cluster:
            groups = [await bus.group("x", order="semantic") for bus in cluster.buses]
            await asyncio.gather(*(group.wait_for(3) for group in groups))
            cluster.set_link(Link(latency_s=0.5), source=0, target=2)
            await groups[0].send("question")
            question = await groups[1].receive()
            await groups[1].send("answer", parent=question.id)
            await groups[1].send("something else")
            return [(await groups[2].receive()).body for _ in range(3)]

    assert run(main()) == ["something else", "question", "answer"]


def test_an_answer_to_a_lost_question_is_marked():
    async def main() -> list[object]:
        async with world(members=3, seed=1, stack=VIEWS) as cluster:
            groups = [await bus.group("x", order="semantic") for bus in cluster.buses]
            await asyncio.gather(*(group.wait_for(3) for group in groups))
            cluster.set_link(Link(loss=1.0), source=0, target=2)
            await groups[0].send("question")
            question = await groups[1].receive()
            await groups[1].send("answer", parent=question.id)
            await asyncio.sleep(0.002)
            cluster.crash(0)
            cluster.crash(1)
            answer = await groups[2].receive()
            assert answer.parent == question.id
            return [answer.body, answer.orphan]

    assert run(main()) == ["answer", True]


def test_a_joiner_does_not_wait_for_what_was_asked_before_it_came():
    async def main() -> object:
        async with world(members=2, seed=1, stack=VIEWS) as cluster:
            groups = [await bus.group("x", order="semantic") for bus in cluster.buses]
            await asyncio.gather(*(group.wait_for(2) for group in groups))
            question = await groups[0].send("question")
            assert (await groups[1].receive()).id == question
            newcomer = await cluster.add()
            assert newcomer.bus is not None
            group = await newcomer.bus.group("x", order="semantic")
            await groups[1].wait_for(3)
            await groups[1].send("answer", parent=question)
            answer = await group.receive(timeout=1)
            return (answer.body, answer.parent == question, answer.orphan)

    assert run(main()) == ("answer", True, False)


def test_a_traced_run_with_parents_and_vectors_is_had_again(tmp_path):
    """Layers that look at what others put on a frame find it in the replay too."""
    url, path = new_bus(), tmp_path / "run.trace"

    async def main() -> None:
        async with connect(url, stack=VIEWS, trace=path) as a, connect(url, stack=VIEWS) as b:
            asked, answered = await a.group("x", order="semantic"), await b.group("x", order="semantic")
            one, other = await a.group("y", order="causal"), await b.group("y", order="causal")
            await asked.wait_for(2)
            await one.wait_for(2)
            question = await asked.send("question")
            assert (await answered.receive(timeout=5)).id == question
            await other.send("cause")
            assert (await one.receive(timeout=5)).body == "cause"
            await one.send("effect")
            async with connect(url, stack=VIEWS) as c:
                late = await c.group("x", order="semantic")
                await asked.wait_for(3)
                await asked.send("answer", parent=question)
                assert (await late.receive(timeout=5)).parent == question

    asyncio.run(main())
    assert replay(path)["same"] is True
