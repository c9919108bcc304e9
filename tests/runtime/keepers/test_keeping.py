"""A member with a store comes, while others do, and comes to its end: whatever it was at, the store is free for the
next."""

import asyncio
import subprocess
import sys
from contextlib import closing

import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.core.ports import Put
from pluribus.store.sqlite import SqliteBackend
from tests.harness import new_bus, on_a_loop

TOGETHER = """
import asyncio, sys, threading
import pluribus
from pluribus.runtime.keepers import face

async def main():
    async with pluribus.connect("inproc://together") as bus:
        loading = threading.Thread(target=face.import_module, args=(face._KEEPING,))
        loading.start()
        while face._KEEPING not in sys.modules:
            pass
        assert bus.kept is None  # asked while it is loaded
        assert type(bus.keeping).__name__ == "Keeping"
        loading.join()

async def three():
    buses = [pluribus.connect("inproc://three", store=":memory:") for _ in range(3)]
    for bus in await asyncio.gather(*buses):
        await bus.close(timeout=0)

asyncio.run({run}())
"""


@pytest.mark.parametrize("run", ["main", "three"])
def test_the_first_keepers_of_a_process_may_come_together(run):
    done = subprocess.run([sys.executable, "-c", TOGETHER.format(run=run)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@on_a_loop
async def test_a_bus_whose_closing_is_cancelled_gives_its_store_back(tmp_path):
    path = tmp_path / "kept.db"
    bus = await pluribus.connect(new_bus(), store=path)
    await bus.durable.publish("a", 1)
    replay = bus.durable.subscribe("a", name="reader", start="earliest")
    await replay.receive(5)
    bus.keeping._store.write = lambda changes, done: None  # a disk that does not answer: nothing is committed any more
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bus.close(timeout=0), 0.3)
    async with pluribus.connect(new_bus(), store=path) as again:
        assert await again.log("a").offsets() == (0, 1)


@on_a_loop
async def test_a_store_of_an_older_format_is_refused_left_as_it_is_and_given_back(tmp_path):
    path = tmp_path / "old.db"
    for _ in range(2):
        with closing(SqliteBackend(path)) as store:
            if store.get("topics/meta/a") is None:
                store.write([Put("topics/meta/a", b"of a keeper of before")])
                store.commit()
        with pytest.raises(BadInput, match="written by an older, unreleased version of Pluribus"):
            await pluribus.connect(new_bus(), store=path)
    with closing(SqliteBackend(path)) as store:
        assert store.get("topics/meta/a") == b"of a keeper of before"
