"""Where there was no C compiler, the same bus does the same in Python."""

import subprocess
import sys

PROGRAM = """
import sys

sys.modules["pluribus._speed._quick"] = None  # as if it had not been compiled

import asyncio
import pluribus
from pluribus._speed import quick

async def main():
    async with pluribus.connect("inproc://a") as a, pluribus.connect("inproc://a") as b:
        sending, reading = await a.group("g", own=False), await b.group("g")
        await sending.wait_for(2)
        sent = [await sending.send(b"%d" % number) for number in range(3_000)]
        sent += [await sending.send({"n": number}) for number in range(3_000)]
        read = []
        async for message in reading:
            read.append(message)
            if len(read) == len(sent):
                break
        assert [message.id for message in read] == sent
        assert [message.body for message in read[:3_000]] == [b"%d" % number for number in range(3_000)]
        async with b.subscribe("t/#") as events:
            await a.wait_for(2)
            await b.wait_for(2)
            ids = [await a.publish("t/x", b"%d" % number) for number in range(3_000)]
            got = []
            async for event in events:
                got.append(event.id)
                if len(got) == len(ids):
                    break
            assert got == ids
    print("compiled" if quick.COMPILED else "in Python")

asyncio.run(main())
"""


def test_messages_and_events_travel_without_what_was_compiled():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "in Python"
