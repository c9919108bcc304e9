"""Four people's pages in one process, on a bus in memory whose air the test rules.

Each person has a page (``/ann``). The test asks under ``/air/`` for what the air should do: ``part`` it into halves,
let them ``meet``; and for people that go ``away`` and come ``back``.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAMES = ("ann", "bob", "cid", "dan")
URL = "inproc://hall"
ROOT = Path(__file__).resolve().parent.parent.parent


class Air:
    """Between members of the bus in memory."""

    def __init__(self):
        self.names = {}
        self.halves = []

    def install(self):
        from pluribus.engines.inproc import InprocEngine

        carry = InprocEngine._hand_over

        def hand_over(engine, datagrams, peer):
            ends = self.names.get(engine.address), self.names.get(peer.address if peer is not None else None)
            if any((ends[0] in half) != (ends[1] in half) for half in self.halves):
                return
            carry(engine, datagrams, peer)

        InprocEngine._hand_over = hand_over


class Hall:
    def __init__(self, folder):
        self.folder = folder
        self.air = Air()
        self.buses = {}
        self.people = {}

    async def back(self, name):
        from pluribus.console.chat.person import Person
        from pluribus.runtime.bus import connect

        bus = self.buses[name] = await connect(URL, name=name, stack="adhoc")
        self.air.names[bus._stack.ports.engine.address] = name
        person = Person(bus, await bus.conversations(store=Path(self.folder) / f"{name}.db"), bus._wall)
        await person.start()
        self.people[name] = person

    async def away(self, name):
        """Without a word, as if it crashed."""
        self.people.pop(name).close()
        bus = self.buses.pop(name)
        self.air.names = {place: who for place, who in self.air.names.items() if who != name}
        await bus.close(timeout=0)

    async def close(self):
        for name in list(self.buses):
            await self.away(name)

    async def ask(self, what, query):
        air = self.air
        match what:
            case "part":
                air.halves.append(set(query["half"].split(",")))
            case "meet":
                air.halves.clear()
            case "away":
                await self.away(query["name"])
            case "back":
                await self.back(query["name"])
            case "open":
                await self.people[query["name"]].open(query["room"], query.get("about", ""))
            case "fill":
                await self.fill(query["name"], query["room"], int(query["count"]))
            case "say":
                person = self.people[query["name"]]
                return await person.say(query["room"], query["text"], query.get("parent"))
            case "tree":
                room = self.people[query["name"]].rooms[query["room"]].room
                return [(depth, entry.by, entry.body) for depth, entry in room.tree().walk()]
            case "arrived":
                room = self.people[query["name"]].rooms[query["room"]].room
                return [entry.body for entry in room.history()]
            case _:
                raise ValueError(what)

    async def fill(self, name, room, count):
        """A long history, as if it had been there before."""
        from pluribus.conversations.words import Entry

        found = await self.people[name].open(room)
        for number in range(count):
            parent = None if number % 5 == 0 else (7, number - 1 - number % 3 % (number % 5))
            text = f"message {number} of a long history" + (" that goes on for a while" * (number % 4))
            found.room._history.add(Entry((7, number), parent, f"writer{number % 9}", 1e9 + number, text), 0.0)


def main(port, folder):
    from nicegui import app
    from starlette.requests import Request

    from pluribus.console.chat.server import mount, run

    hall = Hall(folder)
    hall.air.install()

    async def start():
        for name in NAMES:
            await hall.back(name)

    app.on_startup(start)
    app.on_shutdown(hall.close)
    for name in NAMES:
        mount(f"/{name}", lambda name=name: hall.people.get(name), None)

    @app.get("/air/{what}")
    async def air(what: str, request: Request):
        return {"found": await hall.ask(what, request.query_params)}

    run(port, show=False)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def hall(folder: Path) -> Iterator[str]:
    """The address of the four pages, as long as the context lasts."""
    port = free_port()
    environment = {**os.environ}
    environment.pop("PYTEST_CURRENT_TEST", None)  # NiceGUI would believe that it is tested by its own means
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "tests.console.hall", str(port), str(folder)]
    with (
        open(folder / "hall.log", "w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as served,
    ):
        try:
            wait_for(f"http://127.0.0.1:{port}/air/meet", served)
            yield f"http://127.0.0.1:{port}"
        finally:
            served.kill()
            served.wait()


def wait_for(address: str, served: subprocess.Popen) -> None:
    """Until something is served there."""
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(address, timeout=20).close()
        except OSError:
            assert served.poll() is None and time.monotonic() < until, "it does not serve its page"
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
