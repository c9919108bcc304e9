"""Programs on ``pluribus.run``: an interrupt ends them without a story."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
import pluribus

async def main():
    async with pluribus.connect("inproc://interrupted") as bus, bus.subscribe("#") as events:
        print("ready", flush=True)
        async for event in events:
            pass

pluribus.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="An interrupt is sent as a signal, on Unix alone.")
def test_an_interrupt_prints_no_chain_of_tracebacks():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    lines = err.splitlines()
    assert lines[-1] == "KeyboardInterrupt" and err.count("Traceback") == 1 and len(lines) <= 8, err
