"""Where nobody keeps durable topics that is said at once, and how to start a keeper; who is told to wait waits."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import NoKeeper
from tests.runtime.styles.topics.test_durable import connect


@pytest.fixture
def store(tmp_path):
    return tmp_path / "kept.db"


def test_without_a_keeper_it_is_said_what_to_start():
    async def scenario():
        async with connect("nobody") as bus:
            loop = asyncio.get_running_loop()
            began = loop.time()
            calls = (
                lambda: bus.publish("t", 1, durable=True),
                lambda: bus.publish_many([("t", 1)], durable=True),
                lambda: bus.publish("t", 1, durable=True, timeout=0.1),
                lambda: bus.log("t").offsets(),
                lambda: bus.subscribe("t", durable="name").open(),
                lambda: bus.mailbox("ann").post("lunch?"),
            )
            for call in calls:
                with pytest.raises(NoKeeper, match="pluribus keep --store PATH"):
                    await call()
            assert loop.time() - began < 10, "and not fifteen seconds each"

    asyncio.run(scenario())


def test_a_client_is_told_too_that_there_is_no_keeper():
    async def scenario():
        async with connect("nobody-served", serve="127.0.0.1:0") as bus:
            url = f"client://127.0.0.1:{bus.doors[0].address[1]}/{bus.url.bus}"
            async with pluribus.connect(url) as client:
                for one in (lambda: client.publish("t", 1, durable=True), lambda: client.log("t").offsets()):
                    with pytest.raises(NoKeeper, match="pluribus keep --store PATH"):
                        async with asyncio.timeout(10):
                            await one()

    asyncio.run(scenario())


def test_who_is_told_to_wait_waits_for_a_keeper_to_come(store):
    async def scenario():
        async with connect("later") as bus:
            publishing = asyncio.create_task(bus.publish("t", 1, durable=True, timeout=30))
            with pytest.raises(NoKeeper):
                await bus.log("t").offsets()
            assert not publishing.done()
            async with connect("later", store=store):
                await publishing
                assert await bus.log("t").offsets() == (0, 1)

    asyncio.run(scenario())
