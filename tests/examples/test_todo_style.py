"""A style of one's own (docs/design/styles.md): from a member, a client, without await, the command line, a world."""

import asyncio
import importlib.util
import os
import subprocess
import sys
import uuid

import pytest

import pluribus
import pluribus.sim
import pluribus.sync
from pluribus.runtime.bus import VIEWS
from tests.features import ROOT
from tests.runtime.clients.test_client import url_of

EXAMPLE = ROOT / "examples" / "todo_style.py"


@pytest.fixture(scope="module")
def todo():
    spec = importlib.util.spec_from_file_location("todo_style", EXAMPLE)
    module = sys.modules["todo_style"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["todo_style"]


@pytest.mark.parametrize("durable", [False, True])
def test_members_and_clients(todo, durable, tmp_path):
    async def main():
        url = f"inproc://todo-{durable}"
        store = tmp_path / "a.db" if durable else None
        async with (
            pluribus.connect(url, serve="127.0.0.1:0", store=store) as member,
            pluribus.connect(url) as other,
            pluribus.connect(url_of(member)) as client,
        ):
            lists = [await bus.style(todo.Todo).open(durable) for bus in (member, other, client)]
            for number, one in enumerate(lists):
                assert await one.add(number, f"thing {number}") and await one.add(number, "again changes nothing")
            assert await lists[2].done(0) and not await lists[0].done(0)
            for one in lists:
                assert await one.items() == {1: "thing 1", 2: "thing 2"}
            assert await lists[2]._line.call(b"nonsense") is False

    asyncio.run(main())


def test_without_await(todo):
    with pluribus.sync.connect("inproc://todo-sync") as bus:
        opened = bus.style(todo.Todo)
        opened.open()
        assert opened.add(7, "write") and opened.items() == {7: "write"}


def test_in_a_world_in_which_members_die(todo):
    async def main():
        async with pluribus.sim.world(members=3, seed=11, stack=VIEWS) as world:
            lists = [await bus.style(todo.Todo).open() for bus in world.buses]
            assert await lists[0].add(1, "before")
            world.crash(0)
            assert await asyncio.wait_for(lists[1].add(2, "after"), 60)
            assert await lists[2].items() == {1: "before", 2: "after"}

    pluribus.sim.run(main())


def test_on_the_command_line(tmp_path):
    surroundings = {
        **os.environ,
        "PLURIBUS_URL": f"inproc://todo-{uuid.uuid4().hex[:8]}",
        "TODO_STORE": str(tmp_path / "todo.sqlite3"),
    }

    def run(*words):
        command = [sys.executable, str(EXAMPLE), *words]
        return subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=100, check=True).stdout

    assert run("add", "buy", "milk") == "1 buy milk\n"
    assert run("add", "drink", "it") == "1 buy milk\n2 drink it\n"
    assert run("done", "1") == "2 drink it\n"
