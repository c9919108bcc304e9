"""Consumer groups with real processes that are killed: members, and keepers."""

import asyncio
import sys
from pathlib import Path

import pytest

import pluribus
from tests.real.cluster import eventually
from tests.real.processes import Processes, processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]
ROUND = 50
"""Events that a member settles together, at most."""


async def behind(url: str) -> int:
    async with pluribus.connect(url) as client:
        (group,) = await client.durable.groups()
        return group.behind


def handled(found: Processes) -> list[tuple[str, int, str, str]]:
    lines = [line.split(" ", 3) for line in found.lines("handled")]
    return [(what, int(offset), member, body) for what, offset, member, body in lines]


def test_members_of_a_group_and_keepers_are_killed(tmp_path: Path):
    with processes(tmp_path) as found:
        for name in "abc":
            found.keep(name)
        found.start("publish", "writer", "acknowledged")
        for name in ("one", "two", "three"):
            found.start("share", name, "handled")
        eventually(lambda: len({member for _, _, member, _ in handled(found)}) == 3, "all three have work")
        found.kill("one")
        found.more("handled")
        found.kill("a")
        found.more("handled")
        found.keep("a")
        found.kill("two", *"abc")
        found.keep(*"abc")
        found.start("share", "four", "handled")
        found.more("acknowledged")
        found.kill("writer")
        log = found.log()
        eventually(lambda: asyncio.run(behind(found.url)) == 0, "everything is settled")

        settled: set[int] = set()
        given: set[int] = set()
        for what, offset, member, body in handled(found):
            assert body == log[offset]
            assert offset not in settled, f"{offset} was settled, and {what} again, at {member}"
            (settled if what == "settled" else given).add(offset)
        assert given == set(range(len(log))), "every event was handled"
        assert set(found.lines("acknowledged")) <= set(log)
        unsaid = given - settled  # a member was killed when it had settled them, and had not said so yet
        assert len(unsaid) <= 2 * ROUND
