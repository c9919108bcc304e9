"""``wait_for_subscribers``: subscriptions are counted on all members and clients, and changes are told."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import BadInput, BadTopic
from tests.harness import eventually, new_bus, on_a_loop
from tests.runtime.styles.topics.test_topic_orders import members


@on_a_loop
async def test_subscriptions_of_all_members_count_and_those_that_come_later_are_waited_for():
    async with members(3) as (a, b, c), a.subscribe("jobs/+") as own, b.subscribe("jobs/new") as other:
        assert await a.wait_for_subscribers("jobs/new", 2) == 2
        assert await c.wait_for_subscribers("jobs/new", 0) == 2
        waiting = asyncio.ensure_future(a.wait_for_subscribers("jobs/new", 4, timeout=60))
        await eventually(lambda: b.pubsub.audience._watched and c.pubsub.audience._watched)
        async with c.subscribe("#") as third, c.subscribe("elsewhere"):
            await asyncio.sleep(0)
            assert not waiting.done()
            async with b.subscribe("jobs/#", guarantee="total") as fourth:
                assert await waiting == 4
                await a.publish("jobs/new", "here")
                for one in (own, other, third, fourth):
                    assert (await one.receive(30)).body == "here"
        await eventually(lambda: len(c.pubsub.subscriptions) == 0)
        assert await a.wait_for_subscribers("jobs/new", 1) == 2


@on_a_loop
async def test_a_member_that_comes_later_is_asked_too_and_one_that_goes_does_not_count():
    url = new_bus()
    async with pluribus.connect(url, name="a") as a:
        waiting = asyncio.ensure_future(a.wait_for_subscribers("t", 1, timeout=60))
        await eventually(lambda: a.pubsub.audience._counts)
        async with pluribus.connect(url, name="b") as b, b.subscribe("t"):
            assert await waiting == 1
        with pytest.raises(TimeoutError, match="0 of 1 subscribers to 't'"):
            await a.wait_for_subscribers("t", 1, timeout=0.2)
        assert not a.pubsub.audience._counts


@on_a_loop
async def test_clients_wait_and_their_subscriptions_count():
    async with members(2) as (a, b):
        door = await b.serve("127.0.0.1:0")
        url = f"client://127.0.0.1:{door.address[1]}/{b.url.bus}"
        async with pluribus.connect(url) as client, a.subscribe("t"):
            waiting = asyncio.ensure_future(client.wait_for_subscribers("t", 2, timeout=60))
            async with client.subscribe("t"):
                assert await waiting == 2
                assert await a.wait_for_subscribers("t", 2) == 2
            with pytest.raises(TimeoutError, match="1 of 2"):
                await client.wait_for_subscribers("t", 2, timeout=0.2)
            with pytest.raises(BadInput):
                await client.wait_for_subscribers("t", -1)


def test_without_a_loop_and_with_bad_input():
    url = new_bus()
    with pluribus.sync.connect(url, name="a") as a, a.subscribe("t"):
        assert a.wait_for_subscribers("t", 1) == 1
        with pytest.raises(BadTopic):
            a.wait_for_subscribers("t/+", 1)
        with pytest.raises(BadInput, match="-1 subscribers"):
            a.wait_for_subscribers("t", -1)
