"""The spreadsheet of the report: a sheet, a required database, and a stress analysis that a message starts.

The database starts late, in another process; what the sheet asked meanwhile waits, and is answered. The stress analysis
is a program that runs only while it has something to compute.

    python examples/spreadsheet_slots.py
"""

import asyncio
import os
import sys
import textwrap

import pluribus
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

DATABASE = """
    import asyncio, pluribus

    AREAS = {"beam": 4.0, "strut": 2.5}

    async def main():
        async with pluribus.connect(name="database") as bus:
            slot = await bus.enroll("database", on="sheet", timeout=30)
            await slot.port("query").handle(lambda message: AREAS[message.body])

    asyncio.run(main())
"""


async def main(url: str) -> dict[str, float]:
    async with pluribus.connect(url, name="sheet") as bus:
        host = await bus.slots(plan_of(PLAN))
        sheet = await bus.enroll("sheet")
        print(f"the bus is {host.state}: {', '.join(host.map.waiting())} is not there")
        areas = asyncio.gather(*(sheet.ask("query", part, timeout=60) for part in ("beam", "strut")))
        await asyncio.sleep(0.5)
        database = await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(DATABASE), env={**os.environ, "PLURIBUS_URL": url}
        )
        try:
            await host.running(timeout=30)
            beam, strut = await areas
            stresses = [await sheet.ask("stress", [1_000.0, area], timeout=30) for area in (beam, strut)]
        finally:
            database.kill()
            await database.wait()
        return dict(zip(("beam", "strut"), stresses, strict=True))


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "multicast://spreadsheet")))
