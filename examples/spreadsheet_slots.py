"""The spreadsheet of the report: a sheet, a required database, and a stress analysis that a message starts.

The database starts late, on another host; what the sheet asked meanwhile waits, and is answered. The stress analysis
is a program that runs only while it has something to compute.

    python examples/spreadsheet_slots.py

The hosts are network namespaces, which needs root and ``ip``; without them both processes are on this host.
"""

import asyncio
import os
import subprocess
import sys

import pluribus
from pluribus.bench.namespaces import pair
from pluribus.slots.check import plan_of

STRESS = "import json, sys; load, area = json.load(sys.stdin); print(json.dumps(load / area))"
PLAN = f"""
bus sheet
slot sheet 0..many {{
    asks query  : text -> data
    asks stress : data -> data
}}
slot database required {{ answers query : text -> data }}
slot stress invoked {{
    program "{sys.executable} -c '{STRESS}'"
    answers load : data -> data
}}
sheet.query  -> database.query ttl 10 min
sheet.stress -> stress.load
"""
AREAS = {"beam": 4.0, "strut": 2.5}


async def sheet() -> None:
    """On one host: the bus, and the questions."""
    async with pluribus.connect(name="sheet") as bus:
        host = await bus.slots(plan_of(PLAN))
        slot = await bus.enroll("sheet")
        asking = asyncio.gather(*(slot.ask("query", part, timeout=60) for part in AREAS))
        while slot.queued < len(AREAS):  # noqa: ASYNC110 - both questions wait here
            await asyncio.sleep(0.01)
        print(f"the bus is {host.state}: {', '.join(host.map.waiting())} is not there", flush=True)
        await host.running(timeout=60)
        stresses = [await slot.ask("stress", [1_000.0, area], timeout=30) for area in await asking]
        print(dict(zip(AREAS, stresses, strict=True)), flush=True)


async def database() -> None:
    """On another host, later."""
    async with pluribus.connect(name="database") as bus:
        slot = await bus.enroll("database", on="sheet", timeout=30)
        await slot.port("query").handle(lambda message: AREAS[message.body])


def start(part: str, host: tuple[str, str], bus: str) -> subprocess.Popen[str]:
    name, address = host
    entered = ["ip", "netns", "exec", name] if name else []
    command = [*entered, sys.executable, __file__, part]
    environment = {**os.environ, "PLURIBUS_URL": f"multicast://{bus}?interface={address}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def both(hosts: list[tuple[str, str]]) -> None:
    bus = f"spreadsheet-{os.getpid()}"
    running = [start("sheet", hosts[0], bus)]
    try:
        print(running[0].stdout.readline(), end="", flush=True)
        running.append(start("database", hosts[1], bus))
        print(running[0].communicate(timeout=90)[0], end="")
    finally:
        for process in running:
            process.kill()
            process.wait()


def main() -> None:
    try:
        with pair() as hosts:
            both(hosts)
    except pluribus.errors.Unavailable as error:
        print(f"on one host: {error}", file=sys.stderr)
        both([("", "127.0.0.1"), ("", "127.0.0.1")])


if __name__ == "__main__":
    parts = {"sheet": sheet, "database": database}
    if len(sys.argv) > 1:
        asyncio.run(parts[sys.argv[1]]())
    else:
        main()
