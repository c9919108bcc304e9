"""One member in common is enough: newcomers of a medium that does not broadcast are told of the others."""

import asyncio

import pytest

import pluribus
from pluribus.bench.ports import free_port
from pluribus.runtime.bus import BEST_EFFORT, VIEWS


@pytest.mark.parametrize("stack", [BEST_EFFORT, VIEWS], ids=["best effort", "views"])
@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_four_members_that_know_one_address_find_each_other(scheme: str, stack: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}/meeting"

    async def main() -> None:
        buses = [await pluribus.connect(url, name=f"m{number}", stack=stack) for number in range(4)]
        groups = await asyncio.gather(*[bus.group("all") for bus in buses])
        for group in groups:
            assert len(await group.wait_for(4, timeout=10)) == 4
        await groups[3].send(b"to everybody")
        for group in groups:
            message = await group.receive(timeout=5)
            assert (message.body, message.sender) == (b"to everybody", groups[3].me)
        for bus in buses:
            bus.validate()
            await bus.close()

    pluribus.run(main())
