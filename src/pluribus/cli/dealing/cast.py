"""The processes of the dealing room: started, killed, started again, ended. On an in-process bus they are tasks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from contextlib import suppress
from time import perf_counter
from typing import IO, Any

from pluribus.cli.dealing.players import ROLES


class Cast:
    """Processes by name. They end when this process ends, because it holds the other end of their standard input."""

    kills = True

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._errors: dict[str, IO[bytes]] = {}

    def start(self, name: str, role: str, *arguments: Any) -> None:
        code = f"from pluribus.cli.dealing.players import play; play({role!r}, *{arguments!r})"
        errors = self._errors[name] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        # Ctrl-C is for the room alone; a room that is gone closes their standard input, and they go too.
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """Kill a process with signal 9, which it cannot handle."""
        self._processes[name].kill()

    def failed(self) -> dict[str, str]:
        """Processes that ended without being asked to, with the last line that each printed."""
        return {name: self._words(name) for name, process in self._processes.items() if process.poll()}

    def _words(self, name: str) -> str:
        errors = self._errors[name]
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    async def end(self, seconds: float) -> None:
        """Wait so many seconds for the processes to end by themselves; then end them."""
        await asyncio.to_thread(self._wait, perf_counter() + seconds)
        self.end_now()

    def _wait(self, until: float) -> None:
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - perf_counter(), 0.0))

    def end_now(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
        for errors in self._errors.values():
            errors.close()
        self._processes, self._errors = {}, {}


class TaskCast(Cast):
    """The same for an in-process bus, whose members are tasks of this process."""

    kills = False

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, role: str, *arguments: Any) -> None:
        self._tasks[name] = asyncio.create_task(ROLES[role](*arguments))

    def failed(self) -> dict[str, str]:
        return {name: str(task.exception()) for name, task in self._tasks.items() if task.done() and task.exception()}

    async def end(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks = {}

    def end_now(self) -> None:
        for task in self._tasks.values():
            task.cancel()
