"""Three keepers as processes with the code of a user's machine, killed one after another."""

import asyncio
import sys
from pathlib import Path

import pytest

import pluribus
from tests.real.processes import processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]

MACHINE = ("--machine", "counter=tests.real.counted:Counter")
CALLS = 5


async def counted(url: str) -> int:
    """After some more calls, which a client makes."""
    async with pluribus.connect(url) as client:
        visits = await client.replica("visits", "counter", durable=True)
        for _ in range(CALLS):
            await visits.call(b"1")
        return int(await visits.query(b""))


def test_a_users_machine_outlives_each_of_its_keepers(tmp_path: Path):
    with processes(tmp_path) as found:
        for name in "abc":
            found.begin(name, "--voters", "3", *MACHINE)
        found.wait(*"abc")
        assert asyncio.run(counted(found.url)) == CALLS
        for killed, name in enumerate("abc", 1):
            found.kill(name)
            assert asyncio.run(counted(found.url)) == (killed + 1) * CALLS
            found.begin(name, *MACHINE)
            found.wait(name)
