"""A town with a software bus and its console, each a process; for the tests and the screenshots."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLAN = """bus town
slot bell required 1..2 {{ program "{bell}" about "rings at noon" out rings : text }}
slot ears 0..many {{ in in : text }}
slot radio {{ in in : text }}
slot eye shadow 0..8
bell.rings -> ears.in ttl 20 s
"""
BELL = """
import asyncio, os, pluribus
async def main():
    async with pluribus.connect(name="bell", stack="best-effort") as bus:
        slot = await bus.enroll(os.environ["PLURIBUS_SLOT"], on=os.environ["PLURIBUS_SLOTS"])
        await asyncio.sleep(60)
asyncio.run(main())
"""


def browser() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def town(folder: Path) -> Iterator[str]:
    """The console's address, as long as the context lasts."""
    script, file = folder / "bell.py", folder / "town.bus"
    script.write_text(BELL)
    file.write_text(PLAN.format(bell=f"python {script.name}"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PLURIBUS_URL": f"multicast://console-{os.getpid()}"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment.pop("PYTEST_CURRENT_TEST", None)  # NiceGUI would believe that it is tested by its own means
    commands = [
        ["slots", "up", str(file), "--stack", "best-effort", "--json", "--seconds", "300"],
        ["console", "--port", str(port), "--stack", "best-effort", "--json"],
    ]
    running = []
    try:
        for words in commands:
            command = [sys.executable, "-m", "pluribus", *words]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder))
            said = json.loads(running[-1].stdout.readline())
        yield said["address"]
    finally:
        for process in running:
            process.kill()
            process.communicate()
