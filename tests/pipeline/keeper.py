"""A keeper in a process of its own: ``python -m tests.pipeline.keeper BUS STORE NAME VOTERS``. Prints the address at
which it serves clients when so many voters are there; ends when its standard input does."""

import asyncio
import sys

import pluribus


async def main(bus_name: str, store: str, name: str, voters: str) -> None:
    url = f"multicast://{bus_name}"
    async with pluribus.connect(url, name=name, store=store, votes=True, serve="127.0.0.1:0") as bus:
        while len(bus.keeping.keeper.keeper.voters) < int(voters):  # noqa: ASYNC110 - between two looks
            await asyncio.sleep(0.02)
        host, port = bus.doors[0].address
        print(f"{host}:{port}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
