"""Buffers of datagrams come and go; their pages should stay. Counted in page faults, in a process of its own."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, resource, sys
from pluribus.core.url import parse_url
from pluribus.engines import engine_for

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def come_and_go():
    before = faults()
    for _ in range(50):
        held = [b"x" * 60_000 for _ in range(40)]
        del held
    return faults() - before

async def main():
    engine = engine_for(parse_url("udp://127.0.0.1:0/bus"))
    await engine.open(lambda datagrams: None, lambda: None)
    print(come_and_go())
    await engine.close()

if sys.argv[1] == "without":
    print(come_and_go())
else:
    asyncio.run(main())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="What is taught is taught to glibc.")
def test_the_pages_of_freed_buffers_are_kept():
    def faults(how: str) -> int:
        answer = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
        return int(answer.stdout)

    assert faults("with") * 5 < faults("without")
